//! Showing interfaces, in VPP's columns.

use std::fmt::Write as _;

use quiver_command::grammar::{Args, IfRef};
use quiver_command::operation::{Align, OpError, Outcome, Registry, Text, TextTable, View};
use quiver_command::request::Execute;
use quiver_command::{commands, request};
use serde::{Deserialize, Serialize};

use super::resolve;
use crate::interface::{Interface, Kind, L2Mode};
use crate::{IfIndex, Router};

pub(super) fn register(registry: &mut Registry<Router>) {
    registry.declare::<ShowInterfaces>().declare::<ShowHardware>().declare::<ShowMode>().declare::<ShowPatches>();
    registry.declare::<ShowInterfaceFeatures>().declare::<ClearInterfaces>();
}

request! {
    /// Shows which interfaces send every frame out of another one; what VPP calls patches are cross-connects here.
    pub read ShowPatches "l2_patch_show" ["show l2patch"] {}
}

/// One way of a cross-connect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Patch {
    /// Where frames come in.
    pub rx: String,
    /// Where they go out.
    pub tx: String,
}

/// The answer of [`ShowPatches`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Patches(pub Vec<Patch>);

impl Text for Patches {
    fn text(&self, out: &mut String, _: &View) {
        if self.0.is_empty() {
            out.push_str("no l2patch entries\n");
        }
        for Patch { rx, tx } in &self.0 {
            let _ = writeln!(out, "{rx:>26} -> {tx}");
        }
    }
}

impl Execute<Router> for ShowPatches {
    type Reply = Patches;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Patches>, OpError> {
        let patch = |interface: &Interface| match interface.l2 {
            L2Mode::CrossConnect(peer) => Some(Patch { rx: interface.name.clone(), tx: router.interfaces.name(peer) }),
            _ => None,
        };
        Ok(Outcome::Done(Patches(router.interfaces.iter().filter_map(patch).collect())))
    }
}

/// The interfaces named, or all, sorted by name as VPP sorts them.
pub fn chosen<'a>(router: &'a Router, names: &[IfRef]) -> Result<Vec<&'a Interface>, OpError> {
    let mut interfaces: Vec<&Interface> = if names.is_empty() {
        router.interfaces.iter().collect()
    } else {
        let indices: Result<Vec<IfIndex>, OpError> = names.iter().map(|n| resolve(router, n)).collect();
        indices?.into_iter().filter_map(|i| router.interfaces.get(i)).collect()
    };
    if names.is_empty() {
        interfaces.sort_by(|a, b| a.name.cmp(&b.name));
    }
    Ok(interfaces)
}

/// What [`ShowInterfaces`] shows of each interface.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// State and counters.
    #[default]
    Counters,
    /// Addresses and layer-2 use.
    Addresses,
    /// Features.
    Features,
    /// User's texts.
    Tags,
}

/// Shows interfaces.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ShowInterfaces {
    /// Which ones; all where empty.
    pub interfaces: Vec<IfRef>,
    /// What of them.
    pub what: What,
    /// Counters that are zero too.
    pub verbose: bool,
}

commands! {
    read ShowInterfaces "interfaces_show" {
        /// Shows interfaces with their counters, addresses, features or tags.
        ["show interface"] "[<if> ...] [address|addr|features|feat|tag] [verbose]" by parse,
    }
}

fn parse(args: &mut Args<'_>) -> Result<ShowInterfaces, OpError> {
    let mut request = ShowInterfaces::default();
    while !args.is_empty() {
        if args.take_keyword("address") || args.take_keyword("addr") {
            request.what = What::Addresses;
        } else if args.take_keyword("features") || args.take_keyword("feat") {
            request.what = What::Features;
        } else if args.take_keyword("tag") {
            request.what = What::Tags;
        } else if args.take_keyword("verbose") {
            request.verbose = true;
        } else {
            request.interfaces.push(args.interface()?);
        }
    }
    Ok(request)
}

/// An interface as shown.
#[derive(Debug, Clone, Serialize)]
pub struct InterfaceInfo {
    /// Name.
    pub name: String,
    /// Number.
    pub sw_if_index: u32,
    /// Administratively up.
    pub up: bool,
    /// Link up.
    pub link_up: bool,
    /// MAC address.
    pub mac: String,
    /// Largest packets, bytes: all, IPv4, IPv6, MPLS (0: as all).
    pub mtu: [u32; 4],
    /// Tables of IPv4 and IPv6.
    pub tables: (u32, u32),
    /// Addresses with prefix lengths.
    pub addresses: Vec<String>,
    /// Interface whose addresses are borrowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unnumbered: Option<String>,
    /// Peer of a cross-connect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cross_connect: Option<String>,
    /// Its bridge domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bridge: Option<BridgeRef>,
    /// Features by arc.
    pub features: Vec<(String, Vec<String>)>,
    /// User's text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Counters by VPP's words.
    pub counters: Vec<(String, u64)>,
}

