//! The host's side of an interface: soliciting routers, addresses and default routes by what they advertise.
//!
//! ```text
//!  icmp6-router-advertisement ── one bounded channel ──► process ─┬─► clients (ip6_ra_event)
//!                                                                 ├─► solicitations of that link end
//!                                                                 ├─► prefixes ─► addresses, with lifetimes
//!                                                                 └─► routers ──► default route, with lifetimes
//! ```
//!
//! *Only where it is configured.* An interface without [`AutoconfigConfig`] takes nothing from advertisements; they are passed on to
//! clients that ask for them.
//!
//! *Addresses* (RFC 4862, 5.5) are made of prefixes of 64 bits and of the interface identifier of the MAC address. They are checked for
//! duplicates as all others. A deprecated one stays but is no source where there is another. What stays valid for less than two hours
//! is not shortened further by an advertisement, which anybody on the link can forge.
//!
//! *Routers* (RFC 4861, 6.3.4) make one default route, with a path for each. A preference (RFC 4191) is that of its path.
//!
//! *Limits.* Addresses and routers of an interface are bounded, and so are advertisements on their way here. Not taken are hop limit, MTU
//! and timers of neighbour discovery: these are the router's own. A prefix that is on the link but not for addresses makes no route.

mod autoconfig;
mod heard;
mod restart;
mod solicit;

use std::net::Ipv6Addr;

use quiver_graph::IfIndex;

pub use autoconfig::{AutoconfigConfig, Learned, LearnedRouter};
pub(super) use heard::{Advert, Adverts};
pub use solicit::SolicitConfig;

use crate::Router;
use crate::router::ProcessSignal;

/// Advertisements handled at a time.
const AT_ONCE: usize = 8;

/// Why an operation on the host's side failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// No such interface.
    #[error("unknown interface index {0}")]
    NoInterface(u32),
    /// The interface has no MAC address, of which addresses are made.
    #[error("{0} has no MAC address")]
    NoLinkLayer(String),
    /// IPv6 is not enabled.
    #[error("{0} has no IPv6")]
    NoIp6(String),
    /// IPv6 could not be enabled.
    #[error(transparent)]
    Address(#[from] crate::ip::AddressError),
}

/// State of the host's side on the main thread.
pub(super) struct Host {
    pub adverts: Adverts,
    solicit: solicit::Solicitations,
    autoconfig: autoconfig::Autoconfig,
}

impl Host {
    pub fn new(signal: ProcessSignal) -> Self {
        Self { adverts: Adverts::new(signal), solicit: Default::default(), autoconfig: Default::default() }
    }
}

/// Registers what outlives the process.
pub(super) fn init(router: &mut Router) {
    restart::init(router);
}

/// What is due; says when to be called next.
pub(super) fn run(router: &mut Router, now: u64) -> u64 {
    let (adverts, more) = router.nd.host.adverts.take(AT_ONCE);
    for advert in &adverts {
        super::api::tell_advert(router, advert);
        solicit::heard(router, advert);
        autoconfig::heard(router, advert, now);
    }
    let next = solicit::run(router, now).min(autoconfig::run(router, now));
    if more { now } else { next }
}

/// A link has come up or gone, or its link-local address can be used now.
pub(super) fn reconsider(router: &mut Router, interface: IfIndex) {
    solicit::reconsider(router, interface);
}

/// A link has come up: routers of another link may be behind it.
pub(super) fn link_changed(router: &mut Router, interface: IfIndex) {
    if router.autoconfig(interface).is_some() {
        solicit::begin(router, interface, SolicitConfig::default());
    }
}

/// An address was removed, by whomever.
pub(super) fn forget_address(router: &mut Router, interface: IfIndex, address: Ipv6Addr) {
    router.nd.host.autoconfig.forget_address(interface, address);
}

/// An interface goes.
pub(super) fn forget(router: &mut Router, interface: IfIndex) {
    router.nd.host.solicit.forget(interface);
    autoconfig::forget(router, interface);
}

#[cfg(test)]
mod tests;
