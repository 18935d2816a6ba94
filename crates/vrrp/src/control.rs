//! The plugin on the main thread: which virtual routers there are, and which thread has each of them.

mod adopt;
mod change;
mod follow;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crossbeam_channel::{Receiver, bounded};
use quiver_command::config::Config as Startup;
use quiver_command::operation::{OpError, retval};
use quiver_graph::{IfIndex, Published};
use quiver_net::ip::FamilyId;
use quiver_net::neighbor::Station;
use quiver_net::{PluginState, Router, WorkerEvent};

use crate::machine::{Config, State};
use crate::nodes::{self, Index, Parts, Place, Virtual};
use crate::process;
use crate::restart;
use crate::thread::{Figures, Key, Notice, Outbox, Routers, Shared};

pub(crate) use adopt::{adopt, kept};
pub use change::{add, remove, set_peers, set_started, set_tracked, update};
pub(crate) use follow::{follow, look};

/// Most virtual routers.
pub const ROUTERS_MAX: usize = 4096;
/// Most addresses of one: with more of IPv6, advertisements come near the least MTU of IPv6.
pub const ADDRESSES_MAX: usize = 64;
/// Most peers of one.
pub const PEERS_MAX: usize = 64;
/// Most interfaces that one tracks.
pub const TRACKED_MAX: usize = 64;
/// Threads that there can be.
const THREADS_MAX: usize = 64;
/// Notices that wait for main; where there are more, main looks at all virtual routers.
const NOTICES: usize = 2 * ROUTERS_MAX;

/// What an operator says of a virtual router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Priority, interval, preemption.
    pub config: Config,
    /// Packets to its addresses are accepted, not only forwarded.
    pub accept: bool,
    /// Advertisements go to peers, not to the group.
    pub unicast: bool,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
}

/// A virtual router as main knows it.
#[derive(Clone, Debug)]
pub struct Configured {
    /// Its number for users.
    pub id: u32,
    /// What was configured.
    pub settings: Settings,
    /// Unicast peers, each with the load-balance that leads there.
    pub peers: Vec<(IpAddr, u32)>,
    /// Interfaces that it tracks, with what each takes from the priority while it is down.
    pub tracked: BTreeMap<IfIndex, u8>,
    /// The protocol was started.
    pub started: bool,
    /// The thread that has it.
    pub owner: usize,
    /// What its thread has last said.
    pub state: State,
    /// What is known by no other virtual router, now or later.
    pub(crate) serial: u32,
    master: Arc<AtomicBool>,
    station: Option<Arc<Station>>,
    /// Its thread was last told that it can send from here.
    source: Option<IpAddr>,
    /// Addresses that are received here because this router is the master, each with its table.
    received: Vec<(u32, IpAddr)>,
}

/// The plugin's state.
pub struct Vrrp {
    parts: Parts,
    pub(crate) routers: BTreeMap<Key, Configured>,
    pub(crate) notices: Receiver<Notice>,
    /// Notices were lost.
    pub(crate) lost: Arc<AtomicBool>,
    serials: u32,
}

impl PluginState for Vrrp {
    const OFF: &'static str = "the plugin vrrp is off";
    const KEY: Option<&'static str> = Some("vrrp");
}

/// Adds state and nodes to the router, at its start.
///
/// # Errors
/// The graph refused.
pub fn start(router: &mut Router, _: &Startup) -> Result<(), String> {
    let (sender, notices) = bounded(NOTICES);
    let lost = Arc::new(AtomicBool::new(false));
    let outbox = Outbox::new(sender, router.process_signal(process::NAME), lost.clone());
    let parts = Parts {
        index: Published::new(Index::default()),
        threads: (0..THREADS_MAX).map(|_| Shared::new(Routers::new(outbox.clone()))).collect(),
    };
    nodes::declare(router, &parts).map_err(|error| error.to_string())?;
    router.add_part(Vrrp { parts, routers: BTreeMap::new(), notices, lost, serials: 0 });
    router.add_process(process::NAME, process::run);
    router.listen(follow::on_interface);
    router.listen_workers(on_worker);
    router.at_stop(change::stop_all);
    restart::init(router);
    Ok(())
}

