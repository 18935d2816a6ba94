//! Rings of a connection, made by either end.

use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::event::Event;
use super::memory::{COOKIE, Region, Regions, Ring, ring_bytes};
use super::message::{AddRing, Hello, Message};
use super::rx::RxRing;
use super::tx::TxRing;
use super::zero_copy::Lending;
use super::{Buffers, LOG2_RING_MAX, MemifConfig};

/// All that a connection consists of, apart from its socket.
pub(super) struct Rings {
    pub regions: Regions,
    pub rx: Vec<RxRing>,
    pub tx: Vec<TxRing>,
}

/// A ring that a client has announced.
#[derive(Debug)]
pub(super) struct Announced {
    pub ring: AddRing,
    pub event: Arc<Event>,
}

impl std::fmt::Debug for Rings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Rings({} in, {} out)", self.rx.len(), self.tx.len())
    }
}

impl Rings {
    /// Server: what the client has announced.
    ///
    /// # Errors
    /// Rings that do not lie in the regions, or are none.
    pub fn of_peer(regions: Vec<Region>, to_server: &[Announced], to_client: &[Announced]) -> Result<Self, &'static str> {
        let regions: Regions = regions.into();
        let ring = |a: &Announced| {
            let AddRing { region, offset, log2_size, .. } = a.ring;
            let ring = Ring::new(&regions, region, offset, log2_size, Some(a.event.clone()))?;
            match ring.cookie().load(Ordering::Relaxed) {
                COOKIE => Ok(ring),
                _ => Err("no ring at the place announced"),
            }
        };
        let rx = to_server.iter().map(|a| Ok(RxRing::new(ring(a)?, None))).collect::<Result<_, &'static str>>()?;
        let tx = to_client.iter().map(|a| Ok(TxRing::new(ring(a)?, None))).collect::<Result<_, &'static str>>()?;
        Ok(Self { regions, rx, tx })
    }

    /// Client: memory with rings and a buffer for each descriptor.
    ///
    /// # Errors
    /// The operating system's.
    pub fn create(config: &MemifConfig, hello: &Hello, lending: Option<&Lending>) -> io::Result<Self> {
        let plan = Plan::of(config, Some(hello));
        if let Some(lending) = lending {
            return Self::create_lent(&plan, lending);
        }
        let bytes = usize::try_from(plan.bytes()).map_err(io::Error::other)?;
        let regions: Regions = vec![Region::create(bytes)?].into();
        let ring = |index: usize| -> io::Result<(Ring, Buffers)> {
            let event = Some(Arc::new(Event::new()?));
            let ring = Ring::new(&regions, 0, plan.ring_offset(index), plan.log2_size(index), event).map_err(io::Error::other)?;
            let offset = plan.buffer_offset(index);
            let base = NonNull::new(regions[0].address(offset as usize)).ok_or(io::ErrorKind::OutOfMemory)?;
            let own = Buffers { base, region: 0, stride: plan.stride, size: config.buffer_size };
            for slot in 0..ring.size() {
                own.offer(&ring, slot);
                ring.set_offset(slot, offset + u32::from(slot) * plan.stride);
            }
            ring.cookie().store(COOKIE, Ordering::Release);
            Ok((ring, own))
        };
        let tx = (0..plan.to_server).map(|k| ring(k).map(|(ring, own)| TxRing::new(ring, Some(own))));
        let tx = tx.collect::<io::Result<_>>()?;
        let rx = (0..plan.to_client).map(|k| ring(plan.to_server + k).map(|(ring, own)| RxRing::new(ring, Some(own))));
        Ok(Self { rx: rx.collect::<io::Result<_>>()?, tx, regions: regions.clone() })
    }

    /// Client: memory with rings alone; their slots name packet buffers.
    fn create_lent(plan: &Plan, lending: &Lending) -> io::Result<Self> {
        let bytes = plan.buffers_start() as usize;
        let regions: Regions = vec![Region::create(bytes)?, Region::of_pool(lending.clone())?].into();
        let ring = |index: usize| -> io::Result<Ring> {
            let event = Some(Arc::new(Event::new()?));
            let ring = Ring::new(&regions, 0, plan.ring_offset(index), plan.log2_size(index), event).map_err(io::Error::other)?;
            ring.cookie().store(COOKIE, Ordering::Release);
            Ok(ring)
        };
        let tx = (0..plan.to_server).map(|k| Ok(TxRing::lent(ring(k)?, lending.clone())));
        let tx = tx.collect::<io::Result<_>>()?;
        let rx = (0..plan.to_client).map(|k| Ok(RxRing::lent(ring(plan.to_server + k)?, lending.clone())));
        Ok(Self { rx: rx.collect::<io::Result<_>>()?, tx, regions: regions.clone() })
    }

    /// Client: the messages that announce all of this, each with its descriptor.
    pub fn announce(&self) -> io::Result<Vec<(Message, Option<OwnedFd>)>> {
        let mut messages = Vec::new();
        for (index, region) in self.regions.iter().enumerate() {
            let fd = region.fd().map(OwnedFd::try_clone).transpose()?;
            messages.push((Message::AddRegion { index: index as u16, size: region.len() as u64 }, fd));
        }
        let tx = self.tx.iter().map(|r| &r.ring).enumerate().map(|(k, ring)| (k, ring, true));
        let rx = self.rx.iter().map(|r| &r.ring).enumerate().map(|(k, ring)| (k, ring, false));
        for (index, ring, to_server) in tx.chain(rx) {
            let (region, offset) = ring.place();
            let ring_message =
                AddRing { to_server, index: index as u16, region, offset, log2_size: ring.log2_size(), private_header: 0 };
            let event = ring.event().and_then(|e| e.fd()).map(|fd| fd.try_clone_to_owned()).transpose()?;
            messages.push((Message::AddRing(ring_message), event));
        }
        Ok(messages)
    }

    /// Packets may flow.
    pub fn begin(&mut self) {
        self.rx.iter_mut().for_each(RxRing::begin);
        self.tx.iter_mut().for_each(TxRing::begin);
    }
}

