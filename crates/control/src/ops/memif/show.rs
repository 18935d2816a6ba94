//! `show memif`.

use std::fmt::Write as _;

use quiver_command::grammar::IfRef;
use quiver_command::operation::{OpError, Outcome, Registry, Text, View, retval};
use quiver_command::request;
use quiver_command::request::Execute;
use quiver_drivers::memif::{DescriptorInfo, InterfaceInfo, Limits, Memif, Mode, RingInfo, Role, demotes};
use quiver_net::Router;
use quiver_net::interface::ops::resolve;
use serde::Serialize;

use super::{memif, system_error};

pub(super) fn register(registry: &mut Registry<Router>) {
    registry.declare::<ShowMemif>();
}

request! {
    /// Shows memif sockets, interfaces, their memory and rings.
    pub read ShowMemif "memif_show" ["show memif"] {
        /// Which interfaces; all where empty.
        pub interfaces: Vec<IfRef> = "<if>",
        /// Descriptors of the rings, too.
        pub descriptors: bool = "descriptors",
    }
}

/// A socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SocketRow {
    /// Number.
    pub id: u32,
    /// Whether somebody listens there.
    pub listener: bool,
    /// Path.
    pub filename: String,
    /// Bytes of memory, but for huge pages, that each of its peers may have mapped.
    pub max_memory: u64,
    /// Regions that each of its peers may have.
    pub max_regions: usize,
    /// Whether it takes memory that cannot be sealed.
    pub unsealed: bool,
    /// Why it takes no clients for now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<String>,
    /// What is being received from its peers, or closed that came from them, at this moment.
    pub unfinished: usize,
}

/// A region.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RegionRow {
    /// Bytes.
    pub size: usize,
    /// Descriptor.
    pub fd: i32,
}

/// A descriptor in a ring.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DescriptorRow {
    /// Flags.
    pub flags: u16,
    /// Region.
    pub region: u16,
    /// Bytes.
    pub length: u32,
    /// Where in the region.
    pub offset: u32,
}

/// A ring.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RingRow {
    /// Packets go from slave to master.
    pub to_master: bool,
    /// Number.
    pub ring: usize,
    /// Region.
    pub region: u16,
    /// Where in the region.
    pub offset: u32,
    /// Descriptors.
    pub size: u16,
    /// Event descriptor.
    pub event_fd: i32,
    /// Slave's index.
    pub head: u16,
    /// Master's index.
    pub tail: u16,
    /// Flags.
    pub flags: u16,
    /// Descriptors, where asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub descriptors: Vec<DescriptorRow>,
}

/// An interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MemifRow {
    /// Name.
    pub interface: String,
    /// Number of its socket.
    pub socket_id: u32,
    /// Number on it.
    pub id: u32,
    /// `ethernet` or `ip`.
    pub mode: &'static str,
    /// Flags in words.
    pub flags: Vec<&'static str>,
    /// Peer's program.
    pub remote_name: String,
    /// Peer's interface.
    pub remote_interface: String,
    /// Why there is no connection.
    pub reason: String,
    /// Descriptor of the control channel.
    pub connection_fd: Option<i32>,
    /// Bytes of a buffer; 0 for a master.
    pub buffer_size: u32,
    /// Regions.
    pub regions: Vec<RegionRow>,
    /// Rings.
    pub rings: Vec<RingRow>,
}

impl MemifRow {
    fn of(info: InterfaceInfo) -> Self {
        let server = info.role == Role::Server;
        let flags = [
            (info.up, "admin-up"),
            (!server, "slave"),
            (info.zero_copy, "zero-copy"),
            (info.connecting, "connecting"),
            (info.connected, "connected"),
        ];
        let descriptor = |d: DescriptorInfo| DescriptorRow { flags: d.flags, region: d.region, length: d.length, offset: d.offset };
        let ring = |r: RingInfo| RingRow {
            to_master: r.to_server,
            ring: r.number,
            region: r.region,
            offset: r.offset,
            size: r.size,
            event_fd: r.event,
            head: r.head,
            tail: r.tail,
            flags: r.flags,
            descriptors: r.descriptors.into_iter().map(descriptor).collect(),
        };
        Self {
            interface: info.key.to_string(),
            socket_id: info.key.socket,
            id: info.key.id,
            mode: if info.mode == Mode::Ip { "ip" } else { "ethernet" },
            flags: flags.into_iter().filter(|(on, _)| *on).map(|(_, word)| word).collect(),
            remote_name: info.remote,
            remote_interface: info.remote_interface,
            reason: info.reason,
            connection_fd: info.channel,
            buffer_size: if server { 0 } else { info.buffer_size },
            regions: info.regions.into_iter().map(|r| RegionRow { size: r.size, fd: r.fd }).collect(),
            rings: info.rings.into_iter().map(ring).collect(),
        }
    }

