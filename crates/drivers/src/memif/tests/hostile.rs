//! Peers that do not keep the rules: on the socket and in shared memory.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::Instant;

use proptest::prelude::*;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create};

use rustix::io::Errno;

use super::*;
use crate::memif::background::Background;
use crate::memif::event::new_event;
use crate::memif::memory::{COOKIE, Region, Regions, Ring, SEALED_BEFORE, UNSEALED, ring_bytes};
use crate::memif::message::{AddRing, Init, Message, VERSION};
use crate::memif::socket::{self, Received};

/// A peer made by hand: it says and writes what the test wants.
struct Peer {
    fd: OwnedFd,
}

impl Peer {
    fn dial(folder: &Folder) -> Self {
        Self { fd: socket::dial(&folder.socket()).unwrap() }
    }

    fn say(&self, message: &Message, fd: Option<&OwnedFd>) {
        use std::os::fd::AsFd;
        let _ = socket::send(&self.fd, message, fd.map(|f| f.as_fd()));
    }

    /// The next message, with the server working.
    fn hear(&self, end: &mut End) -> Option<Message> {
        let deadline = Instant::now() + LONG;
        while Instant::now() < deadline {
            end.memif.run();
            match socket::receive(&self.fd) {
                Received::Bytes(bytes, _) => return Message::parse(&bytes).ok(),
                Received::Nothing => wait(end),
                Received::End => return None,
            }
        }
        None
    }

    fn init(&self, end: &mut End) {
        assert!(matches!(self.hear(end), Some(Message::Hello(_))));
        self.say(&Message::Init(Init { version: VERSION, id: KEY.id, ..Init::default() }), None);
        assert_eq!(self.hear(end), Some(Message::Ack));
    }

    /// Says something wrong and hears why.
    fn refused(&self, end: &mut End, message: &Message, fd: Option<&OwnedFd>) -> String {
        self.say(message, fd);
        match self.hear(end) {
            Some(Message::Disconnect { reason, .. }) => reason,
            other => panic!("{message:?} was answered by {other:?}"),
        }
    }
}

/// Until the control side has something to do.
fn wait(end: &End) {
    let _ = crate::sys::wait_readable(&end.memif.fd().unwrap(), 100);
}

fn memory(len: u64) -> OwnedFd {
    let fd = memfd_create(c"peer", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&fd, len).unwrap();
    fd
}

fn up(folder: &Folder) -> End {
    let mut s = End::new(folder, server());
    s.port.set_up(true).unwrap();
    s
}

#[test]
fn every_wrong_message_ends_only_its_own_connection() {
    let folder = Folder::new();
    let mut s = up(&folder);
    let region = |index, size| Message::AddRegion { index, size };
    let ring = |ring| Message::AddRing(ring);
    let event = new_event().unwrap();
    let first = AddRing { to_server: true, log2_size: 4, ..AddRing::default() };
    for (message, fd, reason) in [
        (Message::Ack, None, "unexpected message"),
        (Message::Init(Init::default()), None, "unexpected message"),
        (Message::Connected("x".into()), None, "unexpected message"),
        (region(1, 4096), Some(memory(4096)), "unexpected region index"),
        (region(0, 4096), None, "missing region descriptor"),
        (region(0, 4097), Some(memory(4096)), "region size is not that of its file"),
        (region(0, 0), Some(memory(4096)), "region size is not that of its file"),
        (region(0, 64), Some(std::fs::File::open("/proc/self/exe").unwrap().into()), "region is not a memory file"),
        (ring(first), None, "missing event descriptor"),
        (ring(first), Some(memory(64)), "event descriptor is not an eventfd"),
        (ring(AddRing { index: 1, ..first }), Some(event.try_clone().unwrap()), "unexpected ring index"),
        (ring(AddRing { log2_size: 15, ..first }), Some(event.try_clone().unwrap()), "ring is too large"),
        (ring(AddRing { private_header: 1, ..first }), Some(event.try_clone().unwrap()), "private headers are not supported"),
    ] {
        let peer = Peer::dial(&folder);
        peer.init(&mut s);
        assert_eq!(peer.refused(&mut s, &message, fd.as_ref()), reason, "{message:?}");
    }
    // Rings that do not lie in a region show when all has been said.
    for (announced, reason) in [
        (first, "no ring at the place announced"),
        (AddRing { region: 1, ..first }, "ring in an unknown region"),
        (AddRing { offset: 4096, ..first }, "ring does not fit its region"),
        (AddRing { offset: 4, ..first }, "ring is not aligned"),
    ] {
        let peer = Peer::dial(&folder);
        peer.init(&mut s);
        peer.say(&region(0, 4096), Some(&memory(4096)));
        assert_eq!(peer.hear(&mut s), Some(Message::Ack));
        peer.say(&ring(announced), Some(&event));
        assert_eq!(peer.hear(&mut s), Some(Message::Ack));
        assert_eq!(peer.refused(&mut s, &Message::Connect("x".into()), None), reason);
    }
    assert!(!s.is_up());
    let mut c = End::new(&folder, client());
    connect(&mut s, &mut c);
}

