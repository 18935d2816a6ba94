//! The addresses of bridge domains.

use std::fmt::Write as _;

use quiver_command::grammar::{Args, IfRef, quote};
use quiver_command::operation::{Align, OpError, Outcome, Registry, Text, TextTable, View};
use quiver_command::request::Execute;
use quiver_command::{commands, request};
use quiver_wire::MacAddr;
use serde::{Deserialize, Serialize};

use crate::interface::ops::resolve;
use crate::l2::{Flush, MAC_LIMIT, MacEntry, MacKind};
use crate::{IfIndex, Router};

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.declare::<AddMac>().declare::<DeleteMac>().declare::<FlushMacs>().declare::<ShowMacs>();
    registry.declare::<SetScanDelay>();
}

/// What an address's entry is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// As if learned: it can move and grow old.
    #[default]
    Dynamic,
    /// There for good.
    Static,
    /// The BVI's.
    Bvi,
    /// Its frames are dropped.
    Filter,
}

/// Configures an address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddMac {
    /// Address.
    pub mac: [u8; 6],
    /// Number of the bridge domain.
    pub domain: u32,
    /// Interface that it is behind; none for a filter.
    #[serde(default)]
    pub interface: Option<IfRef>,
    /// What its entry is.
    #[serde(default)]
    pub kind: Kind,
}

commands! {
    change AddMac "l2fib_add" {
        /// Configures where an address is, or that its frames are dropped.
        ["l2fib add"] "<mac> <bd-id> filter | <if> [static|bvi]" by parse_add => add_command,
    }
}

fn add_command(AddMac { mac, domain, interface, kind }: &AddMac) -> Option<String> {
    let place = match (interface, kind) {
        (None, Kind::Filter) => "filter".to_owned(),
        (Some(interface), Kind::Dynamic) => quote(interface.as_str()).into_owned(),
        (Some(interface), Kind::Static) => format!("{} static", quote(interface.as_str())),
        (Some(interface), Kind::Bvi) => format!("{} bvi", quote(interface.as_str())),
        _ => return None,
    };
    Some(format!("l2fib add {} {domain} {place}", MacAddr(*mac)))
}

fn parse_add(args: &mut Args<'_>) -> Result<AddMac, OpError> {
    let mac = args.mac("MAC address")?;
    let domain = args.number("bridge domain")?;
    let (interface, kind) = if args.take_keyword("filter") {
        (None, Kind::Filter)
    } else {
        let interface = args.interface()?;
        (Some(interface), args.take_one_of(&[("static", Kind::Static), ("bvi", Kind::Bvi)]).unwrap_or(Kind::Dynamic))
    };
    Ok(AddMac { mac, domain, interface, kind })
}

impl Execute<Router> for AddMac {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let interface = self.interface.as_ref().map(|name| resolve(router, name)).transpose()?;
        let kind = match (self.kind, interface) {
            (Kind::Filter, None) => MacKind::Filter,
            (Kind::Dynamic, Some(i)) => MacKind::Learned(i),
            (Kind::Static, Some(i)) => MacKind::Static(i),
            (Kind::Bvi, Some(i)) => MacKind::Bvi(i),
            (Kind::Filter, Some(_)) => return Err(OpError::invalid("interface", "", "a filter has no interface")),
            (_, None) => return Err(OpError::invalid("interface", "", "an address is behind an interface")),
        };
        router.add_mac(self.domain, MacAddr(self.mac), kind)?;
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Removes an address.
    pub change DeleteMac "l2fib_del" ["l2fib del"] {
        /// Address.
        pub mac: [u8; 6] = "<mac>" name("MAC address"),
        /// Number of the bridge domain.
        pub domain: u32 = "<bd-id>" name("bridge domain"),
    }
}

impl Execute<Router> for DeleteMac {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        router.delete_mac(self.domain, MacAddr(self.mac))?;
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Sets how long changes of MAC addresses are collected before the API client that wants them is told.
    pub change SetScanDelay "l2fib_scan_delay" ["set l2fib scan-delay"] {
        /// Units of 10 ms.
        pub delay: u16 = "<delay>" name("delay") range(1..=65_535),
    }
}

impl Execute<Router> for SetScanDelay {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        router.set_l2_scan_delay(self.delay);
        Ok(Outcome::Done(()))
    }
}

/// Which learned addresses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Which {
    /// All.
    All,
    /// Of a bridge domain.
    BridgeDomain(u32),
    /// Behind an interface.
    Interface(IfRef),
}

/// Forgets learned addresses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlushMacs {
    /// Which.
    pub which: Which,
}

