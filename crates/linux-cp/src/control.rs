//! Pairs: made, kept in step with the router's interface, and taken away with it.

mod auto;
mod create;
mod follow;

use std::collections::BTreeMap;

use quiver_command::config::Config;
use quiver_command::operation::OpError;
use quiver_drivers::tap::Tap;
use quiver_graph::{IfIndex, Published};
use quiver_net::linux::HostInterface;
use quiver_net::{IfEvent, PluginState, Router};

use crate::table::PairTable;
use crate::{config, nodes};

pub use create::{NewPair, delete, finish, prepare};
pub use follow::{set_auto_sub, set_sync};

/// EtherTypes that go to Linux from the start, beside IEEE 802.2: LLDP.
pub(crate) const TYPES: [u16; 1] = [0x88cc];

/// An interface and its mirror in Linux.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Its number, as it is shown: the lowest that was free.
    pub id: u32,
    /// The router's interface.
    pub phy: IfIndex,
    /// The TAP interface whose other end is the host interface.
    pub host: IfIndex,
    /// Name of the host interface.
    pub host_name: String,
    /// Its namespace; `None`: the router's own.
    pub namespace: Option<String>,
    /// Its number there.
    pub host_ifindex: u32,
    /// The host interface carries IP packets without Ethernet headers.
    pub tun: bool,
    /// The pair has given the interface IPv6.
    gave_ip6: bool,
}

/// The plugin's state on the main thread.
pub struct Lcp {
    /// By the router's interface.
    pairs: BTreeMap<u32, Pair>,
    /// The router's interface by the TAP interface.
    by_host: BTreeMap<u32, IfIndex>,
    table: Published<PairTable>,
    types: Vec<u16>,
    namespace: Option<String>,
    sync: bool,
    auto_sub: bool,
    auto: auto::Auto,
}

impl PluginState for Lcp {
    const OFF: &'static str = "the Linux control plane is off";
    const KEY: Option<&'static str> = Some("lcp");
}

impl Lcp {
    /// Pairs, by number of the router's interface.
    pub fn pairs(&self) -> impl Iterator<Item = &Pair> {
        self.pairs.values()
    }

    /// The pair of one of the router's interfaces.
    pub fn pair(&self, phy: IfIndex) -> Option<&Pair> {
        self.pairs.get(&phy.0)
    }

    /// The pair of a TAP interface.
    pub fn pair_of_host(&self, host: IfIndex) -> Option<&Pair> {
        self.pair(*self.by_host.get(&host.0)?)
    }

    /// Namespace of host interfaces where a pair names none.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Whether state, MTU, MAC address and addresses of interfaces are written to Linux.
    pub fn sync(&self) -> bool {
        self.sync
    }

    /// Whether sub-interfaces of paired interfaces get pairs.
    pub fn auto_sub(&self) -> bool {
        self.auto_sub
    }

    /// EtherTypes that go to Linux, beside IEEE 802.2.
    pub fn types(&self) -> &[u16] {
        &self.types
    }

    fn change(&self, change: impl FnOnce(&mut PairTable)) {
        let mut table = PairTable::clone(&self.table.get());
        change(&mut table);
        self.table.publish(table);
    }
}

/// Adds nodes and state.
///
/// # Errors
/// The graph's, or those of the configuration, as sentences.
pub fn start(router: &mut Router, config: &Config) -> Result<(), String> {
    let settings = config::Settings::read(config).map_err(|error| error.to_string())?;
    let mut table = PairTable::default();
    table.set_types(&TYPES);
    let table = Published::new(table);
    nodes::declare(router, &table).map_err(|error| error.to_string())?;
    router.add_part(Lcp {
        pairs: BTreeMap::new(),
        by_host: BTreeMap::new(),
        table,
        types: TYPES.to_vec(),
        namespace: settings.namespace,
        sync: settings.sync,
        auto_sub: settings.auto_sub,
        auto: auto::Auto::default(),
    });
    router.add_process(auto::PROCESS, auto::process);
    router.listen(on_event);
    Ok(())
}

/// Sets the namespace of pairs that name none.
///
/// # Errors
/// Longer than a message can say.
pub fn set_namespace(router: &mut Router, namespace: Option<String>) -> Result<(), OpError> {
    if let Some(name) = &namespace {
        check_namespace(name)?;
    }
    router.state_mut::<Lcp>()?.namespace = namespace;
    Ok(())
}

/// Longest name of a namespace: VPP's messages have 32 bytes for it.
const NAMESPACE_MAX: usize = 31;

pub(crate) fn check_namespace(name: &str) -> Result<(), OpError> {
    if name.is_empty() || name.len() > NAMESPACE_MAX {
        return Err(OpError::invalid("netns", name, "the name of a network namespace, 1 to 31 bytes"));
    }
    Ok(())
}

/// Has frames of an EtherType go to Linux.
///
/// # Errors
/// A type that the router itself takes, or a length.
pub fn enable_type(router: &mut Router, ether_type: u16) -> Result<(), OpError> {
    use quiver_wire::ethernet::EtherType;
    let own = [EtherType::IPV4, EtherType::IPV6, EtherType::ARP].iter().any(|own| own.0 == ether_type);
    if own || EtherType(ether_type).is_vlan() || ether_type < EtherType::FIRST_TYPE.0 {
        let text = format!("{ether_type:#06x}");
        return Err(OpError::invalid("ethertype", text, "a type from 0x0600 on that is not IP, ARP or a VLAN tag"));
    }
    let lcp = router.state_mut::<Lcp>()?;
    if !lcp.types.contains(&ether_type) {
        lcp.types.push(ether_type);
        let types = lcp.types.clone();
        lcp.change(|table| table.set_types(&types));
    }
    Ok(())
}

/// Changes the host's end of a TAP interface.
fn with_tap<R>(router: &mut Router, host: IfIndex, change: impl FnOnce(&mut Tap) -> R) -> Option<R> {
    router.interfaces.get_mut(host)?.port_mut::<Tap>().map(change)
}

/// Enters a pair's host interface where others look for it.
fn note_host(router: &mut Router, pair: &Pair) -> Result<(), OpError> {
    let host = HostInterface {
        interface: pair.phy,
        namespace: pair.namespace.clone(),
        host_name: pair.host_name.clone(),
        host_ifindex: pair.host_ifindex,
    };
    router.add_host_interface(host).map_err(OpError::from)
}

fn on_event(router: &mut Router, event: &IfEvent) {
    if let IfEvent::Deleted(index) = *event {
        create::forget(router, index, Some(index));
        return;
    }
    follow::on_event(router, event);
}

/// The plugin without a kernel.
#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use crate::table::Tags;

    /// Starts the plugin.
    pub fn begin(router: &mut Router) {
        let config = config::schema(quiver_command::config::Schema::new());
        let config = config.read(quiver_command::config::Source::file("f", "")).expect("an empty configuration");
        start(router, &config).expect("the plugin");
    }

    /// Makes a pair with an interface that stands for the TAP.
    pub fn pair_with(router: &mut Router, phy: IfIndex, host: IfIndex) -> Result<(), OpError> {
        let tags = router.interfaces.get(phy).and_then(|i| Tags::new(&i.tags())).unwrap_or_default();
        let pair = Pair {
            id: host.0 - 2,
            phy,
            host,
            host_name: format!("e{}", host.0 - 2),
            namespace: Some("dataplane".into()),
            host_ifindex: 5 + host.0,
            tun: router.interfaces.get(phy).is_some_and(|phy| !phy.has_link_layer()),
            gave_ip6: false,
        };
        create::connect(router, pair, tags)
    }
}