/// There is no such virtual router.
fn unknown(router: &Router, key: &Key) -> OpError {
    let text = format!("no virtual router {} of {:?} on {}", key.vr_id, key.family, router.interfaces.name(key.interface));
    OpError::new(retval::NO_SUCH_ENTRY, text).key("vr_id").value(key.vr_id).remedy("`show vrrp vr' lists all")
}

impl Vrrp {
    /// All virtual routers, by interface, family and number.
    pub fn routers(&self) -> impl Iterator<Item = (&Key, &Configured)> {
        self.routers.iter()
    }

    /// The thread with the fewest of them.
    fn idlest(&self, router: &Router) -> usize {
        let load = |thread: &usize| self.routers.values().filter(|configured| configured.owner == *thread).count();
        router.staying_workers().into_iter().min_by_key(load).unwrap_or(0)
    }

    /// Runs `f` on the virtual routers of a thread.
    fn on<R: Send + 'static>(
        &self,
        router: &mut Router,
        thread: usize,
        f: impl FnOnce(&mut Routers) -> R + Send + 'static,
    ) -> Option<R> {
        let shared = self.parts.threads.get(thread)?.clone();
        router.graph.fleet().on(thread, move |_| f(&mut shared.lock()))
    }

    /// Tells nodes which virtual routers there are.
    fn publish(&self, router: &Router) {
        let mut index = Index::default();
        for (key, configured) in &self.routers {
            let peers = configured.settings.unicast.then(|| configured.peers.iter().map(|(peer, _)| *peer).collect());
            let is_owner = configured.settings.config.priority == crate::machine::OWNER;
            index.routers.insert(*key, Place { owner: configured.owner, serial: configured.serial, is_owner, peers });
            let Some(station) = &configured.station else { continue };
            for address in &configured.settings.addresses {
                let own = is_own(router, key.interface, *address);
                let accept = configured.settings.accept || own;
                let found = Virtual { station: station.clone(), master: configured.master.clone(), accept, own };
                index.addresses.insert((key.interface, *address), found);
            }
        }
        self.parts.index.publish(index);
        for (family, name) in [(FamilyId::V4, "/vrrp/ip4/routers"), (FamilyId::V6, "/vrrp/ip6/routers")] {
            let count = self.routers.keys().filter(|key| key.family == family).count();
            router.graph.stats().gauge(name).set(count as u64);
        }
    }
}

/// Whether an interface has an address itself.
fn is_own(router: &Router, interface: IfIndex, address: IpAddr) -> bool {
    router.interfaces.get(interface).is_some_and(|interface| interface.addresses.iter().any(|(own, _)| *own == address))
}

/// The virtual routers as they are now on their threads, by serial number.
///
/// # Errors
/// The plugin is off.
pub fn figures(router: &mut Router) -> Result<BTreeMap<u32, Figures>, OpError> {
    router.with_state::<Vrrp, _>(|router, vrrp| {
        let mut all = BTreeMap::new();
        let owners: std::collections::BTreeSet<usize> = vrrp.routers.values().map(|configured| configured.owner).collect();
        for owner in owners {
            let of = |routers: &mut Routers| routers.iter().map(|entry| (entry.serial, entry.figures())).collect::<Vec<_>>();
            all.extend(vrrp.on(router, owner, of).unwrap_or_default());
        }
        Ok(all)
    })
}

/// Virtual routers of a thread that leaves go on at others, with their timers as they are.
fn on_worker(router: &mut Router, event: &WorkerEvent) {
    let WorkerEvent::Leaving(thread) = *event else { return };
    let moved = router.with_state::<Vrrp, _>(|router, vrrp| {
        let entries = vrrp.on(router, thread, Routers::take_all).unwrap_or_default();
        for entry in entries {
            let owner = vrrp.idlest(router);
            if let Some(configured) = vrrp.routers.get_mut(&entry.key).filter(|configured| configured.serial == entry.serial) {
                configured.owner = owner;
                vrrp.on(router, owner, move |routers| routers.insert(entry));
            }
        }
        vrrp.publish(router);
        Ok(())
    });
    if let Err(error) = moved {
        tracing::warn!(target: "vrrp", "{error}");
    }
}
