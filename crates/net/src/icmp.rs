//! ICMP and ICMPv6: errors that this router sends, echo, and the messages that it receives.
//!
//! ```text
//!  ip4-receive ──► ip4-icmp-input ──┬─ echo request ──────► ip4-icmp-echo-request ──┐
//!                                   ├─ echo reply, errors ► ip4-icmp-echo-reply ──► ping commands
//!                                   └─ others by type ────► who registered them     │
//!  any node (aux = icmp_aux) ─────────────────────────────► ip4-icmp-error ─────────┴──► ip4-lookup
//! ```
//!
//! Any node answers a packet with an error by sending it to `ip4-icmp-error` or `ip6-icmp-error` with
//! [`icmp_aux`](crate::ip::icmp_aux) in the aux lane and the data at the IP header, as it came in.

pub(crate) mod api;
mod echo;
mod error;
mod family;
mod input;
mod limit;
mod no_route;
pub mod ops;
pub mod ping;
#[cfg(test)]
mod tests;

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use quiver_graph::NodeSpec;
use quiver_wire::icmp4::Icmp4Type;
use quiver_wire::icmp6::Icmp6Type;

use self::echo::Echo;
use self::error::IcmpError;
use self::family::IcmpFamily;
use self::input::IcmpInput;
use self::limit::{Bucket, Limiter};
use crate::Router;
use crate::ip::{FamilyId, V4, V6};
use crate::local::header::{node_name, trace};
use crate::local::{Local, RegisterError};

pub use self::limit::{RateLimit, RateLimitFigures};
pub(crate) use self::no_route::{Answer, NoRoute};

/// The module's state on the main thread, by family.
struct Icmp {
    limiters: [Arc<Limiter>; 2],
    /// Whether packets without a route are answered.
    unreachables: [Arc<AtomicBool>; 2],
}

/// Makes the state that nodes are made from; before the nodes.
pub(crate) fn prepare(router: &mut Router) {
    let unreachables = [(); 2].map(|()| Arc::new(AtomicBool::new(true)));
    router.add_part(Icmp { limiters: [Arc::new(Limiter::default()), Arc::new(Limiter::default())], unreachables });
    ping::prepare(router);
}

/// Takes the message types that this module serves; after the nodes.
pub(crate) fn init(router: &mut Router) -> Result<(), RegisterError> {
    let four = [Icmp4Type::ECHO_REPLY, Icmp4Type::DESTINATION_UNREACHABLE, Icmp4Type::TIME_EXCEEDED, Icmp4Type::PARAMETER_PROBLEM];
    let six = [
        Icmp6Type::ECHO_REPLY,
        Icmp6Type::DESTINATION_UNREACHABLE,
        Icmp6Type::PACKET_TOO_BIG,
        Icmp6Type::TIME_EXCEEDED,
        Icmp6Type::PARAMETER_PROBLEM,
    ];
    router.register_icmp_type(FamilyId::V4, Icmp4Type::ECHO_REQUEST.0, "ip4-icmp-echo-request")?;
    router.register_icmp_type(FamilyId::V6, Icmp6Type::ECHO_REQUEST.0, "ip6-icmp-echo-request")?;
    for kind in four {
        router.register_icmp_type(FamilyId::V4, kind.0, "ip4-icmp-echo-reply")?;
    }
    for kind in six {
        router.register_icmp_type(FamilyId::V6, kind.0, "ip6-icmp-echo-reply")?;
    }
    Ok(())
}

impl Router {
    /// How many ICMP errors of a family this router sends at most.
    pub fn icmp_rate_limit(&self, family: FamilyId) -> RateLimit {
        self.part::<Icmp>().map_or_else(RateLimit::default, |icmp| icmp.limiters[family as usize].get())
    }

    /// Another limit, at once.
    pub fn set_icmp_rate_limit(&mut self, family: FamilyId, limit: RateLimit) {
        if let Some(icmp) = self.part::<Icmp>() {
            icmp.limiters[family as usize].set(limit);
        }
    }

    /// Errors sent and suppressed.
    pub fn icmp_rate_limit_figures(&self, family: FamilyId) -> RateLimitFigures {
        let nodes = ["icmp-error", "drop"].map(|name| node_name(family, name));
        let mut figures = RateLimitFigures::default();
        for (_, info, n) in self.graph.error_counts().iter().filter(|(_, e, _)| nodes.contains(&e.node)) {
            match (info.text == error::RATE_LIMITED, info.text.ends_with("sent")) {
                (true, _) => figures.suppressed += n,
                (_, true) => figures.sent += n,
                _ => {}
            }
        }
        figures
    }
}

fn family_nodes<F: IcmpFamily>(router: &Router) -> Vec<NodeSpec> {
    let (Some(local), Some(icmp)) = (router.part::<Local>(), router.part::<Icmp>()) else { return Vec::new() };
    let name = |rest: &str| node_name(F::ID, rest);
    let types = local.icmp_types(F::ID);
    let (sources, limiter) = (local.sources.reader(), icmp.limiters[F::ID as usize].clone());
    let input = IcmpInput::<F> { types, family: PhantomData };
    let echo = Echo::<F> { sources: sources.clone(), id: 0, family: PhantomData };
    let error = IcmpError::<F> { sources, bucket: Bucket::new(limiter), id: 0, family: PhantomData };
    let mut nodes = vec![
        NodeSpec::node(name("icmp-input"), input).traced(trace::<F>),
        NodeSpec::node(name("icmp-echo-request"), echo).with_next(name("lookup")).traced(trace::<F>),
        NodeSpec::node(name("icmp-error"), error).with_next(name("lookup")).traced(trace::<F>),
    ];
    nodes.extend(ping::nodes::<F>(router));
    nodes
}

/// The nodes of this module.
pub(crate) fn nodes(router: &Router) -> Vec<NodeSpec> {
    let mut nodes = family_nodes::<V4>(router);
    nodes.extend(family_nodes::<V6>(router));
    nodes
}
