//! What `show memif` shows.

use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;

use super::hub::Interface;
use super::memory::Ring;
use super::{Key, Memif, Mode, Role};

/// A region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionInfo {
    /// Bytes.
    pub size: usize,
    /// Descriptor.
    pub fd: i32,
}

/// A descriptor of a ring as it stands in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorInfo {
    /// Flags.
    pub flags: u16,
    /// Region.
    pub region: u16,
    /// Bytes.
    pub length: u32,
    /// Where in the region.
    pub offset: u32,
}

/// A ring as it stands in shared memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingInfo {
    /// Packets go from client to server.
    pub to_server: bool,
    /// Number among those of its direction.
    pub number: usize,
    /// Region.
    pub region: u16,
    /// Where in the region.
    pub offset: u32,
    /// Descriptors.
    pub size: u16,
    /// Event descriptor.
    pub event: i32,
    /// Client's index.
    pub head: u16,
    /// Server's index.
    pub tail: u16,
    /// Flags.
    pub flags: u16,
    /// Descriptors, where they were asked for.
    pub descriptors: Vec<DescriptorInfo>,
}

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceInfo {
    /// What it is known by.
    pub key: Key,
    /// Its socket's file.
    pub path: String,
    /// Which end.
    pub role: Role,
    /// What it carries.
    pub mode: Mode,
    /// Administratively up.
    pub up: bool,
    /// Packets flow.
    pub connected: bool,
    /// A peer is there, but packets do not flow yet.
    pub connecting: bool,
    /// Peer's program.
    pub remote: String,
    /// Peer's interface.
    pub remote_interface: String,
    /// Why there is no connection.
    pub reason: String,
    /// Descriptor of the control channel.
    pub channel: Option<i32>,
    /// Bytes of a buffer (client).
    pub buffer_size: u32,
    /// Packets lie where the peer sees them (client).
    pub zero_copy: bool,
    /// Regions.
    pub regions: Vec<RegionInfo>,
    /// Rings, those to the client first.
    pub rings: Vec<RingInfo>,
}

fn ring_info(ring: &Ring, to_server: bool, number: usize, descriptors: bool) -> RingInfo {
    let (region, offset) = ring.place();
    let descriptor = |slot| {
        let d = ring.descriptor(slot);
        DescriptorInfo { flags: d.flags, region: d.region, length: d.length, offset: d.offset }
    };
    RingInfo {
        to_server,
        number,
        region,
        offset,
        size: ring.size(),
        event: ring.event().and_then(|e| e.fd()).map_or(-1, |fd| fd.as_raw_fd()),
        head: ring.head().load(Ordering::Relaxed),
        tail: ring.tail().load(Ordering::Relaxed),
        flags: ring.flags().load(Ordering::Relaxed),
        descriptors: if descriptors { (0..ring.size()).map(descriptor).collect() } else { Vec::new() },
    }
}

impl Interface {
    fn rings(&self, descriptors: bool) -> Vec<RingInfo> {
        let server = self.config.role == Role::Server;
        let mut rings = Vec::new();
        let queues = self.rx.len();
        for (queue, slot) in self.rx.iter().enumerate() {
            slot.with(|all| {
                let infos = all.iter().enumerate().map(|(k, r)| ring_info(&r.ring, server, queue + k * queues, descriptors));
                rings.extend(infos);
            });
        }
        self.tx.each(|k, r| rings.push(ring_info(&r.ring, !server, k, descriptors)));
        rings.sort_by_key(|r| (r.to_server, r.number));
        rings
    }
}

impl Memif {
    /// An interface; `None` where there is none.
    pub fn interface(&self, key: Key) -> Option<InterfaceInfo> {
        self.look(key, false)
    }

    /// An interface with the descriptors of its rings.
    pub fn interface_with_descriptors(&self, key: Key) -> Option<InterfaceInfo> {
        self.look(key, true)
    }

    fn look(&self, key: Key, descriptors: bool) -> Option<InterfaceInfo> {
        let path = self.sockets().into_iter().find(|s| s.id == key.socket)?.path;
        let hub = self.0.borrow();
        let interface = hub.interfaces.get(&key)?;
        let regions = interface.regions.iter().flat_map(|all| all.iter());
        Some(InterfaceInfo {
            key,
            path,
            role: interface.config.role,
            mode: interface.config.mode,
            up: interface.up,
            connected: interface.regions.is_some(),
            connecting: interface.regions.is_none() && interface.channel.is_some(),
            remote: interface.remote.clone(),
            remote_interface: interface.remote_interface.clone(),
            reason: interface.reason.clone(),
            channel: interface.channel.and_then(|token| hub.channel_fd(token)),
            buffer_size: match hub.sockets.get(&key.socket).and_then(|s| s.lending.as_ref()).filter(|_| interface.config.zero_copy)
            {
                Some(lending) => lending.room(),
                None => interface.config.buffer_size,
            },
            zero_copy: interface.config.zero_copy,
            regions: regions.map(|r| RegionInfo { size: r.len(), fd: r.fd().map_or(-1, AsRawFd::as_raw_fd) }).collect(),
            rings: interface.rings(descriptors),
        })
    }

    /// What all interfaces are known by.
    pub fn keys(&self) -> Vec<Key> {
        self.0.borrow().interfaces.keys().copied().collect()
    }
}
