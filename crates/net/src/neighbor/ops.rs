//! Neighbours and ARP: `ip neighbor`, limits, proxy ARP, and what is shown of them.

pub mod arping;
mod configuration;
mod show;

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use quiver_command::grammar::{Args, Command, IfRef};
use quiver_command::operation::{Access, Invocation, Job, OpError, Operation, Outcome, Registry, Step, retval};
use quiver_command::request;
use quiver_command::request::Execute;
use quiver_wire::MacAddr;
use serde::{Deserialize, Serialize};

use crate::fib::ops::Family;
use crate::interface::ops::resolve;
use crate::neighbor::{NeighborError, ProxyRange};
use crate::{IfIndex, Router};

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.operation::<SetNeighbor>().declare::<FlushNeighbors>().declare::<SetConfig>();
    registry.declare::<SetProxyRange>().declare::<SetProxyArp>();
    for path in ["ip neighbor", "set ip neighbor"] {
        registry.command_of::<SetNeighbor>(Command {
            path,
            syntax: "[del] <if> [<ip>] [<mac>] [static] [no-fib-entry] [count <n>] [flush]",
            help: "Adds a neighbor, removes one, or removes all dynamic ones of an interface; IPv4 and IPv6",
            parse: parse_neighbor,
        });
    }
    arping::register(registry);
    configuration::register(registry);
    show::register(registry);
}

fn parse_neighbor(args: &mut Args<'_>, _: &Router) -> Result<Invocation<Router>, OpError> {
    let (mut address, mut mac, mut count) = (None, None, 1);
    let (mut permanent, mut no_fib_entry, mut flush, mut remove) = (false, false, false, false);
    // VPP takes the words in any order.
    loop {
        match () {
            () if args.take_keyword("static") => permanent = true,
            () if args.take_keyword("no-fib-entry") => no_fib_entry = true,
            () if args.take_keyword("del") => remove = true,
            () => break,
        }
    }
    let interface = args.interface()?;
    while !args.is_empty() {
        if args.take_keyword("static") {
            permanent = true;
        } else if args.take_keyword("no-fib-entry") {
            no_fib_entry = true;
        } else if args.take_keyword("count") {
            count = args.number_in("count", 1..=u64::from(u32::MAX))?;
        } else if args.take_keyword("flush") {
            flush = true;
        } else if args.take_keyword("del") {
            remove = true;
        } else if let Some(ip) = args.try_ip() {
            address = Some(ip);
        } else if let Some(m) = args.try_mac() {
            mac = Some(MacAddr(m));
        } else {
            return Err(args.unexpected());
        }
    }
    if flush {
        return Ok(Invocation::new::<FlushNeighbors>(FlushNeighbors { interface: Some(interface), family: None }));
    }
    let address = address.ok_or_else(|| args.missing("address"))?;
    let mac = mac.map(|m| m.to_string());
    let request = SetNeighborRequest { interface, address, mac, permanent, no_fib_entry, count, remove };
    Ok(Invocation::new::<SetNeighbor>(request))
}

/// A neighbour error as an operation's error.
impl From<NeighborError> for OpError {
    fn from(error: NeighborError) -> Self {
        let (code, key) = match &error {
            NeighborError::NoInterface(_) => (retval::INVALID_SW_IF_INDEX, "interface"),
            NeighborError::NoEntry { .. } => (retval::NO_SUCH_ENTRY, "address"),
            NeighborError::Address(_) => (retval::INVALID_VALUE, "address"),
            NeighborError::Mac(_) => (retval::INVALID_VALUE_2, "mac"),
            NeighborError::Full(_) => (retval::LIMIT_EXCEEDED, "limit"),
            NeighborError::Range(..) => (retval::INVALID_VALUE, "end"),
            NeighborError::NoRange => (retval::NO_SUCH_ENTRY, "start"),
            NeighborError::Fib(error) => return error.clone().into(),
        };
        let wrapped = OpError::new(code, error.to_string()).key(key);
        match &error {
            NeighborError::Full(_) => wrapped.remedy("see `set ip neighbor-config'"),
            _ => wrapped,
        }
    }
}