/// The bridge domain that an interface is a port of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct BridgeRef {
    /// Its number.
    pub domain: u32,
    /// Its index in the data path.
    pub index: u16,
    /// Split-horizon group of the port.
    pub group: u8,
}

impl BridgeRef {
    fn of(interface: &Interface) -> Option<Self> {
        match interface.l2 {
            L2Mode::Bridge { domain, index, group, .. } => Some(Self { domain, index, group }),
            _ => None,
        }
    }
}

impl InterfaceInfo {
    fn of(router: &Router, interface: &Interface) -> Self {
        let counters = router.graph.interfaces();
        let index = interface.index.0;
        let mut values = Vec::new();
        for (name, counter) in counters.combined() {
            let (packets, bytes) = counter.sum(index);
            // The split by kind of address repeats rx and tx; it is in the statistics segment.
            if !name.contains("cast") {
                values.push((format!("{name} packets"), packets));
                values.push((format!("{name} bytes"), bytes));
            }
        }
        values.extend(counters.simple().iter().map(|(name, counter)| ((*name).to_owned(), counter.sum(index))));
        let cross_connect = match interface.l2 {
            L2Mode::CrossConnect(peer) => Some(router.interfaces.name(peer)),
            _ => None,
        };
        Self {
            name: interface.name.clone(),
            sw_if_index: index,
            up: interface.admin_up,
            link_up: interface.link.up,
            mac: interface.mac.to_string(),
            mtu: [interface.mtu.l3, interface.mtu.ip4, interface.mtu.ip6, interface.mtu.mpls],
            tables: interface.tables,
            addresses: interface.addresses.iter().map(|(a, l)| format!("{a}/{l}")).collect(),
            unnumbered: interface.unnumbered.map(|i| router.interfaces.name(i)),
            cross_connect,
            bridge: BridgeRef::of(interface),
            features: router.graph.features_of(interface.index).into_iter().map(|(a, f)| (a.to_owned(), f)).collect(),
            tag: interface.tag.clone(),
            counters: values,
        }
    }

    fn counter_lines(&self, out: &mut String, verbose: bool) {
        let mtu = self.mtu.map(|m| m.to_string()).join("/");
        let state = if self.up { "up" } else { "down" };
        let mut shown = self.counters.iter().filter(|(_, v)| verbose || *v != 0);
        let counter = |(name, value): &(String, u64)| format!("{name:<16}{value:>16}");
        let first = shown.next().map(counter).unwrap_or_default();
        let cells: [&dyn std::fmt::Display; 5] = [&self.name, &self.sw_if_index, &state, &mtu, &first];
        row_table().row(out, &cells);
        for line in shown.map(counter) {
            row_table().row(out, &[&"", &"", &"", &"", &line]);
        }
    }

    fn address_lines(&self, out: &mut String) {
        let _ = writeln!(out, "{} ({}):", self.name, if self.up { "up" } else { "dn" });
        if let Some(peer) = &self.cross_connect {
            let _ = writeln!(out, "  L2 xconnect {peer}");
        }
        if let Some(bridge) = &self.bridge {
            let _ = writeln!(out, "  L2 bridge bd-id {} idx {} shg {}", bridge.domain, bridge.index, bridge.group);
        }
        if let Some(lender) = &self.unnumbered {
            let _ = writeln!(out, "  unnumbered, use {lender}");
        }
        for address in &self.addresses {
            let (table, family) = if address.contains(':') { (self.tables.1, "ip6") } else { (self.tables.0, "ip4") };
            let _ = write!(out, "  L3 {address}");
            if table != 0 {
                let _ = write!(out, " {family} table-id {table}");
            }
            out.push('\n');
        }
    }

    fn feature_lines(&self, out: &mut String) {
        let _ = writeln!(out, "Feature paths configured on {}...", self.name);
        if self.features.is_empty() {
            out.push_str("none configured\n");
        }
        for (arc, features) in &self.features {
            let _ = writeln!(out, "\n{arc}:");
            for feature in features {
                let _ = writeln!(out, "  {feature}");
            }
        }
    }
}

/// Columns of the heading of `show interface`.
fn heading_table() -> TextTable {
    state_columns().column("Counter", 16, Align::Left).column("Count", 16, Align::Left)
}