#[test]
fn silent_and_many_clients_do_not_keep_others_out() {
    let folder = Folder::new();
    let mut s = up(&folder);
    let silent: Vec<Peer> = (0..200)
        .map(|_| {
            let p = Peer::dial(&folder);
            s.memif.run();
            p
        })
        .collect();
    let mut c = End::new(&folder, client());
    connect(&mut s, &mut c);
    drop(silent);
    fuzzing::settle(&s.memif);
    assert!(c.is_up() && s.is_up());
}

/// What a hostile client does to a server's rings after it has connected.
fn attacked(attack: impl Fn(&Ring)) -> (End, End, Folder) {
    let folder = Folder::new();
    let mut s = End::new(&folder, server());
    let mut c = End::new(&folder, MemifConfig { ring_size: 16, ..client() });
    connect(&mut s, &mut c);
    c.memif.0.borrow().interfaces[&KEY].tx.each(|_, r| attack(&r.ring));
    (s, c, folder)
}

#[test]
fn bad_descriptors_are_counted_and_skipped() {
    for (region, length, offset) in
        [(1, 60, 0), (0xffff, 60, 0), (0, 60, u32::MAX), (0, u32::MAX, 0), (0, u32::MAX, u32::MAX), (0, 70_000, 0)]
    {
        let (mut s, c, _folder) = attacked(|ring| {
            ring.set_first(0, 0, region, length);
            ring.set_offset(0, offset);
            ring.head().store(1, Ordering::Release);
        });
        assert!(s.poll_all().is_empty(), "{region} {length} {offset}");
        assert_eq!(s.counter("rx-error"), 1);
        s.memif.run();
        assert!(s.is_up(), "a bad packet is the packet's affair");
        assert_eq!(s.info().rings.iter().find(|r| r.to_server).unwrap().tail, 1, "it is given back");
        c.memif.run();
        s.assert_pool_is_whole();
    }
}

#[test]
fn a_chain_that_never_ends_is_skipped_whole() {
    let (mut s, _c, _folder) = attacked(|ring| {
        (0..16).for_each(|k| ring.set_first(k, 1, 0, 10));
        ring.head().store(16, Ordering::Release);
    });
    assert!(s.poll_all().is_empty());
    assert_eq!(s.counter("rx-error"), 1);
    assert_eq!(s.info().rings.iter().find(|r| r.to_server).unwrap().tail, 16);
    // Part of one is left alone until the rest is there.
    let (mut s, c, _folder) = attacked(|ring| {
        ring.set_first(0, 1, 0, 10);
        ring.head().store(1, Ordering::Release);
    });
    assert!(s.poll_all().is_empty());
    c.memif.0.borrow().interfaces[&KEY].tx.each(|_, r| {
        r.ring.set_first(1, 0, 0, 20);
        r.ring.head().store(2, Ordering::Release);
    });
    assert_eq!(s.poll_all().iter().map(Vec::len).collect::<Vec<_>>(), [30]);
    assert_eq!(s.counter("rx-error"), 0);
}

#[test]
fn an_impossible_index_ends_the_connection_and_the_next_one_works() {
    for head in [17, 0x8000, 0xffff] {
        let (mut s, mut c, _folder) = attacked(|ring| ring.head().store(head, Ordering::Release));
        assert!(s.poll_all().is_empty());
        run_until(&mut [&mut s, &mut c], "end", |e| e[0].info().reason.contains("index"));
        run_until(&mut [&mut s, &mut c], "reconnection", |e| e.iter_mut().all(|e| e.is_up()));
        c.send(&[frame(1, 60)]);
        assert_eq!(s.poll_all(), [frame(1, 60)]);
        s.assert_pool_is_whole();
    }
}

