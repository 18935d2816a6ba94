//! Neighbours of both families, and proxy ARP.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};

use quiver_command::grammar::{Args, Command, IfRef};
use quiver_command::operation::{Align, Invocation, OpError, Operation, Outcome, Registry, Text, TextTable, View, retval};
use quiver_net::Router;
use quiver_net::ip::FamilyId;
use quiver_net::neighbor::{NeighborError, ProxyRange, State};
use quiver_wire::MacAddr;
use serde::{Deserialize, Serialize};

use super::interface::resolve;

/// Most neighbours that one command adds.
const COUNT_MAX: u32 = 100_000;

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry
        .operation::<SetNeighbor>()
        .operation::<FlushNeighbors>()
        .operation::<ShowNeighbors>()
        .operation::<SetNeighborConfig>()
        .operation::<ShowNeighborConfig>()
        .operation::<SetProxyArp>()
        .operation::<SetProxyRange>()
        .operation::<ShowProxyArp>();
    for path in ["ip neighbor", "set ip neighbor"] {
        registry.command(Command {
            path,
            syntax: "[add|del] <if> <ip> <mac> [static] [no-fib-entry] [count <n>] | <if> flush",
            help: "Sets or removes a neighbor, or several in a row; `flush' forgets the dynamic ones of an interface",
            parse: parse_neighbor,
        });
    }
    registry.command(Command {
        path: "set ip neighbor-config",
        syntax: "ip4|ip6 [limit <n>] [age <s>] [recycle|norecycle]",
        help: "Sets how many neighbors may be learned, and when they are probed",
        parse: |args, _| {
            let v6 = args.expect_one_of(&[("ip4", false), ("ip6", true)])?;
            let mut r = SetNeighborConfigRequest { v6, limit: None, age: None, recycle: None };
            while !args.is_empty() {
                if args.take_keyword("limit") {
                    r.limit = Some(args.number("limit")?);
                } else if args.take_keyword("age") {
                    r.age = Some(args.number("age")?);
                } else if args.take_keyword("recycle") {
                    r.recycle = Some(true);
                } else if args.take_keyword("norecycle") {
                    r.recycle = Some(false);
                } else {
                    return Err(args.unexpected());
                }
            }
            Ok(Invocation::new::<SetNeighborConfig>(r))
        },
    });
    registry.command(Command {
        path: "show ip neighbor-config",
        syntax: "",
        help: "Shows limits, ages and figures of the neighbor tables",
        parse: |_, _| Ok(Invocation::new::<ShowNeighborConfig>(())),
    });
    registry.command(Command {
        path: "show ip neighbors",
        syntax: "[<if>]",
        help: "Shows neighbors of both families",
        parse: |args, _| parse_show(args, None),
    });
    registry.command(Command {
        path: "show ip4 neighbors",
        syntax: "[<if>]",
        help: "Shows IPv4 neighbors",
        parse: |args, _| parse_show(args, Some(false)),
    });
    registry.command(Command {
        path: "show ip6 neighbors",
        syntax: "[<if>]",
        help: "Shows IPv6 neighbors",
        parse: |args, _| parse_show(args, Some(true)),
    });
    registry.command(Command {
        path: "set interface proxy-arp",
        syntax: "<if> enable|disable",
        help: "Answers ARP requests on an interface for the ranges of `set arp proxy'",
        parse: |args, _| {
            let interface = args.interface()?;
            let on = args.expect_one_of(&[("enable", true), ("disable", false)])?;
            Ok(Invocation::new::<SetProxyArp>(SetProxyArpRequest { interface, on }))
        },
    });
    registry.command(Command {
        path: "set arp proxy",
        syntax: "[add|del] [table-id <id>] start <a> end <a>",
        help: "Adds or removes a range of addresses for which ARP requests are answered",
        parse: |args, _| {
            let mut r = ProxyRangeRequest { table: 0, first: Ipv4Addr::UNSPECIFIED, last: Ipv4Addr::UNSPECIFIED, add: true };
            while !args.is_empty() {
                if args.take_keyword("del") {
                    r.add = false;
                } else if args.take_keyword("add") {
                    r.add = true;
                } else if args.take_keyword("table-id") {
                    r.table = args.number("table-id")?;
                } else if args.take_keyword("start") {
                    r.first = args.ip4("start")?;
                } else if args.take_keyword("end") {
                    r.last = args.ip4("end")?;
                } else {
                    return Err(args.unexpected());
                }
            }
            Ok(Invocation::new::<SetProxyRange>(r))
        },
    });
    registry.command(Command {
        path: "show arp proxy",
        syntax: "",
        help: "Shows the ranges and interfaces of proxy ARP",
        parse: |_, _| Ok(Invocation::new::<ShowProxyArp>(())),
    });
}

