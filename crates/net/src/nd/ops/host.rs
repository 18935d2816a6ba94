//! `ip6 nd address autoconfig`, and what was learned by it.

use std::fmt::Write as _;
use std::net::Ipv6Addr;

use quiver_command::grammar::IfRef;
use quiver_command::operation::{OpError, Outcome, Registry, Text, View, retval};
use quiver_command::request;
use quiver_command::request::Execute;
use serde::Serialize;

use crate::interface::ops::resolve;
use crate::nd::{AutoconfigConfig, HostError};
use crate::{IfIndex, Router};

pub(super) fn register(registry: &mut Registry<Router>) {
    registry.declare::<SetAutoconfig>().declare::<ShowAutoconfig>();
}

/// An error of the host's side as an operation's.
impl From<HostError> for OpError {
    fn from(error: HostError) -> Self {
        let code = match &error {
            HostError::NoInterface(_) => retval::INVALID_SW_IF_INDEX,
            HostError::NoLinkLayer(_) => retval::INVALID_INTERFACE,
            HostError::NoIp6(_) => retval::IP6_NOT_ENABLED,
            HostError::Address(_) => retval::INVALID_VALUE,
        };
        OpError::new(code, error.to_string()).key("interface")
    }
}

request! {
    /// Has an interface take addresses, and the default route, from the advertisements of routers; `disable' ends that.
    pub change SetAutoconfig "ip6_nd_address_autoconfig" ["ip6 nd address autoconfig"] {
        /// Interface.
        pub interface: IfRef = "<if>",
        /// The default route, too.
        pub default_route: bool = "default-route",
        /// Takes nothing any more, and gives up what it has.
        pub disable: bool = "disable",
    }
}

impl Execute<Router> for SetAutoconfig {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let index = resolve(router, &self.interface)?;
        let config = (!self.disable).then_some(AutoconfigConfig { default_route: self.default_route });
        router.set_autoconfig(index, config)?;
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Shows what interfaces have learned from the advertisements of routers: addresses, routers, and for how long.
    pub read ShowAutoconfig "ip6_nd_address_autoconfig_show" ["show ip6 nd autoconfig"] {
        /// This one; else all that learn.
        pub interface: Option<IfRef> = "<if>",
    }
}

/// An address as shown.
#[derive(Debug, Clone, Serialize)]
pub struct LearnedReply {
    /// Address.
    pub address: Ipv6Addr,
    /// Length of the link's prefix; 128 where that is not on the link.
    pub len: u8,
    /// Seconds until it is removed; none: never.
    pub valid_s: Option<u64>,
    /// Seconds until it is deprecated; none: never.
    pub preferred_s: Option<u64>,
}

/// A router as shown.
#[derive(Debug, Clone, Serialize)]
pub struct RouterReply {
    /// Address.
    pub address: Ipv6Addr,
    /// Table with the default route.
    pub table: u32,
    /// `high`, `medium` or `low`.
    pub preference: &'static str,
    /// Seconds for which it is a router.
    pub lifetime_s: u64,
}

/// An interface as shown.
#[derive(Debug, Clone, Serialize)]
pub struct AutoconfigReply {
    /// Name.
    pub interface: String,
    /// Routers make a default route.
    pub default_route: bool,
    /// Whether routers are being solicited.
    pub soliciting: bool,
    /// Addresses.
    pub addresses: Vec<LearnedReply>,
    /// Routers.
    pub routers: Vec<RouterReply>,
}

fn lifetime(seconds: Option<u64>) -> String {
    seconds.map_or("infinite".into(), |s| s.to_string())
}

impl Text for AutoconfigReply {
    fn text(&self, out: &mut String, _view: &View) {
        let what = if self.default_route { "addresses and default route" } else { "addresses" };
        let soliciting = if self.soliciting { ", soliciting routers" } else { "" };
        let _ = writeln!(out, "{}: {what}{soliciting}", self.interface);
        for LearnedReply { address, len, valid_s, preferred_s } in &self.addresses {
            let deprecated = if *preferred_s == Some(0) { ", deprecated" } else { "" };
            let (valid, preferred) = (lifetime(*valid_s), lifetime(*preferred_s));
            let _ = writeln!(out, "  address {address}/{len}, valid {valid}, preferred {preferred}{deprecated}");
        }
        for RouterReply { address, table, preference, lifetime_s } in &self.routers {
            let _ = writeln!(out, "  router {address}, table {table}, preference {preference}, lifetime {lifetime_s}");
        }
    }
}

fn reply(router: &Router, index: IfIndex) -> Option<AutoconfigReply> {
    let AutoconfigConfig { default_route } = router.autoconfig(index)?;
    let now = router.graph.clock().timer_now();
    let left = |time: u64| time.saturating_sub(now).div_ceil(1_000_000_000);
    let bounded = |time: u64| (time != u64::MAX).then(|| left(time));
    let addresses = router.learned_addresses(index).into_iter().map(|(address, learned)| LearnedReply {
        address,
        len: learned.len,
        valid_s: bounded(learned.valid),
        preferred_s: bounded(learned.preferred),
    });
    let routers = router.learned_routers(index).into_iter().map(|(address, learned)| RouterReply {
        address,
        table: learned.table,
        preference: ["high", "medium", "low"].get(usize::from(learned.preference)).copied().unwrap_or("low"),
        lifetime_s: left(learned.until),
    });
    Some(AutoconfigReply {
        interface: router.interfaces.name(index),
        default_route,
        soliciting: router.solicits_routers(index),
        addresses: addresses.collect(),
        routers: routers.collect(),
    })
}

impl Execute<Router> for ShowAutoconfig {
    type Reply = Vec<AutoconfigReply>;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Vec<AutoconfigReply>>, OpError> {
        let all: Vec<IfIndex> = match &self.interface {
            Some(name) => vec![resolve(router, name)?],
            None => router.interfaces.iter().map(|i| i.index).collect(),
        };
        Ok(Outcome::Done(all.into_iter().filter_map(|index| reply(router, index)).collect()))
    }
}