/// How a client lays its memory out: all rings, then all buffers.
struct Plan {
    to_server: usize,
    to_client: usize,
    /// Of a ring to the server, and of one to the client.
    log2_sizes: [u8; 2],
    stride: u32,
}

impl Plan {
    fn of(config: &MemifConfig, hello: Option<&Hello>) -> Self {
        let most = |rings: u16| usize::from(rings) + 1;
        Self {
            to_server: config.tx_queues.min(hello.map_or(usize::MAX, |h| most(h.max_to_server_ring))),
            to_client: config.rx_queues.min(hello.map_or(usize::MAX, |h| most(h.max_to_client_ring))),
            log2_sizes: [config.ring_size, config.rx_ring()]
                .map(|size| (size.trailing_zeros() as u8).min(hello.map_or(LOG2_RING_MAX, |h| h.max_log2_ring_size))),
            // An odd number of cache lines: at 2,048 bytes the first lines of all buffers share two sets of the first cache.
            stride: (config.buffer_size.div_ceil(64) | 1) * 64,
        }
    }

    /// Of the ring at `index`: those to the server come first.
    fn log2_size(&self, index: usize) -> u8 {
        self.log2_sizes[usize::from(index >= self.to_server)]
    }

    /// What the rings before `index` take, where each takes as much as `bytes` says of its size.
    fn before(&self, index: usize, bytes: impl Fn(u8) -> u64) -> u64 {
        (0..index).map(|ring| bytes(self.log2_size(ring))).sum()
    }

    fn ring_offset(&self, index: usize) -> u32 {
        self.before(index, |size| ring_bytes(size).next_multiple_of(128) as u64) as u32
    }

    fn buffers_start(&self) -> u64 {
        u64::from(self.ring_offset(self.to_server + self.to_client)).next_multiple_of(4096)
    }

    fn buffers_before(&self, index: usize) -> u64 {
        self.buffers_start() + self.before(index, |size| u64::from(self.stride) << size)
    }

    fn buffer_offset(&self, index: usize) -> u32 {
        // `MemifConfig::check` has made sure that everything lies below 4 GB.
        self.buffers_before(index) as u32
    }

    fn bytes(&self) -> u64 {
        self.buffers_before(self.to_server + self.to_client)
    }
}

/// Bytes of shared memory that a client needs at most.
pub(super) fn memory_bytes(config: &MemifConfig) -> u64 {
    Plan::of(config, None).bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memif::Key;

    #[test]
    fn buffers_lie_an_odd_number_of_cache_lines_apart_and_inside_the_memory() {
        for buffer_size in [64, 100, 128, 2048, 2112, 9216, 65_535] {
            let rx_ring_size = (buffer_size < 1000).then_some(4096);
            let config = MemifConfig { buffer_size, ring_size: 1024, rx_ring_size, ..MemifConfig::new(Key { socket: 0, id: 0 }) };
            let plan = Plan::of(&config, None);
            assert!(plan.stride >= buffer_size && plan.stride % 128 == 64, "{buffer_size}: {}", plan.stride);
            let last = plan.to_server + plan.to_client - 1;
            let slots = u64::from(rx_ring_size.unwrap_or(1024));
            assert_eq!(u64::from(plan.buffer_offset(last)) + slots * u64::from(plan.stride), plan.bytes());
            assert_eq!(u64::from(plan.buffer_offset(last) - plan.buffer_offset(0)), 1024 * u64::from(plan.stride));
            assert!(plan.ring_offset(1) as usize >= ring_bytes(10) && plan.ring_offset(1).is_multiple_of(128));
        }
    }
}