fn parse_show(args: &mut Args<'_>, v6: Option<bool>) -> Result<Invocation<Router>, OpError> {
    let interface = if args.is_empty() { None } else { Some(args.interface()?) };
    Ok(Invocation::new::<ShowNeighbors>(ShowNeighborsRequest { interface, v6 }))
}

fn parse_neighbor(args: &mut Args<'_>, _: &Router) -> Result<Invocation<Router>, OpError> {
    let add = !args.take_keyword("del");
    if add {
        args.take_keyword("add");
    }
    let interface = args.interface()?;
    if args.take_keyword("flush") {
        return Ok(Invocation::new::<FlushNeighbors>(FlushRequest { interface }));
    }
    let address = args.ip("neighbor's address")?;
    let mut r = NeighborRequest { interface, address, mac: None, add, permanent: false, no_fib_entry: false, count: 1 };
    r.mac = if add { Some(args.mac("link address")?) } else { args.try_mac() };
    while !args.is_empty() {
        if args.take_keyword("static") {
            r.permanent = true;
        } else if args.take_keyword("no-fib-entry") {
            r.no_fib_entry = true;
        } else if args.take_keyword("count") {
            r.count = args.number_in("count", 1..=COUNT_MAX)?;
        } else {
            return Err(args.unexpected());
        }
    }
    Ok(Invocation::new::<SetNeighbor>(r))
}

fn neighbor_error(error: &NeighborError) -> OpError {
    let (code, key) = match error {
        NeighborError::NoInterface(_) => (retval::INVALID_SW_IF_INDEX, "interface"),
        NeighborError::NoEntry { .. } | NeighborError::NoRange => (retval::NO_SUCH_ENTRY, "address"),
        NeighborError::Address(_) => (retval::INVALID_DST_ADDRESS, "address"),
        NeighborError::Mac(_) => (retval::INVALID_VALUE, "mac"),
        NeighborError::Full(_) => (retval::LIMIT_EXCEEDED, "limit"),
        NeighborError::Range(..) => (retval::INVALID_VALUE, "range"),
        NeighborError::Fib(_) => (retval::UNSPECIFIED, "fib"),
    };
    OpError::new(code, error.to_string()).key(key)
}

/// Sets or removes neighbours.
pub struct SetNeighbor;

/// What [`SetNeighbor`] sets.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NeighborRequest {
    /// Interface.
    pub interface: IfRef,
    /// Address, the first one where there are several.
    pub address: IpAddr,
    /// Link address, for all of them; needed to add.
    pub mac: Option<[u8; 6]>,
    /// Add, or remove.
    pub add: bool,
    /// It stays until it is removed.
    #[serde(default)]
    pub permanent: bool,
    /// No host route for it.
    #[serde(default)]
    pub no_fib_entry: bool,
    /// Addresses in a row.
    #[serde(default = "one")]
    pub count: u32,
}

fn one() -> u32 {
    1
}

/// The address so many further.
fn nth(address: IpAddr, n: u32) -> Option<IpAddr> {
    match address {
        IpAddr::V4(a) => a.to_bits().checked_add(n).map(|b| Ipv4Addr::from_bits(b).into()),
        IpAddr::V6(a) => a.to_bits().checked_add(n.into()).map(|b| std::net::Ipv6Addr::from_bits(b).into()),
    }
}