/// Columns of its rows: counter and count are one cell.
fn row_table() -> TextTable {
    state_columns().column("", 32, Align::Left).trim()
}

fn state_columns() -> TextTable {
    TextTable::new().column("Name", 32, Align::Left).column("Idx", 5, Align::Centre).column("State", 10, Align::Centre).column(
        "MTU (L3/IP4/IP6/MPLS)",
        21,
        Align::Centre,
    )
}

/// The answer of [`ShowInterfaces`].
#[derive(Debug, Clone, Serialize)]
pub struct InterfaceList {
    /// Interfaces.
    pub interfaces: Vec<InterfaceInfo>,
    #[serde(skip)]
    what: What,
    #[serde(skip)]
    verbose: bool,
}

impl Text for InterfaceList {
    fn text(&self, out: &mut String, _: &View) {
        if self.what == What::Counters {
            heading_table().heading(out);
        }
        for interface in &self.interfaces {
            match self.what {
                What::Counters => interface.counter_lines(out, self.verbose),
                What::Addresses => interface.address_lines(out),
                What::Features => interface.feature_lines(out),
                What::Tags => {
                    let _ = writeln!(out, "{}: {}", interface.name, interface.tag.as_deref().unwrap_or("(none)"));
                }
            }
        }
    }
}

impl Execute<Router> for ShowInterfaces {
    type Reply = InterfaceList;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, InterfaceList>, OpError> {
        router.refresh_counters();
        let interfaces = chosen(router, &self.interfaces)?.into_iter().map(|i| InterfaceInfo::of(router, i)).collect();
        Ok(Outcome::Done(InterfaceList { interfaces, what: self.what, verbose: self.verbose }))
    }
}

request! {
    /// Shows devices: link, queues, MAC address, driver.
    pub read ShowHardware "hardware_interfaces_show" ["show hardware-interfaces"] {
        /// One line each.
        pub brief: bool = "brief|verbose",
        /// Which ones; all where empty.
        pub interfaces: Vec<IfRef> = "<if>",
    } ignores {
        /// It is what `verbose` is.
        "detail",
    }
}

/// A device as shown.
#[derive(Debug, Clone, Serialize)]
pub struct HardwareInfo {
    /// Interface.
    pub name: String,
    /// Number.
    pub sw_if_index: u32,
    /// Link up.
    pub link_up: bool,
    /// Bits a second, where known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed_bps: Option<u64>,
    /// Thread of each receive queue, and how it waits for packets.
    pub rx_queues: Vec<RxQueueInfo>,
    /// MAC address.
    pub mac: String,
    /// Kind and further lines of the driver.
    pub details: Vec<String>,
}

/// A receive queue as shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RxQueueInfo {
    /// Thread that polls it.
    pub thread: usize,
    /// How the thread waits for packets.
    pub mode: &'static str,
}

/// The answer of [`ShowHardware`].
#[derive(Debug, Clone, Serialize)]
pub struct HardwareList {
    /// Devices.
    pub devices: Vec<HardwareInfo>,
    #[serde(skip)]
    brief: bool,
}

/// A speed as VPP prints it.
fn speed(bps: Option<u64>) -> String {
    match bps {
        None => "unknown".into(),
        Some(bps) if bps >= 1_000_000_000 && bps % 1_000_000_000 == 0 => format!("{} Gbps", bps / 1_000_000_000),
        Some(bps) if bps >= 1_000_000 => format!("{} Mbps", bps / 1_000_000),
        Some(bps) => format!("{} Kbps", bps / 1000),
    }
}

impl Text for HardwareList {
    fn text(&self, out: &mut String, _: &View) {
        let table = TextTable::new()
            .column("Name", 32, Align::Left)
            .column("Idx", 6, Align::Centre)
            .column("Link", 8, Align::Centre)
            .column_with("Hardware", Align::Left, 0, Align::Left);
        table.heading(out);
        for device in &self.devices {
            let link = if device.link_up { "up" } else { "down" };
            table.row(out, &[&device.name, &device.sw_if_index, &link, &device.name]);
            if self.brief {
                continue;
            }
            let _ = writeln!(out, "  Link speed: {}", speed(device.speed_bps));
            if !device.rx_queues.is_empty() {
                out.push_str("  RX Queues:\n    queue thread         mode      \n");
                for (queue, info) in device.rx_queues.iter().enumerate() {
                    let _ = writeln!(out, "    {queue:<6}{:<15}{:<10}", thread_name(info.thread), info.mode);
                }
            }
            let _ = writeln!(out, "  Ethernet address {}", device.mac);
            for line in &device.details {
                let _ = writeln!(out, "  {line}");
            }
        }
    }
}