    fn write(&self, out: &mut String) {
        let _ = writeln!(out, "interface {}", self.interface);
        if !self.remote_name.is_empty() {
            let _ = writeln!(out, "  remote-name \"{}\"", self.remote_name);
        }
        if !self.remote_interface.is_empty() {
            let _ = writeln!(out, "  remote-interface \"{}\"", self.remote_interface);
        }
        let _ = writeln!(out, "  socket-id {} id {} mode {}", self.socket_id, self.id, self.mode);
        let _ = writeln!(out, "  flags {}", self.flags.join(" "));
        if !self.reason.is_empty() {
            let _ = writeln!(out, "  last disconnect: {}", self.reason);
        }
        let Some(fd) = self.connection_fd else { return };
        let _ = writeln!(out, "  conn-fd {fd}");
        let count = |to_master| self.rings.iter().filter(|r| r.to_master == to_master).count();
        let _ = writeln!(
            out,
            "  num-s2m-rings {} num-m2s-rings {} buffer-size {} num-regions {}",
            count(true),
            count(false),
            self.buffer_size,
            self.regions.len()
        );
        for (number, region) in self.regions.iter().enumerate() {
            let _ = writeln!(out, "  region {number} size {} fd {}", region.size, region.fd);
        }
        for ring in &self.rings {
            ring.write(out);
        }
    }
}

impl RingRow {
    fn write(&self, out: &mut String) {
        let direction = if self.to_master { "slave-to-master" } else { "master-to-slave" };
        let _ = writeln!(out, "    {direction} ring {}:", self.ring);
        let _ =
            writeln!(out, "      region {} offset {} ring-size {} int-fd {}", self.region, self.offset, self.size, self.event_fd);
        let _ = writeln!(out, "      head {} tail {} flags 0x{:04x}", self.head, self.tail, self.flags);
        if self.descriptors.is_empty() {
            return;
        }
        out.push_str("      descriptor table:\n      id    flags   len         offset      region\n");
        for (id, d) in self.descriptors.iter().enumerate() {
            let _ = writeln!(out, "      {id:<5} 0x{:04x}  {:<11} 0x{:08x}  {}", d.flags, d.length, d.offset, d.region);
        }
    }
}

/// The answer of [`ShowMemif`].
#[derive(Debug, Clone, Serialize)]
pub struct MemifList {
    /// Sockets.
    pub sockets: Vec<SocketRow>,
    /// Interfaces.
    pub interfaces: Vec<MemifRow>,
    /// Whether lines that were written for a peer are moved to the cache that all cores share: `true` where the processor says so,
    /// `null` where it does not say.
    pub demotes: Option<bool>,
}

const fn demoted(demotes: Option<bool>) -> &'static str {
    match demotes {
        Some(true) => "yes",
        Some(false) => "no",
        None => "if the processor can, which it does not say",
    }
}

impl Text for MemifList {
    fn text(&self, out: &mut String, _: &View) {
        if !self.sockets.is_empty() {
            out.push_str("sockets\n");
            let _ = writeln!(out, "  id  listener    filename");
            for socket in &self.sockets {
                let listener = if socket.listener { "yes" } else { "no" };
                let _ = writeln!(out, "  {:<3} {listener:<11} {}", socket.id, socket.filename);
                let usual = Limits::DEFAULT;
                if (socket.max_memory, socket.max_regions) != (usual.memory, usual.regions) {
                    let _ = writeln!(out, "      max-memory {} max-regions {}", socket.max_memory, socket.max_regions);
                }
                if socket.unsealed {
                    out.push_str("      takes memory that cannot be sealed\n");
                }
                if let Some(reason) = &socket.paused {
                    let _ = writeln!(out, "      takes no clients: {reason}");
                }
            }
            let _ = writeln!(out, "  lines written for peers are demoted: {}", demoted(self.demotes));
            out.push('\n');
        }
        for interface in &self.interfaces {
            interface.write(out);
        }
    }
}

impl Execute<Router> for ShowMemif {
    type Reply = MemifList;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, MemifList>, OpError> {
        let mut wanted = Vec::new();
        for name in &self.interfaces {
            let index = resolve(router, name)?;
            wanted.push((name, router.interfaces.name(index)));
        }
        let memif = memif(router).map_err(|e| system_error(&e))?;
        let keys = memif.keys();
        if let Some((name, _)) = wanted.iter().find(|(_, w)| !keys.iter().any(|k| k.to_string() == *w)) {
            let error = OpError::new(retval::INVALID_INTERFACE, format!("{name} is not a memif interface"));
            return Err(error.key("interface").value(name));
        }
        let look = if self.descriptors { Memif::interface_with_descriptors } else { Memif::interface };
        let chosen = keys.iter().filter(|k| wanted.is_empty() || wanted.iter().any(|(_, w)| k.to_string() == *w));
        let interfaces = chosen.filter_map(|k| look(&memif, *k)).map(MemifRow::of).collect();
        let socket = |s: quiver_drivers::memif::SocketInfo| SocketRow {
            id: s.id,
            listener: s.listens,
            filename: s.path,
            max_memory: s.limits.memory,
            max_regions: s.limits.regions,
            unsealed: s.limits.unsealed,
            paused: s.paused,
            unfinished: s.unfinished,
        };
        let sockets = if wanted.is_empty() { memif.sockets().into_iter().map(socket).collect() } else { Vec::new() };
        Ok(Outcome::Done(MemifList { sockets, interfaces, demotes: demotes() }))
    }
}