impl Operation<Router> for SetNeighbor {
    const NAME: &'static str = "ip_neighbor_set";
    type Request = NeighborRequest;
    type Reply = ();

    fn run(router: &mut Router, r: NeighborRequest) -> Result<Outcome<Router, ()>, OpError> {
        let interface = resolve(router, &r.interface)?;
        let mac = match (r.add, r.mac) {
            (true, None) => return Err(OpError::unspecified("which link address?").key("mac")),
            (_, mac) => MacAddr(mac.unwrap_or_default()),
        };
        let addresses: Option<Vec<IpAddr>> = (0..r.count.min(COUNT_MAX)).map(|n| nth(r.address, n)).collect();
        let past = || OpError::invalid("count", r.count, "the addresses run past the end of the family");
        for (done, address) in addresses.ok_or_else(past)?.into_iter().enumerate() {
            let result = if r.add {
                router.add_neighbor(interface, address, mac, r.permanent, r.no_fib_entry)
            } else {
                router.remove_neighbor(interface, address)
            };
            if let Err(error) = result {
                // A row that cannot be completed is taken back: all or none.
                if r.add {
                    for n in 0..done as u32 {
                        let _ = nth(r.address, n).map(|a| router.remove_neighbor(interface, a));
                    }
                }
                return Err(neighbor_error(&error).value(address));
            }
        }
        Ok(Outcome::Done(()))
    }
}

/// Forgets dynamic neighbours.
pub struct FlushNeighbors;

/// Which interface [`FlushNeighbors`] empties.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlushRequest {
    /// Interface.
    pub interface: IfRef,
}

impl Operation<Router> for FlushNeighbors {
    const NAME: &'static str = "ip_neighbor_flush";
    type Request = FlushRequest;
    type Reply = ();

    fn run(router: &mut Router, r: FlushRequest) -> Result<Outcome<Router, ()>, OpError> {
        let interface = resolve(router, &r.interface)?;
        for family in [FamilyId::V4, FamilyId::V6] {
            router.flush_neighbors(family, Some(interface));
        }
        Ok(Outcome::Done(()))
    }
}

/// Shows neighbours.
pub struct ShowNeighbors;

/// Which neighbours [`ShowNeighbors`] shows.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ShowNeighborsRequest {
    /// Of one interface.
    pub interface: Option<IfRef>,
    /// Of one family: IPv6, or not.
    pub v6: Option<bool>,
}

/// A neighbour as shown.
#[derive(Debug, Clone, Serialize)]
pub struct NeighborLine {
    /// Seconds since it was last heard of.
    pub age_s: f64,
    /// Address.
    pub address: IpAddr,
    /// VPP's letters: S static, D dynamic, N no FIB entry, P pending, A stale.
    pub flags: String,
    /// Link address, where known.
    pub mac: Option<String>,
    /// Interface.
    pub interface: String,
}

/// The answer of [`ShowNeighbors`].
#[derive(Debug, Clone, Serialize)]
pub struct NeighborList {
    /// IPv4 first, then IPv6.
    pub neighbors: Vec<NeighborLine>,
}

impl Text for NeighborList {
    fn text(&self, out: &mut String, _: &View) {
        if self.neighbors.is_empty() {
            return;
        }
        let table = TextTable::new()
            .column("Age", 12, Align::Right)
            .column("IP", 40, Align::Centre)
            .column("Flags", 6, Align::Centre)
            .column("Ethernet", 20, Align::Centre)
            .column("Interface", 24, Align::Left);
        table.heading(out);
        let table = table.trim();
        for n in &self.neighbors {
            let age = format!("{:.4}", n.age_s);
            let age = age.strip_prefix('0').unwrap_or(&age).to_owned();
            let mac = n.mac.as_deref().unwrap_or("00:00:00:00:00:00");
            table.row(out, &[&age, &n.address, &n.flags, &mac, &n.interface]);
        }
    }
}

