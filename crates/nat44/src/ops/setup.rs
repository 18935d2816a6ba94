//! Plugin, interfaces, pools, forwarding, timeouts, limits.

use std::net::Ipv4Addr;

use quiver_command::grammar::IfRef;
use quiver_command::operation::{OpError, Outcome, Registry, Text, View};
use quiver_command::request;
use quiver_command::request::{Execute, Request as _};
use quiver_net::Router;
use serde::Serialize;

use super::resolve;
use crate::config::Side;
use crate::control::{self, Enabled, Nat, PoolSpec, SESSIONS_DEFAULT};
use crate::table::Timeouts;

pub(super) fn register(registry: &mut Registry<Router>) {
    registry.declare::<Enable>().declare::<Disable>().declare::<SetInterface>().declare::<SetPool>();
    registry.declare::<SetPoolInterface>().declare::<SetForwarding>().declare::<SetTimeouts>().declare::<SetLimit>();
    registry.declare::<SetNonSyn>().declare::<ShowNonSyn>();
}

request! {
    /// Switches NAT44 on, with so many sessions for each thread.
    pub change Enable "nat44_plugin_enable" ["nat44 plugin enable"] {
        /// Most sessions of a thread.
        pub sessions: u32 = "sessions <n>" default(SESSIONS_DEFAULT),
        /// Table of the inside.
        pub inside_vrf: u32 = "inside-vrf <id>" default(0),
        /// Table of the outside.
        pub outside_vrf: u32 = "outside-vrf <id>" default(0),
    }
}

impl Execute<Router> for Enable {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let what = Enabled { sessions: self.sessions, vrfs: (self.inside_vrf, self.outside_vrf) };
        control::enable(router, what)?;
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Switches NAT44 off with all its configuration.
    pub change Disable "nat44_plugin_disable" ["nat44 plugin disable"] {}
}

impl Execute<Router> for Disable {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        control::disable(router)?;
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Makes interfaces inside or outside (with output-feature: outside of all others), or neither.
    pub change SetInterface "nat44_interface_set" ["set interface nat44"] {
        /// Interfaces inside.
        pub inside: Vec<IfRef> = "in <if>",
        /// Interfaces outside.
        pub outside: Vec<IfRef> = "out <if>",
        /// Those outside are so for all others, wherever packets come from.
        pub output_feature: bool = "output-feature",
        /// Take them from there.
        pub remove: bool = "del",
    }
}

impl Execute<Router> for SetInterface {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        if self.inside.is_empty() && self.outside.is_empty() {
            return Err(Self::incomplete("interface"));
        }
        let sides = [(&self.inside, Side { inside: true, outside: false }), (&self.outside, Side { inside: false, outside: true })];
        let mut todo = Vec::new();
        for (names, side) in sides {
            for name in names {
                todo.push((resolve(router, name)?, side));
            }
        }
        for (index, side) in todo {
            if self.output_feature && side.outside {
                control::set_output(router, index, !self.remove)?;
                continue;
            }
            control::set_interface(router, index, side, !self.remove)?;
        }
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Adds addresses to the pool, or takes them out with their sessions.
    pub change SetPool "nat44_address_set" ["nat44 add address"] {
        /// First address.
        pub first: Ipv4Addr = "<ip4>" name("address"),
        /// Last address; the first where there is none.
        pub last: Option<Ipv4Addr> = "- <ip4>" name("last address"),
        /// Table whose hosts they are for; all where there is none.
        pub tenant_vrf: Option<u32> = "tenant-vrf <id>",
        /// For sources from outside.
        pub twice_nat: bool = "twice-nat",
        /// A port of them belongs to one inside endpoint, whatever it speaks to.
        pub endpoint_independent: bool = "endpoint-independent",
        /// Take them out.
        pub remove: bool = "del",
    }
}

impl Execute<Router> for SetPool {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let spec =
            PoolSpec { addr: self.first, vrf: self.tenant_vrf, twice: self.twice_nat, independent: self.endpoint_independent };
        let last = self.last.unwrap_or(self.first);
        control::set_pool(router, spec, last, !self.remove)?;
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Puts the address of an interface into the pool, whatever it is at the time.
    pub change SetPoolInterface "nat44_interface_address_set" ["nat44 add interface address"] {
        /// Interface.
        pub interface: IfRef = "<if>",
        /// For sources from outside.
        pub twice_nat: bool = "twice-nat",
        /// Take it out.
        pub remove: bool = "del",
    }
}

