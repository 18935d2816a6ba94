//! Making and removing memif sockets and interfaces.

use quiver_command::grammar::{Args, Command, IfRef};
use quiver_command::operation::{Invocation, OpError, Operation, Outcome, Registry, Text, View, retval};
use quiver_drivers::memif::{Key, Limits, MemifConfig, Mode, POOL_BUFFERS, Role, SocketConfig};
use quiver_graph::Port;
use quiver_net::Router;
use quiver_net::interface::{Kind, NewInterface, Tx};
use quiver_wire::MacAddr;
use serde::{Deserialize, Serialize};

use super::{memif, memif_error, system_error};
use crate::ops::interface::{CreatedInterface, DeleteInterface, DeleteInterfaceRequest, DeleteKind, interface_error};
use crate::system::System;

/// Largest IP packet by default, bytes, as in VPP.
const MTU: u32 = 9000;

pub(super) fn register(registry: &mut Registry<Router>) {
    registry.operation::<CreateSocket>().operation::<DeleteSocket>().operation::<CreateMemif>();
    registry.command(Command {
        path: "create memif socket",
        syntax: "id <n> filename <path> [zero-copy-buffers <n>] [max-memory <size>] [max-regions <n>]",
        help: "Declares a memif socket; a path without / lies in the runtime folder, one that begins with @ in the abstract namespace; \
            zero-copy-buffers: what the zero-copy interfaces of this socket share; max-memory, max-regions: what each peer may \
            have this router map",
        parse: |args, _| {
            let (mut id, mut filename, mut zero_copy_buffers) = (None, None, None);
            let (mut max_memory, mut max_regions) = (None, None);
            while !args.is_empty() {
                if args.take_keyword("id") {
                    id = Some(args.number("id")?);
                } else if args.take_keyword("filename") {
                    filename = Some(args.word("path of a socket")?.into_owned());
                } else if args.take_keyword("zero-copy-buffers") {
                    zero_copy_buffers = Some(args.number("zero-copy-buffers")?);
                } else if args.take_keyword("max-memory") {
                    max_memory = Some(args.size("max-memory")?);
                } else if args.take_keyword("max-regions") {
                    max_regions = Some(args.number("max-regions")?);
                } else {
                    return Err(args.unexpected());
                }
            }
            let id = id.ok_or_else(|| args.missing("id <n>"))?;
            let filename = filename.ok_or_else(|| args.missing("filename <path>"))?;
            let request = CreateSocketRequest { zero_copy_buffers, max_memory, max_regions, ..CreateSocketRequest::new(id, filename) };
            Ok(Invocation::new::<CreateSocket>(request))
        },
    });
    registry.command(Command {
        path: "delete memif socket",
        syntax: "id <n>",
        help: "Forgets a memif socket that no interface uses",
        parse: |args, _| {
            args.expect_keyword("id")?;
            let id = args.number("id")?;
            Ok(Invocation::new::<DeleteSocket>(DeleteSocketRequest { id }))
        },
    });
    registry.command(Command {
        path: "create interface memif",
        syntax: "[id <n>] [socket-id <n>] [ring-size <n>] [rx-queues <n>] [tx-queues <n>] [buffer-size <n>] [hw-addr <mac>] \
            [master|slave] [mode ip] [secret <s>] [zero-copy|no-zero-copy]",
        help: "Makes an interface to another process through shared memory",
        parse: parse_create,
    });
    registry.command(Command {
        path: "delete interface memif",
        syntax: "<if>|sw_if_index <n>",
        help: "Removes a memif interface",
        parse: |args, _| {
            args.take_keyword("sw_if_index");
            let interface: IfRef = args.interface()?;
            Ok(Invocation::new::<DeleteInterface>(DeleteInterfaceRequest { interface, kind: DeleteKind::Memif }))
        },
    });
}

