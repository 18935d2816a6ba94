//! `memif`: shared-memory interfaces.

use quiver_api::Text;
use quiver_api::defs::*;
use quiver_command::from_message;
use quiver_command::operation::{OpError, retval};
use quiver_drivers::memif::{Mode, Role};
use quiver_net::Router;
use quiver_net::api::{ALL, Details, Handlers, flags, said};
use quiver_net::interface::api::delete;
use quiver_net::ops::done;

use crate::ops::memif::{self, CreateMemif as MakeMemif, CreateSocket, DeleteSocket, MEMIF};

pub(super) fn add(handlers: &mut Handlers) {
    handlers.act::<MemifSocketFilenameAddDel, MemifSocketFilenameAddDelReply>(|router, m| {
        set_socket(router, m.is_add, m.socket_id, m.socket_filename.0).map(drop)
    });
    handlers.reply::<MemifSocketFilenameAddDelV2, MemifSocketFilenameAddDelV2Reply>(|router, m| {
        let socket_id = match m.socket_id {
            ALL if m.is_add => free_socket(router)?,
            id => id,
        };
        set_socket(router, m.is_add, socket_id, m.socket_filename)?;
        Ok(MemifSocketFilenameAddDelV2Reply { retval: 0, socket_id })
    });
    handlers.dump::<MemifSocketFilenameDump>(|router, _, send| {
        let Ok(memif) = memif::memif(router) else { return };
        for socket in memif.sockets() {
            send(&MemifSocketFilenameDetails { socket_id: socket.id, socket_filename: Text(socket.path) });
        }
    });
    handlers.reply::<MemifCreate, MemifCreateReply>(|router, m| {
        let (mode_ip, master) = (is_ip(&m.mode)?, m.role == MemifRole::MEMIF_ROLE_API_MASTER);
        let request = from_message!(said, m => MakeMemif {
            id, socket_id, ring_size, buffer_size, rx_queues, tx_queues, mac = hw_addr, secret, master: master, mode_ip: mode_ip,
        })?;
        Ok(MemifCreateReply { retval: 0, sw_if_index: create(router, request)? })
    });
    handlers.reply::<MemifCreateV2, MemifCreateV2Reply>(|router, m| {
        let (mode_ip, master) = (is_ip(&m.mode)?, m.role == MemifRole::MEMIF_ROLE_API_MASTER);
        let request = from_message!(said, m => MakeMemif {
            id, socket_id, ring_size, buffer_size, rx_queues, tx_queues, mac = hw_addr, secret, master: master, mode_ip: mode_ip,
        })?;
        Ok(MemifCreateV2Reply { retval: 0, sw_if_index: create(router, request)? })
    });
    delete::<MemifDelete, MemifDeleteReply>(handlers, &MEMIF, |m| &m.sw_if_index);
    handlers.dump::<MemifDump>(dump);
}

fn free_socket(router: &mut Router) -> Result<u32, OpError> {
    let memif = memif::memif(router).map_err(|e| OpError::system("cannot prepare memif", &e))?;
    let taken: Vec<u32> = memif.sockets().iter().map(|socket| socket.id).collect();
    let free = (1..ALL).find(|id| !taken.contains(id));
    free.ok_or_else(|| OpError::new(retval::LIMIT_EXCEEDED, "no free number").key("socket_id"))
}

fn set_socket(router: &mut Router, add: bool, id: u32, filename: String) -> Result<(), OpError> {
    if id == ALL || (add && filename.is_empty()) {
        return Err(OpError::new(retval::INVALID_ARGUMENT, "a number and a path are needed").key("socket_id"));
    }
    match add {
        true => {
            let request =
                CreateSocket { id, filename, zero_copy_buffers: None, max_memory: None, max_regions: None, unsealed: false };
            quiver_net::api::perform::<CreateSocket>(router, request).map(drop)
        }
        false => quiver_net::api::perform::<DeleteSocket>(router, DeleteSocket { id }).map(drop),
    }
}

fn is_ip(mode: &MemifMode) -> Result<bool, OpError> {
    match *mode {
        MemifMode::MEMIF_MODE_API_ETHERNET => Ok(false),
        MemifMode::MEMIF_MODE_API_IP => Ok(true),
        MemifMode(other) => Err(OpError::new(retval::INVALID_ARGUMENT, format!("mode {other} is not there")).key("mode")),
    }
}

/// VPP asks for copies by a flag; here zero-copy is what has to be asked for, and only the command can.
fn create(router: &mut Router, request: MakeMemif) -> Result<InterfaceIndex, OpError> {
    let made = done(quiver_net::api::perform::<MakeMemif>(router, request)?)?;
    Ok(InterfaceIndex(made.0.sw_if_index))
}

fn dump(router: &mut Router, _: MemifDump, send: &mut dyn FnMut(&dyn Details)) {
    let Ok(memif) = memif::memif(router) else { return };
    for info in memif.keys().into_iter().filter_map(|key| memif.interface(key)) {
        let Some(interface) = router.interfaces.by_name(&info.key.to_string()) else { continue };
        let server = info.role == Role::Server;
        // Of the first ring where there is one, as configured where packets do not flow.
        let ring_size = info.rings.first().map_or(0, |ring| u32::from(ring.size));
        send(&MemifDetails {
            sw_if_index: InterfaceIndex(interface.index.0),
            hw_addr: MacAddress(interface.mac.0),
            id: info.key.id,
            role: if server { MemifRole::MEMIF_ROLE_API_MASTER } else { MemifRole::MEMIF_ROLE_API_SLAVE },
            mode: if info.mode == Mode::Ip { MemifMode::MEMIF_MODE_API_IP } else { MemifMode::MEMIF_MODE_API_ETHERNET },
            zero_copy: info.zero_copy,
            socket_id: info.key.socket,
            ring_size,
            buffer_size: u16::try_from(info.buffer_size).unwrap_or(u16::MAX),
            flags: IfStatusFlags(flags(interface)),
            if_name: Text(interface.name.clone()),
        });
    }
}
