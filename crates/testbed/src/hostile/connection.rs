//! A connection that stands: frames through its rings, and words in them that should not be there.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::Ordering;

use rustix::net::accept;
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use super::{ACK, ANSWER, CONNECT, CONNECTED, COOKIE, Channel, HELLO, INIT, Memory, REGION, RING, event, memory};

/// A connection that stands, with one ring each way; rings of 64 slots where the attack has made them.
#[derive(Debug)]
pub struct Connection {
    /// Its control channel.
    pub channel: Channel,
    /// The only region.
    pub memory: Memory,
    /// Where the ring from the peer to the router lies.
    pub out: usize,
    /// Where the ring back lies.
    pub back: usize,
    /// Events that wake the router, and us.
    pub events: [OwnedFd; 2],
    /// Slots of each ring, a power of two.
    pub slots: u16,
}

/// Slots of a ring that the attack has made, as a power of two.
pub const LOG2: u8 = 6;
/// Slots of such a ring.
pub const SLOTS: u16 = 1 << LOG2;
/// Bytes of a buffer; a frame that is sent is no longer.
pub const BUFFER: u32 = 2048;

/// Bytes of a ring.
const fn ring_bytes(slots: u16) -> usize {
    128 + 16 * slots as usize
}

/// Where buffers begin: behind both rings.
const fn buffers(slots: u16) -> u32 {
    (2 * ring_bytes(slots) as u32).next_multiple_of(4096)
}

impl Connection {
    /// As a client of the router.
    ///
    /// # Errors
    /// What the router said instead.
    pub fn client(path: &Path, id: u32) -> Result<Self, String> {
        Self::client_with(path, id, [event(), event()])
    }

    /// As a client of the router, with events of one's own choice.
    ///
    /// # Errors
    /// What the router said instead.
    pub fn client_with(path: &Path, id: u32, events: [OwnedFd; 2]) -> Result<Self, String> {
        Self::client_of(path, id, events, LOG2)
    }

    /// As a client of the router, with rings of 2^`log2` slots.
    ///
    /// # Errors
    /// What the router said instead.
    pub fn client_of(path: &Path, id: u32, events: [OwnedFd; 2], log2: u8) -> Result<Self, String> {
        Self::announced(path, id, events, log2, |_, _| ())
    }

    /// As a client of the router that does something with its memory, whose length is told, before the router knows of it.
    ///
    /// # Errors
    /// What the router said instead.
    pub fn client_after(path: &Path, id: u32, before: impl FnOnce(&OwnedFd, usize)) -> Result<Self, String> {
        Self::announced(path, id, [event(), event()], LOG2, before)
    }

    fn announced(
        path: &Path,
        id: u32,
        events: [OwnedFd; 2],
        log2: u8,
        before: impl FnOnce(&OwnedFd, usize),
    ) -> Result<Self, String> {
        let slots = 1 << log2;
        let len = (buffers(slots) + 2 * u32::from(slots) * BUFFER) as usize;
        let memory = Memory::of(memory(len as u64), len);
        before(&memory.fd, len);
        let channel = Channel::begin(path, id)?;
        channel.region(0, len as u64, memory.fd.as_fd())?;
        let (out, back) = (0, ring_bytes(slots));
        for ring in [out, back] {
            memory.u32(ring).store(COOKIE, Ordering::Release);
        }
        channel.ring(true, (0, out as u32), log2, events[0].as_fd())?;
        channel.ring(false, (0, back as u32), log2, events[1].as_fd())?;
        let connection = Self { channel, memory, out, back, events, slots };
        connection.offer(0);
        connection.channel.connect()?;
        Ok(connection)
    }

    /// As a server that the router has connected to: it has the memory.
    ///
    /// # Errors
    /// What the router said instead.
    pub fn server(listener: &OwnedFd) -> Result<Self, String> {
        let channel = Channel(accept(listener).map_err(|e| e.to_string())?);
        set_socket_timeout(&channel.0, Timeout::Recv, Some(ANSWER)).map_err(|e| e.to_string())?;
        let (name, version) = ([0; 32], 0x200_u16.to_ne_bytes());
        let most = 255_u16.to_ne_bytes();
        let hello: [&[u8]; 7] = [&name, &version, &version, &most, &most, &most, &[14]];
        channel.say(HELLO, &hello, &[]).map_err(|e| e.to_string())?;
        let (mut memory, mut rings, mut events, mut log2) = (None, [0; 2], [None, None], 0);
        loop {
            let mut message = channel.hear().ok_or("the router has closed")?;
            match message.kind() {
                REGION => {
                    let fd = message.fds.pop().ok_or("no descriptor")?;
                    memory = Some(Memory::of(fd, message.number::<8>(4) as usize));
                }
                RING => {
                    // To the server is what comes back to us.
                    let k = usize::from(message.bytes[2] & 1 != 0);
                    rings[k] = message.number::<4>(8) as usize;
                    log2 = message.bytes[12];
                    events[k] = message.fds.pop();
                }
                CONNECT => break,
                INIT => {}
                other => return Err(format!("message {other}: {}", message.reason())),
            }
            channel.say(ACK, &[], &[]).map_err(|e| e.to_string())?;
        }
        channel.say(CONNECTED, &[b"hostile"], &[]).map_err(|e| e.to_string())?;
        let [Some(out), Some(back)] = events else { return Err("no events".into()) };
        let memory = memory.ok_or("no memory")?;
        Ok(Self { channel, memory, out: rings[0], back: rings[1], events: [out, back], slots: 1 << log2.min(14) })
    }