/// Adds or removes neighbours.
pub struct SetNeighbor;

fn one() -> u64 {
    1
}

/// What [`SetNeighbor`] changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetNeighborRequest {
    /// Interface.
    pub interface: IfRef,
    /// Address; the first of them.
    pub address: IpAddr,
    /// MAC address; not needed for removal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// Never aged, never asked, whatever is heard.
    #[serde(default)]
    pub permanent: bool,
    /// Without a host route.
    #[serde(default)]
    pub no_fib_entry: bool,
    /// How many in a row, addresses and MAC addresses counting up.
    #[serde(default = "one")]
    pub count: u64,
    /// Remove instead of add.
    #[serde(default)]
    pub remove: bool,
}

/// Neighbours that are being added or removed.
struct Many {
    interface: IfIndex,
    address: IpAddr,
    mac: MacAddr,
    request: SetNeighborRequest,
    done: u64,
    cancelled: bool,
}

fn next(address: IpAddr) -> Option<IpAddr> {
    match address {
        IpAddr::V4(a) => a.to_bits().checked_add(1).map(|n| Ipv4Addr::from_bits(n).into()),
        IpAddr::V6(a) => a.to_bits().checked_add(1).map(|n| std::net::Ipv6Addr::from_bits(n).into()),
    }
}

impl Many {
    fn next(&mut self, router: &mut Router) -> Result<(), OpError> {
        let SetNeighborRequest { permanent, no_fib_entry, remove, .. } = self.request;
        let result = if remove {
            router.remove_neighbor(self.interface, self.address)
        } else {
            router.add_neighbor(self.interface, self.address, self.mac, permanent, no_fib_entry)
        };
        result.map_err(|e| match self.done {
            0 => OpError::from(e),
            n => OpError::from(e).remedy(format!("{n} neighbors before it were changed")),
        })?;
        self.done += 1;
        if self.done < self.request.count {
            self.address = next(self.address)
                .ok_or_else(|| OpError::new(retval::INVALID_VALUE, "the address space ends here").key("count"))?;
            self.mac = MacAddr::from_u64(self.mac.to_u64() + 1);
        }
        Ok(())
    }
}

impl Job<Router, ()> for Many {
    fn step(&mut self, router: &mut Router, budget: Duration) -> Step<()> {
        let start = Instant::now();
        while self.done < self.request.count {
            if self.cancelled {
                return Step::Done(Err(OpError::unspecified(format!("stopped after {} neighbors", self.done))));
            }
            if let Err(error) = self.next(router) {
                return Step::Done(Err(error));
            }
            if start.elapsed() >= budget {
                return Step::Again;
            }
        }
        Step::Done(Ok(()))
    }

    fn exclusive(&self) -> bool {
        true
    }

    fn cancel(&mut self, _: &mut Router) {
        self.cancelled = true;
    }
}

impl Operation<Router> for SetNeighbor {
    const NAME: &'static str = "ip_neighbor_add_del";
    const ACCESS: Access = Access::Change;
    type Request = SetNeighborRequest;
    type Reply = ();