commands! {
    change FlushMacs "l2fib_flush" {
        /// Forgets all learned addresses.
        ["l2fib flush-mac all"] {} => { which: Which::All },
        /// Forgets the learned addresses of a bridge domain.
        ["l2fib flush-mac bridge-domain"] { id: u32 = "<bd-id>" name("bridge domain") } => { which: Which::BridgeDomain(id) },
        /// Forgets the learned addresses behind an interface.
        ["l2fib flush-mac interface"] { interface: IfRef = "<if>" } => { which: Which::Interface(interface) },
    }
}

impl Execute<Router> for FlushMacs {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let which = match self.which {
            Which::All => Flush::All,
            Which::BridgeDomain(id) => Flush::Domain(id),
            Which::Interface(name) => Flush::Interface(resolve(router, &name)?),
        };
        router.flush_macs(which)?;
        Ok(Outcome::Done(()))
    }
}

/// Lists addresses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ShowMacs {
    /// Each address, not only their number.
    pub all: bool,
    /// Those of this bridge domain only.
    pub domain: Option<u32>,
    /// Those of the bridge domain of this index only.
    pub index: Option<u16>,
    /// Learned ones only, or configured ones only.
    pub learned: Option<bool>,
}

commands! {
    read ShowMacs "l2fib_show" {
        /// Shows how many addresses are known, with `all' or a choice which ones.
        ["show l2fib"] "[all|verbose] [bd_id <n>|bd_index <n>] [learn|add] [raw]" by parse_show,
    }
}

fn parse_show(args: &mut Args<'_>) -> Result<ShowMacs, OpError> {
    let mut request = ShowMacs::default();
    while !args.is_empty() {
        if args.take_keyword("all") || args.take_keyword("verbose") || args.take_keyword("raw") {
            request.all = true;
        } else if args.take_keyword("bd_id") {
            (request.all, request.domain) = (true, Some(args.number("bridge domain")?));
        } else if args.take_keyword("bd_index") {
            (request.all, request.index) = (true, Some(args.number("bridge-domain index")?));
        } else if args.take_keyword("learn") {
            (request.all, request.learned) = (true, Some(true));
        } else if args.take_keyword("add") {
            (request.all, request.learned) = (true, Some(false));
        } else {
            return Err(args.unexpected());
        }
    }
    Ok(request)
}

/// An address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MacInfo {
    /// Address.
    pub mac: String,
    /// Number of its bridge domain.
    pub domain: u32,
    /// Index of its bridge domain.
    pub index: u16,
    /// Interface, and its number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<(String, u32)>,
    /// What its entry is.
    pub kind: Kind,
    /// Minutes since it was heard, where it grows old.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age: Option<u16>,
    /// Times the domain's and the port's addresses were flushed.
    pub sequences: (u8, u8),
}

/// The answer of [`ShowMacs`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MacList {
    /// Addresses in all.
    pub total: usize,
    /// Learned ones.
    pub learned: usize,
    /// Most there can be.
    pub limit: u32,
    /// Those asked for.
    pub macs: Vec<MacInfo>,
}

impl MacInfo {
    fn of(router: &Router, entry: &MacEntry) -> Self {
        let named = |index: IfIndex| Some((router.interfaces.name(index), index.0));
        let (kind, interface) = match entry.kind {
            MacKind::Learned(i) => (Kind::Dynamic, named(i)),
            MacKind::Static(i) => (Kind::Static, named(i)),
            MacKind::Bvi(i) => (Kind::Bvi, named(i)),
            MacKind::Filter => (Kind::Filter, None),
        };
        let (domain, index) = entry.domain;
        Self { mac: entry.mac.to_string(), domain, index, interface, kind, age: entry.age, sequences: entry.sequences }
    }
}