impl Operation<Router> for ShowNeighbors {
    const NAME: &'static str = "ip_neighbors_show";
    type Request = ShowNeighborsRequest;
    type Reply = NeighborList;

    fn run(router: &mut Router, r: ShowNeighborsRequest) -> Result<Outcome<Router, NeighborList>, OpError> {
        let only = r.interface.map(|name| resolve(router, &name)).transpose()?;
        let now = router.graph.clock().timer_now();
        let mut neighbors = Vec::new();
        for (family, v6) in [(FamilyId::V4, false), (FamilyId::V6, true)] {
            if r.v6.is_some_and(|wanted| wanted != v6) {
                continue;
            }
            for n in router.neighbors(family).into_iter().filter(|n| only.is_none_or(|i| i == n.interface)) {
                let letter = match n.state {
                    State::Permanent => "S",
                    State::Incomplete => "P",
                    State::Stale => "DA",
                    _ => "D",
                };
                let no_fib = if n.no_fib_entry { "N" } else { "" };
                neighbors.push(NeighborLine {
                    age_s: now.saturating_sub(n.heard) as f64 / 1e9,
                    address: n.address,
                    flags: format!("{letter}{no_fib}"),
                    mac: n.mac.map(|m| m.to_string()),
                    interface: router.interfaces.name(n.interface),
                });
            }
        }
        Ok(Outcome::Done(NeighborList { neighbors }))
    }
}

/// Sets limits and ages.
pub struct SetNeighborConfig;

/// What [`SetNeighborConfig`] sets; what is absent stays.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetNeighborConfigRequest {
    /// IPv6, or IPv4.
    pub v6: bool,
    /// Most dynamic entries; 0: no limit.
    #[serde(default)]
    pub limit: Option<u32>,
    /// Seconds after which a silent entry is probed and removed; 0: never.
    #[serde(default)]
    pub age: Option<u32>,
    /// A new entry takes the place of the oldest where the limit is reached.
    #[serde(default)]
    pub recycle: Option<bool>,
}

impl Operation<Router> for SetNeighborConfig {
    const NAME: &'static str = "ip_neighbor_config_set";
    type Request = SetNeighborConfigRequest;
    type Reply = ();

    fn run(router: &mut Router, r: SetNeighborConfigRequest) -> Result<Outcome<Router, ()>, OpError> {
        let family = if r.v6 { FamilyId::V6 } else { FamilyId::V4 };
        let mut config = router.neighbor_config(family);
        config.limit = r.limit.unwrap_or(config.limit);
        config.age = r.age.unwrap_or(config.age);
        config.recycle = r.recycle.unwrap_or(config.recycle);
        router.set_neighbor_config(family, config);
        Ok(Outcome::Done(()))
    }
}

/// Shows limits, ages and figures.
pub struct ShowNeighborConfig;

/// A family's settings and figures.
#[derive(Debug, Clone, Serialize)]
pub struct NeighborConfigLine {
    /// `ip4` or `ip6`.
    pub family: &'static str,
    /// Most dynamic entries.
    pub limit: u32,
    /// Seconds until a silent entry is probed.
    pub age_s: u32,
    /// Oldest makes room.
    pub recycle: bool,
    /// Entries now.
    pub entries: usize,
    /// Of them without an answer.
    pub pending: usize,
    /// Refused at the limit.
    pub refused: u64,
    /// Made room for others.
    pub recycled: u64,
    /// Did not answer.
    pub lost: u64,
    /// Duplicates of own addresses.
    pub conflicts: u64,
}

impl Text for NeighborConfigLine {
    fn text(&self, out: &mut String, _: &View) {
        let recycle = if self.recycle { "recycle" } else { "norecycle" };
        let _ = writeln!(out, "{}:\n  limit:{}, age:{}, {recycle}", self.family, self.limit, self.age_s);
        let _ = writeln!(
            out,
            "  entries:{}, pending:{}, refused:{}, recycled:{}, lost:{}, conflicts:{}",
            self.entries, self.pending, self.refused, self.recycled, self.lost, self.conflicts
        );
    }
}