/// A thread as VPP names it in queue lists.
fn thread_name(thread: usize) -> String {
    if thread == 0 { "main (0)".into() } else { format!("quiver_wk_{} ({thread})", thread - 1) }
}

impl Execute<Router> for ShowHardware {
    type Reply = HardwareList;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, HardwareList>, OpError> {
        let devices = chosen(router, &self.interfaces)?
            .into_iter()
            .filter(|i| !matches!(i.kind, Kind::Sub(_)))
            .map(|i| HardwareInfo {
                name: i.name.clone(),
                sw_if_index: i.index.0,
                link_up: i.link.up,
                speed_bps: i.link.speed,
                rx_queues: router
                    .rx_places(i.index)
                    .iter()
                    .map(|place| RxQueueInfo { thread: place.thread, mode: place.mode.name() })
                    .collect(),
                mac: i.mac.to_string(),
                details: match (&i.kind, &i.device) {
                    (_, Some(device)) => device.port.describe(),
                    (Kind::Virtual(kind), None) => vec![kind.device_type.to_owned()],
                    _ => Vec::new(),
                },
            })
            .collect();
        Ok(Outcome::Done(HardwareList { devices, brief: self.brief }))
    }
}

request! {
    /// Shows whether interfaces route or work on layer 2.
    pub read ShowMode "interface_mode_show" ["show mode"] {
        /// Which ones; all where empty.
        pub interfaces: Vec<IfRef> = "<if>",
    }
}

/// The mode of an interface.
#[derive(Debug, Clone, Serialize)]
pub struct Mode {
    /// Interface.
    pub interface: String,
    /// Peer of its cross-connect, where it is not routed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cross_connect: Option<String>,
    /// Bridge domain, where it is a port of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bridge: Option<BridgeRef>,
}

impl Text for Mode {
    fn text(&self, out: &mut String, _: &View) {
        let _ = match (&self.cross_connect, &self.bridge) {
            (Some(peer), _) => writeln!(out, "l2 xconnect {} {peer}", self.interface),
            (None, Some(bridge)) => writeln!(out, "l2 bridge {} bd_id {} shg {}", self.interface, bridge.domain, bridge.group),
            (None, None) => writeln!(out, "l3 {}", self.interface),
        };
    }
}

impl Execute<Router> for ShowMode {
    type Reply = Vec<Mode>;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Vec<Mode>>, OpError> {
        let mode = |i: &Interface| Mode {
            interface: i.name.clone(),
            cross_connect: match i.l2 {
                L2Mode::CrossConnect(peer) => Some(router.interfaces.name(peer)),
                _ => None,
            },
            bridge: BridgeRef::of(i),
        };
        Ok(Outcome::Done(chosen(router, &self.interfaces)?.into_iter().map(mode).collect()))
    }
}

request! {
    /// Shows which features are on for an interface, arc by arc.
    pub read ShowInterfaceFeatures "interface_features_show" ["show interface features"] {
        /// Interface.
        pub interface: IfRef = "<if>",
    }
}

impl Execute<Router> for ShowInterfaceFeatures {
    type Reply = InterfaceList;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, InterfaceList>, OpError> {
        let interfaces = chosen(router, &[self.interface])?.into_iter().map(|i| InterfaceInfo::of(router, i)).collect();
        Ok(Outcome::Done(InterfaceList { interfaces, what: What::Features, verbose: false }))
    }
}

request! {
    /// Zeroes the counters of interfaces.
    pub change ClearInterfaces "interfaces_clear" ["clear interfaces", "clear hardware-interfaces"] {
        /// One interface; all where absent.
        pub interface: Option<IfRef> = "<if>",
    }
}

impl Execute<Router> for ClearInterfaces {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let only = self.interface.map(|name| resolve(router, &name)).transpose()?;
        router.graph.clear_interfaces(only);
        let chosen: Vec<IfIndex> = router.interfaces.iter().map(|i| i.index).filter(|i| only.is_none_or(|o| o == *i)).collect();
        for index in chosen {
            if let Some(device) = router.interfaces.get_mut(index).and_then(|interface| interface.device.as_mut()) {
                device.port.clear_counters();
            }
        }
        Ok(Outcome::Done(()))
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::Harness;

    fn run(h: &mut Harness, line: &str) -> String {
        crate::ops::testing::run(&mut h.router, line)
    }

    const HEADING: &str = "              Name               Idx    State  MTU (L3/IP4/IP6/MPLS)     Counter          Count     \n";

