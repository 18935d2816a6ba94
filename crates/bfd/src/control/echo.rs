//! Where echo packets come from: an address that no host has, of the subnet of an interface that is set aside for it, so that the
//! router takes the packets that come back for those of another (RFC 5881, 4).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use quiver_command::operation::OpError;
use quiver_graph::IfIndex;
use quiver_net::Router;
use quiver_net::ip::FamilyId;

use super::{Bfd, ports};
use crate::thread::EchoSources;

/// The source of echo packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EchoSource {
    /// The interface, if one is set.
    pub interface: Option<IfIndex>,
    /// Addresses by family.
    pub addresses: EchoSources,
}

/// The neighbour of an address in its subnet, whose last bit is another.
fn beside(address: IpAddr, len: u8) -> Option<IpAddr> {
    match address {
        IpAddr::V4(address) if len < 32 => Some(Ipv4Addr::from_bits(address.to_bits() ^ 1).into()),
        IpAddr::V6(address) if len < 128 && !address.is_unicast_link_local() => {
            Some(Ipv6Addr::from_bits(address.to_bits() ^ 1).into())
        }
        _ => None,
    }
}

/// Which addresses echo packets come from.
pub(super) fn sources(router: &Router, bfd: &Bfd) -> EchoSources {
    let addresses = bfd.echo_interface.and_then(|index| router.interfaces.get(index)).map(|interface| &interface.addresses);
    let of = |family: FamilyId| {
        let own = addresses?.iter().filter(|(address, _)| FamilyId::of(address) == family);
        own.filter_map(|(address, len)| beside(*address, *len))
            .find(|address| !addresses.is_some_and(|all| all.iter().any(|(own, _)| own == address)))
    };
    [of(FamilyId::V4), of(FamilyId::V6)]
}

/// The source of echo packets as it is now.
///
/// # Errors
/// The plugin is off.
pub fn echo_source(router: &Router) -> Result<EchoSource, OpError> {
    let bfd = router.state::<Bfd>()?;
    Ok(EchoSource { interface: bfd.echo_interface, addresses: sources(router, bfd) })
}

/// Sets the interface, or none: then no echo packets are sent.
///
/// # Errors
/// No such interface.
pub fn set_echo_source(router: &mut Router, interface: Option<IfIndex>) -> Result<(), OpError> {
    if let Some(index) = interface {
        router.interfaces.expect(index)?;
    }
    router.with_state::<Bfd, _>(|router, bfd| {
        bfd.echo_interface = interface;
        follow(router, bfd)
    })
}

/// Tells threads from which addresses to send.
fn follow(router: &mut Router, bfd: &mut Bfd) -> Result<(), OpError> {
    let (sources, now) = (sources(router, bfd), router.graph.clock().now());
    let owners: std::collections::BTreeSet<usize> = bfd.sessions.values().map(|session| session.owner).collect();
    for owner in owners {
        bfd.on(router, owner, move |sessions| sessions.set_echo_sources(sources, now));
    }
    let before = std::mem::replace(&mut bfd.echo_sources, sources);
    ports::follow(router, bfd.sessions.keys(), &before, &sources)
}

fn warn(result: Result<(), OpError>) {
    if let Err(error) = result {
        tracing::warn!(target: "bfd", "{error}");
    }
}

/// An address of an interface has come or gone.
pub(super) fn on_address(router: &mut Router, index: IfIndex) {
    if router.state::<Bfd>().is_ok_and(|bfd| bfd.echo_interface == Some(index)) {
        warn(router.with_state(follow));
    }
}

/// An interface goes.
pub(super) fn on_deleted(router: &mut Router, index: IfIndex) {
    if router.state::<Bfd>().is_ok_and(|bfd| bfd.echo_interface == Some(index)) {
        warn(set_echo_source(router, None));
    }
}