impl Operation<Router> for ShowNeighborConfig {
    const NAME: &'static str = "ip_neighbor_config_show";
    type Request = ();
    type Reply = Vec<NeighborConfigLine>;

    fn run(router: &mut Router, (): ()) -> Result<Outcome<Router, Vec<NeighborConfigLine>>, OpError> {
        let line = |(family, name)| {
            let (config, figures) = (router.neighbor_config(family), router.neighbor_figures(family));
            NeighborConfigLine {
                family: name,
                limit: config.limit,
                age_s: config.age,
                recycle: config.recycle,
                entries: figures.entries,
                pending: figures.pending,
                refused: figures.refused,
                recycled: figures.recycled,
                lost: figures.lost,
                conflicts: figures.conflicts,
            }
        };
        Ok(Outcome::Done([(FamilyId::V4, "ip4"), (FamilyId::V6, "ip6")].into_iter().map(line).collect()))
    }
}

/// Switches proxy ARP on an interface.
pub struct SetProxyArp;

/// What [`SetProxyArp`] switches.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetProxyArpRequest {
    /// Interface.
    pub interface: IfRef,
    /// On.
    pub on: bool,
}

impl Operation<Router> for SetProxyArp {
    const NAME: &'static str = "proxy_arp_set";
    type Request = SetProxyArpRequest;
    type Reply = ();

    fn run(router: &mut Router, r: SetProxyArpRequest) -> Result<Outcome<Router, ()>, OpError> {
        let interface = resolve(router, &r.interface)?;
        router.set_proxy_arp(interface, r.on).map_err(|e| neighbor_error(&e))?;
        Ok(Outcome::Done(()))
    }
}

/// Adds or removes a range of proxy ARP.
pub struct SetProxyRange;

/// The range of [`SetProxyRange`].
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProxyRangeRequest {
    /// Table.
    #[serde(default)]
    pub table: u32,
    /// First address.
    pub first: Ipv4Addr,
    /// Last address.
    pub last: Ipv4Addr,
    /// Add, or remove.
    pub add: bool,
}

impl Operation<Router> for SetProxyRange {
    const NAME: &'static str = "proxy_arp_range_set";
    type Request = ProxyRangeRequest;
    type Reply = ();

    fn run(router: &mut Router, r: ProxyRangeRequest) -> Result<Outcome<Router, ()>, OpError> {
        let range = ProxyRange { table: r.table, first: r.first, last: r.last };
        router.set_proxy_range(range, r.add).map_err(|e| neighbor_error(&e))?;
        Ok(Outcome::Done(()))
    }
}

/// Shows proxy ARP.
pub struct ShowProxyArp;

/// The answer of [`ShowProxyArp`].
#[derive(Debug, Clone, Serialize)]
pub struct ProxyArp {
    /// Ranges: table, first and last address.
    pub ranges: Vec<(u32, Ipv4Addr, Ipv4Addr)>,
    /// Interfaces that answer.
    pub interfaces: Vec<String>,
}

impl Text for ProxyArp {
    fn text(&self, out: &mut String, _: &View) {
        for (table, first, last) in &self.ranges {
            let _ = writeln!(out, "Table {table}, {first} - {last}");
        }
        for interface in &self.interfaces {
            let _ = writeln!(out, "{interface}");
        }
    }
}

impl Operation<Router> for ShowProxyArp {
    const NAME: &'static str = "proxy_arp_show";
    type Request = ();
    type Reply = ProxyArp;

    fn run(router: &mut Router, (): ()) -> Result<Outcome<Router, ProxyArp>, OpError> {
        let ranges = router.proxy_ranges().iter().map(|r| (r.table, r.first, r.last)).collect();
        let on = router.interfaces.iter().filter(|i| router.proxy_arp(i.index));
        Ok(Outcome::Done(ProxyArp { ranges, interfaces: on.map(|i| i.name.clone()).collect() }))
    }
}