#[test]
fn a_server_cannot_move_a_clients_buffers() {
    let folder = Folder::new();
    let mut s = End::new(&folder, server());
    let mut c = End::new(&folder, MemifConfig { ring_size: 16, ..client() });
    connect(&mut s, &mut c);
    // The server turns every descriptor of the client round, in both rings.
    for slot in &s.memif.0.borrow().interfaces[&KEY].rx {
        slot.with(|rings| (0..16).for_each(|k| rings[0].ring.set_offset(k, u32::MAX)));
    }
    s.memif.0.borrow().interfaces[&KEY].tx.each(|_, r| {
        r.ring.set_first(0, 0, 99, 60);
        r.ring.set_offset(0, u32::MAX);
        r.ring.set_first(1, 0, 0, 5000);
        r.ring.tail().store(2, Ordering::Release);
    });
    c.send(&[frame(1, 60)]);
    let got = c.poll_all();
    assert_eq!(got.iter().map(Vec::len).collect::<Vec<_>>(), [60], "what is longer than the buffer is skipped");
    assert_eq!(c.counter("rx-error"), 1);
    c.assert_pool_is_whole();
}

/// Connects with this file as memory; the answer to CONNECT.
fn with_memory(folder: &Folder, s: &mut End, file: &OwnedFd) -> (Peer, Option<Message>) {
    let peer = Peer::dial(folder);
    peer.init(s);
    let background = Background::new(Arc::new(new_event().unwrap()));
    let regions: Regions = vec![Region::of_peer(file.try_clone().unwrap(), 1 << 16, &background).unwrap()].into();
    let event = new_event().unwrap();
    peer.say(&Message::AddRegion { index: 0, size: 1 << 16 }, Some(file));
    assert_eq!(peer.hear(s), Some(Message::Ack));
    for to_server in [true, false] {
        let offset = if to_server { 0 } else { ring_bytes(4) as u32 };
        let ring = Ring::new(&regions, 0, offset, 4, None).unwrap();
        ring.cookie().store(COOKIE, Ordering::Release);
        let announced = AddRing { to_server, offset, log2_size: 4, ..AddRing::default() };
        peer.say(&Message::AddRing(announced), Some(&event));
        assert_eq!(peer.hear(s), Some(Message::Ack));
    }
    peer.say(&Message::Connect("hand".into()), None);
    let answer = peer.hear(s);
    (peer, answer)
}

#[test]
fn memory_that_vanishes_ends_the_connection() {
    let folder = Folder::new();
    let mut s = up(&folder);
    let file = memory(1 << 16);
    let (_peer, answer) = with_memory(&folder, &mut s, &file);
    assert!(matches!(answer, Some(Message::Connected(_))));
    assert!(s.is_up());
    ftruncate(&file, 0).unwrap();
    s.poll_all();
    s.send(&[frame(1, 60)]);
    run_until(&mut [&mut s], "end", |e| !e[0].is_up());
    s.assert_pool_is_whole();
}

/// Takes pages out of a file, one way and the other.
fn take_pages(file: &OwnedFd) -> [rustix::io::Result<()>; 2] {
    [fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 4096), ftruncate(file, 0)]
}

#[test]
fn nobody_takes_pages_out_of_memory_that_a_server_uses() {
    let folder = Folder::new();
    let mut s = End::wary(&folder, server());
    s.port.set_up(true).unwrap();
    let file = memfd_create(c"peer", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&file, 1 << 16).unwrap();
    let (peer, answer) = with_memory(&folder, &mut s, &file);
    assert!(matches!(answer, Some(Message::Connected(_))), "{answer:?}");
    assert_eq!(take_pages(&file), [Err(Errno::PERM); 2]);
    assert!(s.is_up());
    drop(peer);
    run_until(&mut [&mut s], "end", |e| !e[0].is_up());
    // Sealed, it cannot be written by somebody who maps it now.
    let peer = Peer::dial(&folder);
    peer.init(&mut s);
    let reason = peer.refused(&mut s, &Message::AddRegion { index: 0, size: 1 << 16 }, Some(&file));
    assert_eq!(reason, SEALED_BEFORE);
    // Not to be sealed at all, or not enough.
    let (_, answer) = with_memory(&folder, &mut s, &memory(1 << 16));
    assert!(matches!(&answer, Some(Message::Disconnect { reason, .. }) if reason == UNSEALED), "{answer:?}");
    let half = memfd_create(c"peer", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&half, 1 << 16).unwrap();
    fcntl_add_seals(&half, SealFlags::SHRINK | SealFlags::SEAL).unwrap();
    let (_, answer) = with_memory(&folder, &mut s, &half);
    assert!(matches!(&answer, Some(Message::Disconnect { reason, .. }) if reason == UNSEALED), "{answer:?}");
    assert!(!s.is_up());
}

