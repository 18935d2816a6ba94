//! Memif: packets through memory shared with another process.

mod create;
mod show;

pub use create::{CreateMemif, CreateSocket, DeleteSocket, MEMIF};

use std::path::PathBuf;

use quiver_command::operation::{OpError, Registry, retval};
use quiver_drivers::memif::{Limits, Memif, MemifError, SocketConfig};
use quiver_drivers::rights::SharedRights;
use quiver_net::Router;
use quiver_net::restart::Subject;

use crate::daemon::group::group_id;
use crate::daemon::runtime_dir;
use crate::startup::RUNTIME_DIR;
use crate::system::System;

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    create::register(registry);
    show::register(registry);
}

/// Connections of the process before that go on here; `None` while the memory of some is not ready.
fn passed(router: &Router) -> Option<usize> {
    router.part::<Memif>().map_or(Some(0), Memif::passed)
}

/// Adds the restart's subject. Connections pass on by descriptors: all that it does is to wait until their memory is mapped.
pub fn start(router: &mut Router) {
    router.add_restart_subject(Subject {
        ready: |router| passed(router).is_some(),
        load: |router, _, _, _| Ok(passed(router).unwrap_or(0) as u64),
        ..Subject::new("memif connections", 1)
    });
}

/// The sockets and interfaces of a router, made when they are first asked for.
///
/// # Errors
/// The operating system's.
pub fn memif(router: &mut Router) -> std::io::Result<Memif> {
    if let Some(memif) = router.part::<Memif>() {
        return Ok(memif.clone());
    }
    let startup = router.part::<System>().map(|s| &s.startup);
    let folder = startup.map_or_else(|| PathBuf::from(RUNTIME_DIR), |s| runtime_dir(&s.unix));
    // That the group is there was found out when the other sockets were made.
    let group = startup.and_then(|s| group_id(s.unix.gid.as_ref()?).ok());
    let limits = startup.map_or(Limits::DEFAULT, |s| s.memif);
    let config = SocketConfig { limits, ..SocketConfig::new(&folder.join("memif.sock").to_string_lossy()) };
    let memif = Memif::with_socket(config, group)?;
    if let Some(pool) = router.graph.pools().first() {
        memif.set_buffers(pool.region().clone());
    }
    memif.set_rights(router.part::<SharedRights>().cloned().unwrap_or_default().0);
    router.add_part(memif.clone());
    Ok(memif)
}

/// Has interfaces whose control channel has something to say take it in. Called by the main loop's process.
pub fn run(router: &mut Router) {
    let Some(memif) = router.part::<Memif>().cloned() else { return };
    for key in memif.run() {
        let Some((index, before)) = router.interfaces.by_name(&key.to_string()).map(|i| (i.index, i.link.up)) else { continue };
        if let Err(error) = router.refresh_device(index) {
            tracing::warn!(target: "memif", "{error}");
        }
        let (Some(now), Some(info)) = (router.interfaces.get(index), memif.interface(key)) else { continue };
        match (before, now.link.up) {
            (false, true) => {
                tracing::info!(
                    target: "memif", interface = %key, "{key} is connected to {} ({})", info.remote_interface, info.remote
                );
            }
            (true, false) => tracing::info!(target: "memif", interface = %key, "{key} is disconnected: {}", info.reason),
            _ => {}
        }
    }
    memif.notices().iter().for_each(|notice| tracing::warn!(target: "memif", "{notice}"));
}

fn memif_error(error: &MemifError) -> OpError {
    let code = match error {
        MemifError::Range { .. } | MemifError::Secret(_) | MemifError::Path(_) | MemifError::Pool { .. } => retval::INVALID_VALUE,
        MemifError::NoSocket(_) => retval::NO_SUCH_ENTRY,
        MemifError::SocketExists { .. } | MemifError::PathTaken { .. } => retval::ENTRY_ALREADY_EXISTS,
        MemifError::Exists { .. } => retval::IF_ALREADY_EXISTS,
        MemifError::SocketBusy(_) | MemifError::SocketFixed | MemifError::Role { .. } | MemifError::ZeroCopyServer => {
            retval::INVALID_ARGUMENT
        }
        MemifError::NoSignals(_) => retval::SYSCALL_ERROR_1,
        MemifError::NoPacketMemory | MemifError::PoolMemory(_) => retval::UNSPECIFIED,
        MemifError::Listening(_) | MemifError::System { .. } => retval::SYSCALL_ERROR_1,
    };
    OpError::new(code, error.to_string()).key(error.key())
}

fn system_error(error: &std::io::Error) -> OpError {
    OpError::system("cannot prepare memif", error).key("memif")
}

#[cfg(test)]
mod tests;