    #[test]
    fn columns_are_those_of_vpp() {
        let mut h = Harness::new();
        h.router.pg_create_interface(0, None, crate::pg::Mode::Ethernet).unwrap();
        assert_eq!(
            run(&mut h, "show interface"),
            format!(
                "{HEADING}\
                 local0                            0     down          0/0/0/0\n\
                 pg0                               1     down         9000/0/0/0\n"
            )
        );
        assert_eq!(
            run(&mut h, "sh hard pg0"),
            "              Name                Idx   Link  Hardware\n\
             pg0                                1     up   pg0\n  \
             Link speed: unknown\n  \
             Ethernet address 02:fe:00:00:00:00\n  \
             pg\n"
        );
    }

    #[test]
    fn counters_follow_under_one_another() {
        let mut h = Harness::new();
        let index = h.router.pg_create_interface(0, None, crate::pg::Mode::Ethernet).unwrap();
        run(&mut h, "set int state pg0 up");
        let counters = h.router.graph.interfaces().clone();
        counters.rx.add(0, index.0, 3, 192);
        let blank = " ".repeat(68);
        assert_eq!(
            run(&mut h, "show interface pg0"),
            format!(
                "{HEADING}\
                 pg0                               1      up          9000/0/0/0     rx packets                     3\n\
                 {blank}rx bytes                     192\n"
            )
        );
        run(&mut h, "clear interfaces");
        assert!(!run(&mut h, "show interface pg0").contains("rx packets"));
        assert!(run(&mut h, "show interface pg0 verbose").contains("rx packets                     0"));
    }

    #[test]
    fn layers_tags_and_features_have_their_forms() {
        let mut h = Harness::new();
        for line in ["create loopback interface", "create loopback interface mac 02:00:00:00:00:07 instance 7"] {
            run(&mut h, line);
        }
        assert_eq!(run(&mut h, "create sub-interfaces loop0 10-12"), "loop0.10 loop0.11 loop0.12\n");
        assert_eq!(run(&mut h, "create sub-interfaces loop0 100 dot1ad 100 inner-dot1q any"), "loop0.100\n");
        run(&mut h, "set interface l2 xconnect loop0.10 loop7");
        assert_eq!(run(&mut h, "show mode loop0.10 loop7"), "l2 xconnect loop0.10 loop7\nl3 loop7\n");
        assert_eq!(run(&mut h, "show int addr loop0.10"), "loop0.10 (dn):\n  L2 xconnect loop7\n");
        run(&mut h, "set interface l3 loop0.10");
        run(&mut h, "set interface tag loop7 to the north");
        assert_eq!(run(&mut h, "show interface loop7 tag"), "loop7: to the north\n");
        let none = "Feature paths configured on loop7...\nnone configured\n";
        assert_eq!(run(&mut h, "show interface features loop7"), none);
        run(&mut h, "delete sub-interface loop0.10");
        run(&mut h, "delete loopback interface intfc loop0");
        assert_eq!(run(&mut h, "show interface address"), "local0 (dn):\nloop7 (dn):\n");
    }

    #[test]
    fn a_wrong_command_is_one_line_and_changes_nothing() {
        let mut h = Harness::new();
        run(&mut h, "create loopback interface");
        let before = run(&mut h, "show interface");
        for (line, expected) in [
            ("set interface state loop9 up", "unknown interface `loop9'"),
            ("set interface state loop0 sideways", "sideways"),
            ("set interface mtu 99999 loop0", "out of range"),
            ("set interface mtu ip6 1000 loop0", "1280"),
            ("set interface mac address loop0 01:00:00:00:00:00", "unicast"),
            ("create sub-interfaces loop0 4095-4097", "a VLAN id is at most 4094"),
            ("create sub-interfaces loop0 4095", "a VLAN id is at most 4094"),
            ("create sub-interfaces loop0 7 dot1q 4095", "invalid vlan `4095'; expected 0 to 4094"),
            ("create sub-interfaces loop0 7 dot1ad 5 inner-dot1q 4095", "invalid vlan `4095'; expected 0 to 4094"),
            ("create sub-interfaces loop0 5-3", ""),
            ("create sub-interfaces local0 5", "cannot have sub-interfaces"),
            ("delete sub-interface loop0", "not a sub-interface"),
            ("set interface l2 xconnect loop0 loop0", "cannot be cross-connected"),
            ("set interface feature loop0 nothing arc ip4-unicast", ""),
            ("create loopback interface instance 0", "exists"),
        ] {
            let error = crate::ops::testing::error(&mut h.router, line);
            assert!(error.contains(expected) && !error.contains('\n'), "{line}: {error}");
        }
        assert_eq!(run(&mut h, "show interface"), before);
    }
}