#[cfg(test)]
mod tests {
    use quiver_net::testing::Harness;

    fn run(h: &mut Harness, line: &str) -> String {
        crate::ops::testing::run(&mut h.router, line)
    }

    fn router() -> Harness {
        let mut h = Harness::new();
        for line in [
            "create packet-generator interface pg0",
            "set interface state pg0 up",
            "set interface ip address pg0 10.0.0.1/24",
            "set interface ip address pg0 2001:db8::1/64",
        ] {
            run(&mut h, line);
        }
        h
    }

    #[test]
    fn neighbors_are_added_queried_removed_and_queried_again() {
        let mut h = router();
        assert_eq!(run(&mut h, "show ip neighbors"), "");
        run(&mut h, "set ip neighbor pg0 10.0.0.2 02:00:00:00:00:02 static");
        run(&mut h, "ip neighbor pg0 2001:db8::2 0200.0000.0003");
        let text = run(&mut h, "show ip neighbors");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "     Age                       IP                    Flags      Ethernet              Interface       "
        );
        assert!(lines[1].ends_with("                10.0.0.2                   S    02:00:00:00:00:02 pg0"), "{text}");
        assert!(lines[2].ends_with("              2001:db8::2                DA    02:00:00:00:00:03 pg0"), "{text}");
        assert_eq!(run(&mut h, "show ip4 neighbors pg0").lines().count(), 2);
        assert_eq!(run(&mut h, "show ip6 neighbors").lines().count(), 2);
        run(&mut h, "ip neighbor pg0 10.0.0.10 02:00:00:00:00:0a count 20");
        assert_eq!(run(&mut h, "show ip4 neighbors").lines().count(), 22);
        run(&mut h, "ip neighbor pg0 flush");
        assert_eq!(run(&mut h, "show ip neighbors").lines().count(), 2, "the static one stays");
        run(&mut h, "ip neighbor del pg0 10.0.0.2 02:00:00:00:00:02");
        assert_eq!(run(&mut h, "show ip neighbors"), "");
    }

    #[test]
    fn settings_and_proxies_are_shown_as_set() {
        let mut h = router();
        run(&mut h, "set ip neighbor-config ip4 limit 10 age 30 recycle");
        assert!(run(&mut h, "show ip neighbor-config").starts_with("ip4:\n  limit:10, age:30, recycle\n"));
        run(&mut h, "set arp proxy start 192.0.2.1 end 192.0.2.9");
        run(&mut h, "set interface proxy-arp pg0 enable");
        assert_eq!(run(&mut h, "show arp proxy"), "Table 0, 192.0.2.1 - 192.0.2.9\npg0\n");
        run(&mut h, "set arp proxy del start 192.0.2.1 end 192.0.2.9");
        run(&mut h, "set interface proxy-arp pg0 disable");
        assert_eq!(run(&mut h, "show arp proxy"), "");
    }

    #[test]
    fn mistakes_are_one_line_and_change_nothing() {
        let mut h = router();
        for (line, expected) in [
            ("set ip neighbor pg9 10.0.0.2 02:00:00:00:00:02", "unknown interface"),
            ("set ip neighbor pg0 10.0.0.2", "link address"),
            ("set ip neighbor pg0 10.0.0.2 03:00:00:00:00:02", "unicast"),
            ("set ip neighbor pg0 224.0.0.1 02:00:00:00:00:02", "neighbor's address"),
            ("ip neighbor del pg0 10.0.0.9 02:00:00:00:00:02", "no neighbor"),
            ("ip neighbor pg0 255.255.255.250 02:00:00:00:00:02 count 20", ""),
            ("set arp proxy start 192.0.2.9 end 192.0.2.1", "ends before"),
            ("set arp proxy del start 192.0.2.1 end 192.0.2.9", "no such"),
        ] {
            let error = crate::ops::testing::error(&mut h.router, line);
            assert!(error.contains(expected) && !error.contains('\n'), "{line}: {error}");
        }
        assert_eq!(run(&mut h, "show ip neighbors"), "");
    }
}
