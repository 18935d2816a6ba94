//! `memclnt`, `vpe` and `vlib`: the client itself, versions, command lines.

use std::time::{SystemTime, UNIX_EPOCH};

use quiver_api::defs::*;
use quiver_api::{MODULES, Text};
use quiver_command::operation::{OpError, retval};
use quiver_net::Router;
use quiver_net::api::{Clients, Flow, Handlers, Run, Table, Wish, from_address, index_of};

use crate::engine::command;
use crate::ops::version::{build_date, version};

pub(super) fn add(handlers: &mut Handlers) {
    // The handshake itself is the connection's: a client that has not said its name has nothing else answered.
    handlers.call::<SockclntCreate>(|_, _| Flow::Done);
    handlers.call::<SockclntDelete>(|call, _| {
        // VPP says 1 here.
        call.send(&SockclntDeleteReply { response: 1 });
        Flow::Close
    });
    handlers.call::<ControlPing>(|call, _| {
        let reply = ControlPingReply { retval: 0, client_index: call.client, vpe_pid: std::process::id() };
        call.send(&reply);
        Flow::Done
    });
    handlers.call::<GetApiJson>(|call, _| {
        let reply = GetApiJsonReply { retval: 0, json: call.table.json().to_owned() };
        call.send(&reply);
        Flow::Done
    });
    handlers.call::<ApiVersions>(|call, _| {
        let of_plugins = call.table.modules().iter().filter(|module| MODULES.iter().all(|known| known.name != module.name));
        let versions: Vec<ModuleVersion> = MODULES.iter().chain(of_plugins).map(|module| module_version(module)).collect();
        call.send(&ApiVersionsReply { retval: 0, count: 0, api_versions: versions });
        Flow::Done
    });
    handlers.call::<GetFirstMsgId>(|call, message| {
        // Names are `memif_5a1c9e3f`: module and version's CRC.
        let module = message.name.as_str().rsplit_once('_').map_or(message.name.as_str(), |(module, _)| module);
        let first = call.table.catalog().entries().iter().find(|entry| entry.module == module).map(|entry| entry.id);
        let refused = || OpError::new(retval::INVALID_VALUE, format!("no module {module}"));
        call.answer(first.map(|first_msg_id| GetFirstMsgIdReply { retval: 0, first_msg_id }).ok_or_else(refused));
        Flow::Done
    });
    handlers.call::<CliInband>(|_, message| {
        Flow::Run(Run {
            request: command(message.cmd),
            then: Box::new(|call, printed, result| {
                // As VPP answers whatever goes wrong in a command.
                let (retval, text) = match result {
                    Ok(answer) => (0, answer.text),
                    Err(error) => (retval::UNSPECIFIED, format!("{error}\n")),
                };
                call.send(&CliInbandReply { retval, reply: printed + &text });
            }),
        })
    });
    handlers.reply(show_version);
    handlers.reply(system_time);
    handlers.reply(show_threads);
    handlers.get::<GetNodeIndex, GetNodeIndexReply>(|router, m| {
        let name = m.node_name.as_str();
        let missing = || OpError::new(retval::NO_SUCH_NODE, "no such node").key("node_name").value(name);
        let node = router.graph.node(name).ok_or_else(missing)?;
        Ok(GetNodeIndexReply { retval: 0, node_index: node.0.into() })
    });
    handlers.call::<WantInterfaceEvents>(|call, message| {
        let (client, on) = (call.client, message.enable_disable != 0);
        let clients = call.router.part_mut::<Clients>();
        let retval = clients.map_or(retval::UNSPECIFIED, |clients| clients.want_interfaces(client, on, message.pid));
        call.send(&WantInterfaceEventsReply { retval });
        Flow::Done
    });
    handlers.call::<WantIpNeighborEvents>(|call, m| {
        let result = want_neighbors(call.router, call.client, false, m.enable, m.pid, &m.ip, &m.sw_if_index);
        call.answer(result.map(|()| WantIpNeighborEventsReply::default()));
        Flow::Done
    });
    handlers.call::<WantIpNeighborEventsV2>(|call, m| {
        let result = want_neighbors(call.router, call.client, true, m.enable, m.pid, &m.ip, &m.sw_if_index);
        call.answer(result.map(|()| WantIpNeighborEventsV2Reply::default()));
        Flow::Done
    });
    handlers.reads::<SockclntCreate>();
    handlers.reads::<SockclntDelete>();
    handlers.reads::<ControlPing>();
    handlers.reads::<GetApiJson>();
    handlers.reads::<ApiVersions>();
    handlers.reads::<GetFirstMsgId>();
    handlers.reads::<CliInband>();
    handlers.reads::<ShowVersion>();
    handlers.reads::<ShowVpeSystemTime>();
    handlers.reads::<ShowThreads>();
    handlers.reads::<WantInterfaceEvents>();
    handlers.reads::<WantIpNeighborEvents>();
    handlers.reads::<WantIpNeighborEventsV2>();
}

/// Tells a client its number and all messages.
pub fn welcome(table: &Table, index: u32, context: u32, out: &mut Vec<u8>) {
    let entries = table.catalog().entries().iter();
    let message_table: Vec<MessageTableEntry> =
        entries.map(|entry| MessageTableEntry { index: entry.id, name: Text(entry.table_name()) }).collect();
    let reply = SockclntCreateReply { response: 0, index, count: 0, message_table };
    table.push(out, index, context, &reply);
}

fn module_version(module: &quiver_api::Module) -> ModuleVersion {
    let mut numbers = module.version.split('.').map(|number| number.parse().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    ModuleVersion { major: next(), minor: next(), patch: next(), name: Text(format!("{}.api", module.name)) }
}

fn show_version(_: &mut Router, _: ShowVersion) -> Result<ShowVersionReply, OpError> {
    let (version, build_date) = (version(), build_date());
    Ok(ShowVersionReply {
        retval: 0,
        program: "quiver".into(),
        version: version.as_str().into(),
        build_date: build_date.as_str().into(),
        build_directory: Text::default(),
    })
}

fn system_time(_: &mut Router, _: ShowVpeSystemTime) -> Result<ShowVpeSystemTimeReply, OpError> {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    Ok(ShowVpeSystemTimeReply { retval: 0, vpe_system_time: Timestamp(seconds) })
}

fn show_threads(router: &mut Router, _: ShowThreads) -> Result<ShowThreadsReply, OpError> {
    let threads = crate::ops::threads::threads(router)?;
    let thread_data = threads
        .into_iter()
        .map(|thread| ThreadData {
            id: u32::try_from(thread.id).unwrap_or(u32::MAX),
            name: Text(thread.name),
            r#type: thread.kind.into(),
            pid: u32::try_from(thread.lwp).unwrap_or_default(),
            cpu_id: thread.lcore.unwrap_or(u32::MAX),
            core: thread.core.unwrap_or(u32::MAX),
            cpu_socket: thread.socket.unwrap_or(u32::MAX),
        })
        .collect();
    Ok(ShowThreadsReply { retval: 0, count: 0, thread_data })
}

fn want_neighbors(
    router: &mut Router,
    client: u32,
    v2: bool,
    on: bool,
    pid: u32,
    ip: &Address,
    interface: &InterfaceIndex,
) -> Result<(), OpError> {
    let interface = if interface.0 == quiver_net::api::ALL { None } else { Some(index_of(router, interface)?) };
    let address = Some(from_address(ip)).filter(|address| !address.is_unspecified());
    if let Some(clients) = router.part_mut::<Clients>() {
        clients.want_neighbors(client, v2, on, Wish { pid, interface, address });
    }
    Ok(())
}
