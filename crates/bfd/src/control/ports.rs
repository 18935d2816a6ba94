//! UDP ports of the sessions. Without a session nobody listens. Where an interface has a pair in Linux, datagrams of others than the
//! sessions' peers go there: a daemon in Linux can have sessions beside those of the router.

use std::collections::HashSet;

use quiver_command::operation::{OpError, retval};
use quiver_net::Router;
use quiver_net::ip::FamilyId;
use quiver_net::local::UdpPeer;

use super::{Bfd, echo};
use crate::datagram::{ECHO_PORT, Key, MULTIHOP_PORT, PORT};
use crate::nodes::{ECHO_INPUT, INPUT};

/// Listens on the ports of a family's sessions, and on no others.
pub(super) fn listen(router: &mut Router, bfd: &Bfd, family: FamilyId) -> Result<(), OpError> {
    let of_family = || bfd.sessions.keys().filter(|key| FamilyId::of(&key.peer) == family);
    let peer = |key: &Key| UdpPeer { interface: (!key.is_multihop()).then_some(key.interface), local: key.local, peer: key.peer };
    let on_link: HashSet<UdpPeer> = of_family().filter(|key| !key.is_multihop()).map(peer).collect();
    let multihop: HashSet<UdpPeer> = of_family().filter(|key| key.is_multihop()).map(peer).collect();
    // Own echo packets come back from the echo source, those of peers from themselves.
    let source = echo::sources(router, bfd)[family as usize];
    let own = on_link.iter().filter_map(|of| Some(UdpPeer { peer: source?, ..*of }));
    let echoes: HashSet<UdpPeer> = on_link.iter().copied().chain(own).collect();
    let (input, echo_input) = (INPUT[family as usize], ECHO_INPUT[family as usize]);
    for (port, node, peers) in [(PORT, input, on_link), (ECHO_PORT, echo_input, echoes), (MULTIHOP_PORT, input, multihop)] {
        if peers.is_empty() {
            let taken = router.udp_ports(family).into_iter().any(|(taken, by)| taken == port && by == node);
            if taken {
                router.unregister_udp_port(family, port);
            }
            continue;
        }
        router
            .register_udp_port(family, port, node)
            .map_err(|error| OpError::new(retval::BFD_NOTSUPP, error.to_string()).key("bfd"))?;
        router.limit_udp_port(family, port, peers);
    }
    Ok(())
}