impl Execute<Router> for SetPoolInterface {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let index = resolve(router, &self.interface)?;
        control::set_pool_interface(router, index, self.twice_nat, !self.remove)?;
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Passes packets from outside that belong to no session, or drops them.
    pub change SetForwarding "nat44_forwarding_set" ["nat44 forwarding"] {
        /// On.
        pub enable: bool = "enable|disable" required(),
    }
}

impl Execute<Router> for SetForwarding {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        control::set(router, |config| config.forwarding = self.enable)?;
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Drops TCP packets without SYN that belong to no session, or lets them begin one.
    pub change SetNonSyn "nat44_tcp_non_syn_set" ["nat44 tcp-non-syn"] {
        /// They begin sessions; else they are dropped.
        pub translate: bool = "translate|drop" required(),
    }
}

impl Execute<Router> for SetNonSyn {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        control::set(router, |config| config.non_syn = self.translate)?;
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Shows what becomes of TCP packets without SYN that belong to no session.
    pub read ShowNonSyn "nat44_tcp_non_syn_show" ["show nat44 tcp-non-syn"] {}
}

/// The answer of [`ShowNonSyn`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct NonSynInfo {
    /// They begin sessions; else they are dropped.
    pub translate: bool,
}

impl Text for NonSynInfo {
    fn text(&self, out: &mut String, _: &View) {
        out.push_str(if self.translate { "tcp-non-syn translate\n" } else { "tcp-non-syn drop\n" });
    }
}

impl Execute<Router> for ShowNonSyn {
    type Reply = NonSynInfo;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, NonSynInfo>, OpError> {
        let translate = router.part::<Nat>().is_some_and(|nat| nat.config.non_syn);
        Ok(Outcome::Done(NonSynInfo { translate }))
    }
}

request! {
    /// Sets how long sessions live without a packet, in seconds.
    pub change SetTimeouts "nat_timeouts_set" ["set nat timeout"] {
        /// UDP.
        pub udp: Option<u32> = "udp <s>" range(1..=1_000_000),
        /// Open TCP connections.
        pub tcp_established: Option<u32> = "tcp-established <s>" range(1..=1_000_000),
        /// TCP connections being opened or closed.
        pub tcp_transitory: Option<u32> = "tcp-transitory <s>" range(1..=1_000_000),
        /// ICMP queries.
        pub icmp: Option<u32> = "icmp <s>" range(1..=1_000_000),
        /// All to what they are at first.
        pub reset: bool = "reset",
    }
}

impl Execute<Router> for SetTimeouts {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        if !self.reset && [self.udp, self.tcp_established, self.tcp_transitory, self.icmp].iter().all(Option::is_none) {
            return Err(Self::incomplete("timeout"));
        }
        let old = if self.reset { Timeouts::default() } else { control::timeouts(router) };
        let timeouts = Timeouts {
            udp: self.udp.unwrap_or(old.udp),
            tcp_established: self.tcp_established.unwrap_or(old.tcp_established),
            tcp_transitory: self.tcp_transitory.unwrap_or(old.tcp_transitory),
            icmp: self.icmp.unwrap_or(old.icmp),
        };
        control::set(router, |config| config.timeouts = timeouts)?;
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Sets how many sessions one host may have, or the hosts of a table on each thread; 0: no limit.
    pub change SetLimit "nat44_session_limit_set" ["set nat44 session limit"] {
        /// Sessions; 0: no limit.
        pub limit: u32 = "<n>" name("limit"),
        /// The table whose hosts have the limit, all together on each thread; without one it is each host's.
        pub vrf: Option<u32> = "vrf <id>",
    }
}

impl Execute<Router> for SetLimit {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let SetLimit { limit, vrf } = self;
        let set = match vrf {
            Some(table) => control::set_table_limit(router, table, limit),
            None => control::set(router, |config| config.host_limit = limit),
        };
        set?;
        Ok(Outcome::Done(()))
    }
}
