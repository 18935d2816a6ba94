//! Making and removing memif sockets and interfaces.

use quiver_command::configuration::Entry;
use quiver_command::grammar::Command;
use quiver_command::operation::{Invocation, OpError, Outcome, Registry, Text, View};
use quiver_command::request;
use quiver_command::request::Execute;
use quiver_drivers::memif::{Key, Limits, MemifConfig, Mode, POOL_BUFFERS, Role, SocketConfig};
use quiver_net::Router;
use quiver_net::interface::InterfaceKind;
use quiver_net::interface::ops::{CreatedInterface, DeleteInterface, NewName, create_port_interface};
use serde::Serialize;

use super::super::configuration::{Said, socket_of};
use super::{memif, memif_error, system_error};
use crate::system::System;

/// Largest IP packet by default, bytes, as in VPP.
const MTU: u32 = 9000;

/// Their kind.
pub const MEMIF: InterfaceKind = InterfaceKind { name: "memif", called: "a memif interface", device_type: "memif" };

pub(super) fn register(registry: &mut Registry<Router>) {
    registry.declare::<CreateSocket>().declare::<DeleteSocket>().declare::<CreateMemif>();
    registry.command_of::<DeleteInterface>(Command {
        path: "delete interface memif",
        syntax: "<if>|sw_if_index <n>",
        help: "Removes a memif interface",
        parse: |args, _| {
            args.take_keyword("sw_if_index");
            Ok(Invocation::new::<DeleteInterface>(DeleteInterface::of(&MEMIF, args.interface()?)))
        },
    });
}

request! {
    /// Declares a memif socket.
    pub change CreateSocket "memif_socket_create" ["create memif socket"] {
        /// Number.
        pub id: u32 = "id <n>",
        /// Path of the socket; one without / lies in the runtime folder, one that begins with @ in the abstract namespace.
        pub filename: String = "filename <path>",
        /// Buffers that its zero-copy interfaces share; 16384 where absent.
        pub zero_copy_buffers: Option<u32> = "zero-copy-buffers <n>",
        /// Bytes of memory, but for huge pages, that each of its peers may have mapped; those of `memif { max-memory }` where absent.
        pub max_memory: Option<u64> = "max-memory <size>",
        /// Regions that each of its peers may have; those of `memif { max-regions }` where absent.
        pub max_regions: Option<usize> = "max-regions <n>",
        /// Takes memory that cannot be sealed too: only for peers that are trusted. `memif { unsealed }` says so for all sockets.
        pub unsealed: bool = "unsealed",
    }
}

impl Execute<Router> for CreateSocket {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let mut path = self.filename.clone();
        let usual = router.part::<System>().map_or(Limits::DEFAULT, |s| s.startup.memif);
        if !path.starts_with(['/', '@'])
            && let Some(system) = router.part::<System>()
        {
            path = crate::daemon::runtime_dir(&system.startup.unix).join(path).to_string_lossy().into_owned();
        }
        let memif = memif(router).map_err(|e| system_error(&e))?;
        let config = SocketConfig {
            path,
            pool_buffers: self.zero_copy_buffers.unwrap_or(POOL_BUFFERS),
            limits: Limits {
                memory: self.max_memory.unwrap_or(usual.memory),
                regions: self.max_regions.unwrap_or(usual.regions),
                unsealed: self.unsealed || usual.unsealed,
            },
        };
        memif.add_socket_with(self.id, config).map_err(|e| memif_error(&e).value(&self.filename))?;
        Said::of(router).memif_sockets.insert(self.id, Entry::of(&self));
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Forgets a memif socket that no interface uses.
    pub change DeleteSocket "memif_socket_delete" ["delete memif socket"] {
        /// Number.
        pub id: u32 = "id <n>",
    }
}

impl Execute<Router> for DeleteSocket {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let memif = memif(router).map_err(|e| system_error(&e))?;
        memif.remove_socket(self.id).map_err(|e| memif_error(&e).value(self.id))?;
        Said::of(router).memif_sockets.remove(&self.id);
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Makes an interface to another process through shared memory.
    pub change CreateMemif "memif_create" ["create interface memif"] {
        /// Number on its socket.
        pub id: u32 = "id <n>" default(0),
        /// Number of its socket.
        pub socket_id: u32 = "socket-id <n>" default(0),
        /// Descriptors of a ring (slave).
        pub ring_size: Option<u32> = "ring-size <n>",
        /// Receive queues; for a master as many as threads forward, where absent.
        pub rx_queues: Option<usize> = "rx-queues <n>",
        /// Transmit queues (slave).
        pub tx_queues: Option<usize> = "tx-queues <n>",
        /// Bytes of a buffer in shared memory (slave).
        pub buffer_size: Option<u32> = "buffer-size <n>",
        /// MAC address; derived from the machine and the name where absent.
        pub mac: Option<[u8; 6]> = "hw-addr <mac>" unicast(),
        /// Listens instead of connecting.
        pub master: bool = "master|slave" default(false),
        /// IP packets without a link header.
        pub mode_ip: bool = "mode ip",
        /// What a slave must know.
        pub secret: Option<String> = "secret <s>",
        /// Packets from and to peers of one socket are not copied (slave); the peers then see each other's packets, and what
        /// earlier ones left in the buffers.
        pub zero_copy: bool = "zero-copy|no-zero-copy" default(false),
    } ignores {
        /// Packets are copied by the processor.
        "use-dma",
    }
}

impl CreateMemif {
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

impl Execute<Router> for CreateMemif {
    type Reply = CreatedMemif;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, CreatedMemif>, OpError> {
        if self.zero_copy && self.buffer_size.is_some() {
            return Err(OpError::invalid(
                "buffer-size",
                "zero-copy",
                "packets lie in the router's buffers: `buffers { default data-size … }'",
            ));
        }
        let config = self.config(router.graph.fleet().threads().len());
        let name = NewName { name: config.key.to_string(), key: "id", value: self.id.to_string() };
        let open = |router: &mut Router| memif(router).map_err(|e| system_error(&e))?.create(config).map_err(|e| memif_error(&e));
        let made = create_port_interface(router, &MEMIF, name, Some(MTU), open)?;
        router.made_by_entry(made.index(), Entry::of(&self).needing(socket_of(self.socket_id)));
        Ok(Outcome::Done(CreatedMemif(made)))
    }
}
