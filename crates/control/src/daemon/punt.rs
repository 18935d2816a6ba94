//! The socket by which programs get punted packets and send theirs: `punt { socket }`.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Arc;

use quiver_graph::reactor::{AsyncFd, yield_now};
use quiver_net::Router;

use crate::engine::Engine;
use crate::process::Processes;
use crate::server::socket::{self, BindError, BoundPath, Owner};

/// Datagrams that are taken before others have their turn on the thread.
const BUDGET: usize = 32;
/// Bytes of a datagram: the longest packet with its link header and descriptor.
const DATAGRAM_MAX: usize = 65_600;

/// Makes the socket, which owner and group may use. What a dead process left is replaced.
///
/// # Errors
/// A live socket, another kind of file, and the kernel's.
pub fn bind(path: &Path, owner: Owner) -> Result<(UnixDatagram, BoundPath), BindError> {
    let probe = || {
        let socket = UnixDatagram::unbound()?;
        socket.connect(path).map(|()| OwnedFd::from(socket))
    };
    socket::bind(path, owner, probe, || UnixDatagram::bind(path))
}

/// Takes what programs send, from now on.
///
/// # Errors
/// The kernel's.
pub fn serve(
    engine: &Engine<Router>,
    processes: &Processes<Router>,
    socket: Arc<UnixDatagram>,
    bound: BoundPath,
) -> io::Result<()> {
    let engine = engine.clone();
    let socket = AsyncFd::new(engine.reactor(), socket)?;
    processes.account("punt-socket", async move {
        let _bound = bound;
        let mut room = vec![0; DATAGRAM_MAX];
        while socket.readable().await.is_ok() {
            for _ in 0..BUDGET {
                let Ok(len) = socket.get_ref().recv(&mut room) else { break };
                engine.control().borrow_mut().take_from_punt_client(room.get(..len).unwrap_or_default());
            }
            yield_now().await;
        }
    });
    Ok(())
}