fn parse_create(args: &mut Args<'_>, _: &Router) -> Result<Invocation<Router>, OpError> {
    let mut r = CreateMemifRequest::default();
    while !args.is_empty() {
        if args.take_keyword("id") {
            r.id = args.number("id")?;
        } else if args.take_keyword("socket-id") {
            r.socket_id = args.number("socket-id")?;
        } else if args.take_keyword("ring-size") {
            r.ring_size = Some(args.number("ring-size")?);
        } else if args.take_keyword("rx-queues") {
            r.rx_queues = Some(args.number("rx-queues")?);
        } else if args.take_keyword("tx-queues") {
            r.tx_queues = Some(args.number("tx-queues")?);
        } else if args.take_keyword("buffer-size") {
            r.buffer_size = Some(args.number("buffer-size")?);
        } else if args.take_keyword("hw-addr") {
            r.mac = Some(args.mac("link address")?);
        } else if args.take_keyword("master") {
            r.master = true;
        } else if args.take_keyword("slave") {
            r.master = false;
        } else if args.take_keyword("mode") {
            args.expect_keyword("ip")?;
            r.mode_ip = true;
        } else if args.take_keyword("secret") {
            r.secret = Some(args.word("secret")?.into_owned());
        } else if args.take_keyword("zero-copy") {
            r.zero_copy = true;
        } else if args.take_keyword("no-zero-copy") {
            r.zero_copy = false;
        } else if args.take_keyword("use-dma") {
            // Packets are copied by the processor.
        } else {
            return Err(args.unexpected());
        }
    }
    Ok(Invocation::new::<CreateMemif>(r))
}

/// Declares a socket.
pub struct CreateSocket;

/// What [`CreateSocket`] declares.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateSocketRequest {
    /// Number.
    pub id: u32,
    /// Path of the socket; relative ones lie in the runtime folder.
    pub filename: String,
    /// Buffers that its zero-copy interfaces share; 16384 where absent.
    #[serde(default)]
    pub zero_copy_buffers: Option<u32>,
    /// Bytes of memory, but for huge pages, that each of its peers may have mapped; those of `memif { max-memory }` where absent.
    #[serde(default)]
    pub max_memory: Option<u64>,
    /// Regions that each of its peers may have; those of `memif { max-regions }` where absent.
    #[serde(default)]
    pub max_regions: Option<usize>,
}

impl CreateSocketRequest {
    /// The usual settings.
    pub fn new(id: u32, filename: String) -> Self {
        Self { id, filename, zero_copy_buffers: None, max_memory: None, max_regions: None }
    }
}

impl Operation<Router> for CreateSocket {
    const NAME: &'static str = "memif_socket_create";
    type Request = CreateSocketRequest;
    type Reply = ();

    fn run(router: &mut Router, request: CreateSocketRequest) -> Result<Outcome<Router, ()>, OpError> {
        let mut path = request.filename.clone();
        let usual = router.part::<System>().map_or(Limits::DEFAULT, |s| s.startup.memif);
        if !path.starts_with(['/', '@'])
            && let Some(system) = router.part::<System>()
        {
            path = crate::daemon::runtime_dir(&system.startup.unix).join(path).to_string_lossy().into_owned();
        }
        let memif = memif(router).map_err(|e| system_error(&e))?;
        let config = SocketConfig {
            path,
            pool_buffers: request.zero_copy_buffers.unwrap_or(POOL_BUFFERS),
            limits: Limits {
                memory: request.max_memory.unwrap_or(usual.memory),
                regions: request.max_regions.unwrap_or(usual.regions),
            },
        };
        memif.add_socket_with(request.id, config).map_err(|e| memif_error(&e).value(&request.filename))?;
        Ok(Outcome::Done(()))
    }
}

/// Forgets a socket.
pub struct DeleteSocket;

/// What [`DeleteSocket`] forgets.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeleteSocketRequest {
    /// Number.
    pub id: u32,
}

impl Operation<Router> for DeleteSocket {
    const NAME: &'static str = "memif_socket_delete";
    type Request = DeleteSocketRequest;
    type Reply = ();