#[test]
fn nobody_takes_pages_out_of_memory_that_a_client_has_shown() {
    let folder = Folder::new();
    let mut s = End::new(&folder, server());
    let mut c = End::wary(&folder, client());
    connect(&mut s, &mut c);
    let shown = |c: &End| {
        let hub = c.memif.0.borrow();
        hub.interfaces[&KEY].regions.as_ref().unwrap()[0].fd().unwrap().try_clone().unwrap()
    };
    assert_eq!(take_pages(&shown(&c)), [Err(Errno::PERM); 2]);
    c.send(&[frame(1, 60)]);
    assert_eq!(s.poll_all(), [frame(1, 60)]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever a peer writes into the rings, at whatever moment: nothing but counts and ends of connections.
    #[test]
    fn any_bytes_in_the_rings_are_survived(words in proptest::collection::vec((0_u16..16, any::<u64>(), any::<u32>()), 1..40), heads in proptest::collection::vec(any::<u16>(), 1..8), small in any::<bool>(), zero_copy in any::<bool>()) {
        for hostile_client in [true, false] {
            let folder = Folder::new();
            let mut s = End::new(&folder, server());
            let mut c = End::new(&folder, MemifConfig { ring_size: 16, buffer_size: 128, zero_copy, ..client() });
            connect(&mut s, &mut c);
            for head in &heads {
                let (villain, victim) = if hostile_client { (&mut c, &mut s) } else { (&mut s, &mut c) };
                let scribble = |ring: &Ring| {
                    for (slot, first, offset) in &words {
                        // Half of the cases stay close to what is allowed, so that the deeper paths are reached.
                        let (flags, region, length) = (*first as u16, (first >> 16) as u16, (first >> 32) as u32);
                        let (flags, region, length, offset) =
                            if small { (flags & 1, region % 2, length % 300, offset % 10_000) } else { (flags, region, length, *offset) };
                        ring.set_first(*slot, flags, region, length);
                        ring.set_offset(*slot, offset);
                    }
                    let head = if small { head % 17 } else { *head };
                    ring.head().fetch_add(head, Ordering::Relaxed);
                    ring.tail().fetch_add(head / 2, Ordering::Relaxed);
                    ring.flags().store(head, Ordering::Relaxed);
                };
                villain.memif.0.borrow().interfaces[&KEY].tx.each(|_, r| scribble(&r.ring));
                for slot in &villain.memif.0.borrow().interfaces[&KEY].rx {
                    slot.with(|rings| rings.iter().for_each(|r| scribble(&r.ring)));
                }
                victim.poll_all();
                victim.send(&[frame(1, 60), frame(2, 500), frame(3, 5000), frame(4, 64)]);
                victim.poll_all();
                victim.assert_pool_is_whole();
                victim.memif.run();
            }
        }
    }

    /// Whatever a peer says on the socket, the server goes on.
    #[test]
    fn any_messages_are_survived(messages in proptest::collection::vec((0_u16..10, proptest::collection::vec(any::<u8>(), 0..126), 0..4_u8), 1..12)) {
        let folder = Folder::new();
        let mut s = up(&folder);
        let peer = Peer::dial(&folder);
        peer.init(&mut s);
        for (kind, body, descriptor) in messages {
            let mut bytes = kind.to_ne_bytes().to_vec();
            bytes.extend(body);
            bytes.resize(128, 0);
            let fd = match descriptor {
                0 => None,
                1 => Some(memory(4096)),
                2 => Some(new_event().unwrap()),
                _ => Some(rustix::pipe::pipe().unwrap().0),
            };
            if let Ok(message) = Message::parse(&bytes) {
                peer.say(&message, fd.as_ref());
            }
            fuzzing::settle(&s.memif);
            s.poll_all();
        }
        drop(peer);
        let mut c = End::new(&folder, client());
        connect(&mut s, &mut c);
    }
}
