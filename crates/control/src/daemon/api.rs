//! The sockets of the binary API and of the statistics.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use quiver_api::defs::SockclntCreateReply;
use quiver_api::json_of;
use quiver_command::operation::retval;
use quiver_graph::reactor::AsyncFd;
use quiver_net::Plugin;
use quiver_net::Router;
use quiver_net::api::{Handlers, Table};

use super::StartError;
use crate::api::{handlers, serve};
use crate::engine::Engine;
use crate::process::Processes;
use crate::server::{Admission, BoundPath, Peer, SessionHandle, SessionKind, Sessions, StatsListener, Wire};

/// How long a client may take to say its name.
const NAME_WAIT: Duration = Duration::from_secs(10);
/// Pause after an accept that failed, such as for lack of descriptors.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

/// All messages of the daemon and of the plugins that are on.
pub fn table(plugins: &[Plugin]) -> Table {
    let mut all: Handlers = handlers::all();
    plugins.iter().for_each(|plugin| (plugin.api)(&mut all));
    Table::new(all)
}

/// Writes `<module>.api.json` files, as clients load them, for all modules with their types.
pub fn write_definitions(plugins: &[Plugin], folder: &Path) -> Result<ExitCode, StartError> {
    let failed = |error| StartError::System { doing: format!("cannot write to {}", folder.display()), error };
    fs::create_dir_all(folder).map_err(failed)?;
    for module in table(plugins).modules() {
        let text = serde_json::to_string_pretty(&json_of(module)).unwrap_or_default();
        fs::write(folder.join(format!("{}.api.json", module.name)), text).map_err(failed)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Serves clients of the binary API from now on.
pub fn listen(
    engine: &Engine<Router>,
    processes: &Processes<Router>,
    table: Rc<Table>,
    (sessions, idle_timeout): (Sessions, Option<Duration>),
    (listener, bound): (UnixListener, BoundPath),
    admission: Admission,
) -> io::Result<()> {
    let listener = AsyncFd::new(engine.reactor(), listener)?;
    let (engine, processes) = (engine.clone(), processes.clone());
    processes.clone().account("api-socket-listener", async move {
        let _bound = bound;
        loop {
            match listener.accept().await {
                Ok(stream) => {
                    let Some(access) = admission.of(stream.get_ref()) else {
                        tracing::info!(target: "api", "a client was turned away: it is in none of the groups of the socket");
                        continue;
                    };
                    let peer = Peer::of(stream.get_ref());
                    match sessions.admit(SessionKind::Api, peer, Some(NAME_WAIT)) {
                        Ok(handle) => welcome(&engine.with_access(access), &processes, &table, stream, (handle, idle_timeout)),
                        Err(refused) => {
                            tracing::warn!(target: "api", "a client was turned away ({peer}): {refused}");
                            refuse(&table, stream);
                        }
                    }
                }
                Err(error) => {
                    tracing::warn!(target: "api", "cannot take a client: {error}");
                    engine.reactor().sleep(AFTER_FAILURE).await;
                }
            }
        }
    });
    Ok(())
}

fn welcome(
    engine: &Engine<Router>,
    processes: &Processes<Router>,
    table: &Rc<Table>,
    stream: AsyncFd<UnixStream>,
    place: (SessionHandle, Option<Duration>),
) {
    let (engine, table) = (engine.clone(), Rc::clone(table));
    let behind = processes.clone();
    processes.account("api-client", serve(engine, behind, stream, table, place));
}

/// The answer that a client without a place gets to the handshake that it is about to send, if it can be sent at once.
fn refuse(table: &Table, mut stream: AsyncFd<UnixStream>) {
    let mut out = Vec::new();
    table.push(
        &mut out,
        0,
        0,
        &SockclntCreateReply { response: retval::LIMIT_EXCEEDED, index: 0, count: 0, message_table: Vec::new() },
    );
    let _ = stream.send(&out);
}

/// Hands the statistics' memory to readers from now on.
pub fn listen_stats(processes: &Processes<Router>, engine: &Engine<Router>, listener: StatsListener) -> io::Result<()> {
    // Readers get a descriptor that cannot be written through.
    let memory = {
        let router = engine.control().borrow();
        let fd = router.graph.stats().fd();
        fs::File::open(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&fd)))?
    };
    let reactor = Rc::clone(engine.reactor());
    processes.account("stats-socket-listener", async move {
        loop {
            if let Err(error) = reactor.readable(listener.as_fd()).await {
                tracing::warn!(target: "api", "no more readers of the statistics: {error}");
                return;
            }
            if let Err(error) = listener.serve_one(memory.as_fd()) {
                tracing::warn!(target: "api", "cannot take a reader of the statistics: {error}");
                reactor.sleep(AFTER_FAILURE).await;
            }
        }
    });
    Ok(())
}