    fn run(router: &mut Router, request: DeleteSocketRequest) -> Result<Outcome<Router, ()>, OpError> {
        let memif = memif(router).map_err(|e| system_error(&e))?;
        memif.remove_socket(request.id).map_err(|e| memif_error(&e).value(request.id))?;
        Ok(Outcome::Done(()))
    }
}

/// Makes an interface.
pub struct CreateMemif;

/// What [`CreateMemif`] makes; what is absent has the driver's default.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CreateMemifRequest {
    /// Number on its socket.
    pub id: u32,
    /// Number of its socket.
    pub socket_id: u32,
    /// Descriptors of a ring (slave).
    pub ring_size: Option<u32>,
    /// Bytes of a buffer in shared memory (slave).
    pub buffer_size: Option<u32>,
    /// Receive queues; for a master as many as threads forward, where absent.
    pub rx_queues: Option<usize>,
    /// Transmit queues (slave).
    pub tx_queues: Option<usize>,
    /// Link address; drawn at random where absent.
    pub mac: Option<[u8; 6]>,
    /// Listens instead of connecting.
    pub master: bool,
    /// IP packets without a link header.
    pub mode_ip: bool,
    /// What a slave must know.
    pub secret: Option<String>,
    /// Packets from and to peers of one socket are not copied (slave); the peers then see each other's packets, and what
    /// earlier ones left in the buffers.
    pub zero_copy: bool,
}

impl CreateMemifRequest {
    fn config(&self, threads: usize) -> MemifConfig {
        let usual = MemifConfig::new(Key { socket: self.socket_id, id: self.id });
        let rx_queues = if self.master { threads.clamp(1, 255) } else { usual.rx_queues };
        MemifConfig {
            role: if self.master { Role::Server } else { Role::Client },
            mode: if self.mode_ip { Mode::Ip } else { Mode::Ethernet },
            ring_size: self.ring_size.unwrap_or(usual.ring_size),
            buffer_size: self.buffer_size.unwrap_or(usual.buffer_size),
            rx_queues: self.rx_queues.unwrap_or(rx_queues),
            tx_queues: self.tx_queues.unwrap_or(usual.tx_queues),
            mac: self.mac,
            secret: self.secret.clone(),
            zero_copy: self.zero_copy,
            ..usual
        }
    }
}

/// The interface that was made. As text it is nothing, as in VPP.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct CreatedMemif(pub CreatedInterface);

impl Text for CreatedMemif {
    fn text(&self, _: &mut String, _: &View) {}
}

impl Operation<Router> for CreateMemif {
    const NAME: &'static str = "memif_create";
    type Request = CreateMemifRequest;
    type Reply = CreatedMemif;

    fn run(router: &mut Router, request: CreateMemifRequest) -> Result<Outcome<Router, CreatedMemif>, OpError> {
        if let Some(mac) = request.mac.map(MacAddr).filter(|m| !m.is_unicast() || m.is_zero()) {
            return Err(OpError::invalid("hw-addr", mac, "not a unicast link address"));
        }
        if request.zero_copy && request.buffer_size.is_some() {
            return Err(OpError::invalid(
                "buffer-size",
                "zero-copy",
                "packets lie in the router's buffers: `buffers { default data-size … }'",
            ));
        }
        let config = request.config(router.graph.fleet().threads().len());
        let name = config.key.to_string();
        if router.interfaces.by_name(&name).is_some() {
            let error = OpError::new(retval::IF_ALREADY_EXISTS, format!("interface `{name}' exists already"));
            return Err(error.key("id").value(request.id));
        }
        let port = memif(router).map_err(|e| system_error(&e))?.create(config).map_err(|e| memif_error(&e))?;
        let max_frame = port.max_frame() as u32;
        let index = router
            .create_interface(NewInterface {
                name: name.clone(),
                kind: Kind::Device("memif"),
                mac: port.mac().map_or(MacAddr::ZERO, MacAddr),
                mtu: MTU,
                max_frame,
                tx: Tx::Port(Box::new(port)),
            })
            .map_err(|e| interface_error(&e))?;
        Ok(Outcome::Done(CreatedMemif(CreatedInterface { name, sw_if_index: index.0 })))
    }
}