    fn descriptor(&self, ring: usize, slot: u16, flags: u16, region: u16, length: u32, offset: u32) {
        self.memory.descriptor(ring, slot, self.slots, flags, region, length, offset);
    }

    /// Where the buffer of a slot of the ring to the router lies.
    fn buffer(&self, slot: u16) -> u32 {
        buffers(self.slots) + u32::from(slot & (self.slots - 1)) * BUFFER
    }

    fn offer_slot(&self, slot: u16) {
        let offset = self.buffer(slot) + u32::from(self.slots) * BUFFER;
        self.descriptor(self.back, slot, 0, 0, BUFFER, offset);
    }

    /// Client: gives the router buffers to write to, all that there are but those not read yet.
    pub fn offer(&self, read: u16) {
        (0..self.slots).for_each(|slot| self.offer_slot(slot));
        self.memory.u16(self.back + 6).store(read.wrapping_add(self.slots - 1), Ordering::Release);
    }

    /// Client: takes what the router has sent since `read`, and offers the buffers again; how many packets.
    pub fn take(&self, read: &mut u16) -> u16 {
        let tail = self.memory.u16(self.back + 64).load(Ordering::Acquire);
        let mut packets = 0;
        for slot in 0..tail.wrapping_sub(*read) {
            let at = self.back + 128 + 16 * usize::from(read.wrapping_add(slot) & (self.slots - 1));
            // The last descriptor of a packet has no flag of another one.
            packets += u16::from(self.memory.u64(at).load(Ordering::Relaxed) & 1 == 0);
        }
        let head = self.memory.u16(self.back + 6).load(Ordering::Relaxed);
        *read = tail;
        let offered = tail.wrapping_add(self.slots - 1);
        (0..offered.wrapping_sub(head)).for_each(|k| self.offer_slot(head.wrapping_add(k)));
        self.memory.u16(self.back + 6).store(offered, Ordering::Release);
        packets
    }

    /// Client: shows the router `n` packets of 60 bytes, each where `place` says (region and offset).
    pub fn show(&self, n: u16, place: impl Fn(u16) -> (u16, u32)) {
        let head = self.memory.u16(self.out + 6).load(Ordering::Relaxed);
        for k in 0..n {
            let (region, offset) = place(k);
            self.descriptor(self.out, head.wrapping_add(k), 0, region, 60, offset);
        }
        self.memory.u16(self.out + 6).store(head.wrapping_add(n), Ordering::Release);
    }

    /// Client: sends up to `most` frames, as many as there is room for; how many. `make` writes each into the empty vector, of which
    /// at most a buffer is sent.
    pub fn send(&self, most: u16, scratch: &mut Vec<u8>, mut make: impl FnMut(&mut Vec<u8>)) -> u16 {
        let head = self.memory.u16(self.out + 6).load(Ordering::Relaxed);
        // What was written into the ring at random may have it say that more is pending than there are slots.
        let n = most.min(self.slots.saturating_sub(self.pending()));
        for k in 0..n {
            let slot = head.wrapping_add(k);
            scratch.clear();
            make(scratch);
            scratch.truncate(BUFFER as usize);
            let at = self.buffer(slot);
            self.memory.write(at as usize, scratch);
            self.descriptor(self.out, slot, 0, 0, scratch.len() as u32, at);
        }
        self.memory.u16(self.out + 6).store(head.wrapping_add(n), Ordering::Release);
        n
    }

    /// Wakes the router, if it sleeps.
    pub fn wake(&self) {
        if self.memory.u16(self.out + 4).load(Ordering::SeqCst) & 1 == 0 {
            let _ = rustix::io::write(&self.events[0], &1_u64.to_ne_bytes());
        }
    }

    /// Writes something into one of the rings that should not be there: any word, an index that may be, a descriptor that is nearly
    /// right.
    pub fn corrupt(&self, next: &mut impl FnMut() -> u64) {
        let ring = if next().is_multiple_of(2) { self.out } else { self.back };
        match next() % 12 {
            0 => self.memory.u16(ring + 6).store(next() as u16, Ordering::Release),
            1 => self.memory.u16(ring + 64).store(next() as u16, Ordering::Release),
            2 => self.memory.u16(ring + 4).store(next() as u16, Ordering::Release),
            // Indices that may be: the deeper paths are behind them.
            3..6 => {
                let tail = self.memory.u16(ring + 64).load(Ordering::Relaxed);
                let head = tail.wrapping_add((next() % (u64::from(self.slots) + 1)) as u16);
                self.memory.u16(ring + 6).store(head, Ordering::Release);
            }
            6..9 => {
                let at = ring + 128 + 8 * (next() % (2 * u64::from(self.slots))) as usize;
                self.memory.u64(at).store(next(), Ordering::Relaxed);
            }
            _ => {
                let (flags, region) = ((next() % 2) as u16, (next() % 2) as u16);
                let (length, offset) = ((next() % 9000) as u32, (next() % 300_000) as u32);
                self.descriptor(ring, next() as u16, flags, region, length, offset);
            }
        }
    }

    /// Packets that the router has not taken yet.
    pub fn pending(&self) -> u16 {
        let index = |at| self.memory.u16(self.out + at).load(Ordering::Acquire);
        index(6).wrapping_sub(index(64))
    }

    /// Whether the router has ended it.
    pub fn is_ended(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, poll};
        let mut fds = [PollFd::new(&self.channel.0, PollFlags::IN)];
        poll(&mut fds, Some(&rustix::fs::Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|n| n > 0)
    }
}