impl Text for MacList {
    fn text(&self, out: &mut String, _: &View) {
        if !self.macs.is_empty() {
            let columns = [
                ("Mac-Address", 19),
                ("BD-Idx", 7),
                ("If-Idx", 7),
                ("BSN-ISN", 8),
                ("Age(min)", 9),
                ("static", 7),
                ("filter", 7),
                ("bvi", 5),
                ("Interface-Name", 30),
            ];
            let centre = |table: TextTable, heading, width| table.column(heading, width, Align::Centre);
            let table = columns.into_iter().fold(TextTable::new(), |table, (heading, width)| centre(table, heading, width));
            table.heading(out);
            let star = |on| if on { "*" } else { "-" };
            for mac in &self.macs {
                let (name, index) = mac.interface.clone().map_or(("N/A".into(), "-1".into()), |(n, i)| (n, i.to_string()));
                let sequences = format!("{}/{}", mac.sequences.0, mac.sequences.1);
                let age = match (mac.kind, mac.age) {
                    (Kind::Dynamic, Some(age)) => age.to_string(),
                    (Kind::Dynamic, None) => "-".into(),
                    _ => "no".into(),
                };
                let (stays, filter, bvi) = (mac.kind != Kind::Dynamic, mac.kind == Kind::Filter, mac.kind == Kind::Bvi);
                let cells = (star(stays), star(filter), star(bvi));
                table.row(out, &[&mac.mac, &mac.index, &index, &sequences, &age, &cells.0, &cells.1, &cells.2, &name]);
            }
        }
        let _ = writeln!(
            out,
            "L2FIB total/learned entries: {}/{}  Last scan time: 0.0000e0sec  Learn limit: {} ",
            self.total, self.learned, self.limit
        );
    }
}

impl Execute<Router> for ShowMacs {
    type Reply = MacList;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, MacList>, OpError> {
        if let Some(id) = self.domain {
            router.bridge_domain(id)?;
        }
        let (total, learned) = router.mac_counts();
        let wanted = |entry: &&MacEntry| {
            self.domain.is_none_or(|id| id == entry.domain.0)
                && self.index.is_none_or(|index| index == entry.domain.1)
                && self.learned.is_none_or(|learned| learned == matches!(entry.kind, MacKind::Learned(_)))
        };
        let macs = if self.all { router.macs() } else { Vec::new() };
        let macs = macs.iter().filter(wanted).map(|entry| MacInfo::of(router, entry)).collect();
        Ok(Outcome::Done(MacList { total, learned, limit: MAC_LIMIT, macs }))
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::Harness;

    use crate::ops::testing::{error, run};

    #[test]
    fn addresses_are_shown_as_usual() {
        let mut h = Harness::new();
        h.interface(0);
        run(&mut h.router, "create sub-interfaces x0 100");
        run(&mut h.router, "set interface l2 bridge x0.100 10");
        run(&mut h.router, "l2fib add 00:11:22:33:44:55 10 x0.100 static");
        run(&mut h.router, "l2fib add 00:11:22:33:44:56 10 filter");
        run(&mut h.router, "l2fib add 00:11:22:33:44:57 10 x0.100");
        let total = "L2FIB total/learned entries: 3/1  Last scan time: 0.0000e0sec  Learn limit: 16777216 \n";
        assert_eq!(run(&mut h.router, "show l2fib"), total);
        let heading = "    Mac-Address     BD-Idx If-Idx BSN-ISN Age(min) static filter bvi         Interface-Name        \n";
        let rows = " 00:11:22:33:44:55    1      2      0/0      no      *      -     -              x0.100            \n\
                    \x2000:11:22:33:44:56    1      -1     0/0      no      *      *     -                N/A             \n";
        assert_eq!(run(&mut h.router, "show l2fib add"), format!("{heading}{rows}{total}"));
        let learned = " 00:11:22:33:44:57    1      2      0/0      0       -      -     -              x0.100            \n";
        assert_eq!(run(&mut h.router, "show l2fib verbose"), format!("{heading}{rows}{learned}{total}"));
        assert_eq!(run(&mut h.router, "show l2fib bd_id 10 learn"), format!("{heading}{learned}{total}"));
        run(&mut h.router, "l2fib flush-mac bridge-domain 10");
        run(&mut h.router, "l2fib del 00:11:22:33:44:55 10");
        run(&mut h.router, "l2fib flush-mac interface x0.100");
        run(&mut h.router, "l2fib flush-mac all");
        assert!(run(&mut h.router, "show l2fib").starts_with("L2FIB total/learned entries: 1/0"));
        for (line, expected) in [
            ("l2fib add 00:11:22:33:44:55 10", "interface"),
            ("l2fib add ff:ff:ff:ff:ff:ff 10 filter", "not the address of a station"),
            ("l2fib add 00:11:22:33:44:55 11 filter", "no bridge domain 11"),
            ("l2fib add 00:11:22:33:44:55 10 x0 static", "not a port"),
            ("l2fib add 00:11:22:33:44:55 10 x0.100 bvi", "not a port of the BVIs"),
            ("l2fib del 00:11:22:33:44:55 10", "no entry"),
            ("show l2fib bd_id 11", "no bridge domain 11"),
        ] {
            let error = error(&mut h.router, line);
            assert!(error.contains(expected) && !error.contains('\n'), "{line}: {error}");
        }
    }
}
