//! UDP ports of the sessions. Without a session nobody listens. Where an interface has a pair in Linux, datagrams of others than the
//! sessions' peers go there: a daemon in Linux can have sessions beside those of the router.

use quiver_command::operation::{OpError, retval};
use quiver_net::Router;
use quiver_net::ip::FamilyId;
use quiver_net::local::{RegisterError, UdpPeer};

use super::tally::Tally;
use crate::datagram::{ECHO_PORT, Key, MULTIHOP_PORT, PORT};
use crate::nodes::{ECHO_INPUT, INPUT};
use crate::thread::EchoSources;

/// Ports of a session: which, the node that listens, and from whom. Own echo packets come back from the echo source, those of peers
/// from themselves.
fn wanted(key: &Key, sources: &EchoSources) -> Vec<(u16, &'static str, UdpPeer)> {
    let family = FamilyId::of(&key.peer) as usize;
    let peer = UdpPeer { interface: (!key.is_multihop()).then_some(key.interface), local: key.local, peer: key.peer };
    if key.is_multihop() {
        return vec![(MULTIHOP_PORT, INPUT[family], peer)];
    }
    let own = sources[family].map(|source| (ECHO_PORT, ECHO_INPUT[family], UdpPeer { peer: source, ..peer }));
    [(PORT, INPUT[family], peer), (ECHO_PORT, ECHO_INPUT[family], peer)].into_iter().chain(own).collect()
}

/// Listens for a session.
///
/// # Errors
/// Somebody else has a port, or there is no room: then nothing has changed.
pub(super) fn open(router: &mut Router, tally: &Tally, key: &Key, sources: &EchoSources) -> Result<(), OpError> {
    let family = FamilyId::of(&key.peer);
    let wanted = wanted(key, sources);
    for (at, (port, node, peer)) in wanted.iter().enumerate() {
        // Whose datagrams it takes is known before the first one arrives.
        let opened = router.limit_udp_port(family, *port, *peer).and_then(|()| {
            let registered = router.register_udp_port(family, *port, node);
            if registered.is_err() {
                router.release_udp_peer(family, *port, *peer);
            }
            registered
        });
        if let Err(error) = opened {
            release(router, tally, key, &wanted[..at]);
            return Err(refused(&error));
        }
    }
    Ok(())
}

fn refused(error: &RegisterError) -> OpError {
    OpError::new(retval::BFD_NOTSUPP, error.to_string()).key("bfd")
}

/// Listens no longer for a session, which is not counted any more; on the ports neither where it was the last one.
pub(super) fn close(router: &mut Router, tally: &Tally, key: &Key, sources: &EchoSources) {
    release(router, tally, key, &wanted(key, sources));
}

fn release(router: &mut Router, tally: &Tally, key: &Key, ports: &[(u16, &'static str, UdpPeer)]) {
    let family = FamilyId::of(&key.peer);
    for (port, _, peer) in ports {
        router.release_udp_peer(family, *port, *peer);
        if !tally.has_like(key) {
            router.unregister_udp_port(family, *port);
        }
    }
}

/// The sources of echo packets are others: listens for those that come back from them.
///
/// # Errors
/// There is no room.
pub(super) fn follow<'a>(
    router: &mut Router,
    sessions: impl Iterator<Item = &'a Key>,
    before: &EchoSources,
    sources: &EchoSources,
) -> Result<(), OpError> {
    for key in sessions.filter(|key| !key.is_multihop()) {
        let family = FamilyId::of(&key.peer);
        let own = |source| UdpPeer { interface: Some(key.interface), local: key.local, peer: source };
        let [old, new] = [before, sources].map(|sources| sources[family as usize].map(own));
        if let Some(new) = new {
            router.limit_udp_port(family, ECHO_PORT, new).map_err(|error| refused(&error))?;
        }
        if let Some(old) = old {
            router.release_udp_peer(family, ECHO_PORT, old);
        }
    }
    Ok(())
}