    fn run(router: &mut Router, request: SetNeighborRequest) -> Result<Outcome<Router, ()>, OpError> {
        let interface = resolve(router, &request.interface)?;
        let mac = match &request.mac {
            Some(text) => text.parse().map_err(|e| OpError::invalid("mac", text, format!("{e}")))?,
            None if request.remove => MacAddr::ZERO,
            None => return Err(OpError::new(retval::INVALID_ARGUMENT, "missing MAC address").key("mac")),
        };
        let mut many = Many { interface, address: request.address, mac, request, done: 0, cancelled: false };
        if many.request.count > 1 {
            return Ok(Outcome::job(many));
        }
        many.next(router)?;
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Removes dynamic neighbours.
    pub change FlushNeighbors "ip_neighbor_flush" [] {
        /// Of this interface only.
        pub interface: Option<IfRef> = "",
        /// Of this family only.
        pub family: Option<Family> = "",
    }
}

impl Execute<Router> for FlushNeighbors {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let interface = self.interface.as_ref().map(|i| resolve(router, i)).transpose()?;
        for family in [Family::Ip4, Family::Ip6] {
            if self.family.is_none_or(|f| f == family) {
                router.flush_neighbors(family.into(), interface);
            }
        }
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Sets how many dynamic neighbors there may be in all and on an interface, when unused ones are forgotten and silent ones asked,
    /// whether own addresses are announced, how many packets wait for a neighbor, and when they ask for it again.
    pub change SetConfig "ip_neighbor_config" ["set ip neighbor-config"] {
        /// Family.
        pub family: Family = "ip4|ip6",
        /// Most dynamic neighbours; 0: no limit.
        pub limit: Option<u32> = "limit <n>",
        /// Most dynamic neighbours of one interface; 0: no limit of its own.
        pub interface_limit: Option<u32> = "interface-limit <n>",
        /// Seconds after which a silent neighbour is asked; 0: only those in use.
        pub age: Option<u32> = "age <s>",
        /// Seconds after which a learned neighbour that nobody uses is forgotten; 0: never.
        pub unused: Option<u32> = "unused <s>",
        /// Whether a new one takes the place of the oldest.
        pub recycle: Option<bool> = "recycle|norecycle",
        /// Whether those in use are asked whether they are still there.
        pub probe: Option<bool> = "probe|noprobe",
        /// Whether addresses of ours are announced without being asked for, and defended when another host uses them.
        pub announce: Option<bool> = "announce|noannounce",
        /// Packets held for a neighbour that was asked for.
        pub hold: Option<u32> = "hold <n>" range(0..=64),
        /// Milliseconds after which packets for a neighbour that does not answer ask again; 0: they do not.
        pub request_interval: Option<u32> = "request-interval <ms>" range(0..=60_000),
    }
}

impl Execute<Router> for SetConfig {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let family = self.family.into();
        let mut config = router.neighbor_config(family);
        config.limit = self.limit.unwrap_or(config.limit);
        config.interface_limit = self.interface_limit.unwrap_or(config.interface_limit);
        config.unused = self.unused.unwrap_or(config.unused);
        config.age = self.age.unwrap_or(config.age);
        config.recycle = self.recycle.unwrap_or(config.recycle);
        config.probe = self.probe.unwrap_or(config.probe);
        config.announce = self.announce.unwrap_or(config.announce);
        config.hold = self.hold.unwrap_or(config.hold);
        config.request_interval = self.request_interval.unwrap_or(config.request_interval);
        router.set_neighbor_config(family, config);
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Adds or removes addresses for which ARP requests are answered in the place of others.
    pub change SetProxyRange "proxy_arp_add_del" ["set arp proxy"] {
        /// Remove instead of add.
        pub remove: bool = "del",
        /// Table.
        pub table: u32 = "table-id <id>" default(0),
        /// First address.
        pub start: Ipv4Addr = "start <addr>",
        /// Last address.
        pub end: Ipv4Addr = "end <addr>",
    }
}

impl Execute<Router> for SetProxyRange {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let Self { table, start, end, remove } = self;
        if router.route_lookup(table, start.into()).is_none() {
            return Err(OpError::new(retval::NO_SUCH_FIB, format!("Nonexistent table id {table}")).key("table-id"));
        }
        router.set_proxy_range(ProxyRange { table, first: start, last: end }, !remove)?;
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Switches answers for the ranges of `set arp proxy' on an interface.
    pub change SetProxyArp "proxy_arp_intfc_enable_disable" ["set interface proxy-arp"] {
        /// Interface.
        pub interface: IfRef = "<if>",
        /// On or off.
        pub enable: bool = "enable|disable" required(),
    }
}

impl Execute<Router> for SetProxyArp {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let index = resolve(router, &self.interface)?;
        router.set_proxy_arp(index, self.enable)?;
        Ok(Outcome::Done(()))
    }
}

#[cfg(test)]
mod tests;
