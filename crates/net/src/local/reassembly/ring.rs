//! The rings over which fragments come to the worker that joins them.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crossbeam_channel::{Receiver, Sender, bounded};
use quiver_graph::{Packet, Published, Snapshot};
use rustix::event::{EventfdFlags, eventfd};

/// Fragments that wait for a worker at most.
const RING: usize = 1024;

/// Wakes a worker that sleeps.
struct Bell {
    /// None where the kernel had no descriptor left: then the worker finds what came when it next turns, at the latest after
    /// the fleet's longest nap.
    fd: Option<OwnedFd>,
    asleep: AtomicBool,
    /// Something has been sent since this was last looked at: looking into the ring itself costs thirty instructions a turn.
    mail: AtomicBool,
}

/// A worker's ring, for those who send.
#[derive(Clone)]
struct Peer {
    thread: usize,
    ring: Sender<Packet>,
    bell: Arc<Bell>,
}

/// All workers' rings. Workers pick up a new set between vectors.
#[derive(Clone, Default)]
pub(super) struct Peers {
    peers: Vec<Peer>,
    /// Rings of workers that are gone: what was still sent to one finds somebody who frees it.
    orphans: Vec<Orphan>,
}

#[derive(Clone)]
struct Orphan {
    ring: Receiver<Packet>,
    /// Lives as long as there is somebody who could send there.
    bell: Weak<Bell>,
}

impl Peers {
    /// Gives a packet to the worker that a hash chooses; back where its ring is full.
    pub fn send(&self, from: usize, hash: u64, mut packet: Packet) -> Result<(), Packet> {
        let n = self.peers.len().max(1) as u64;
        let Some(peer) = self.peers.get((hash % n) as usize) else { return Err(packet) };
        if peer.thread != from {
            packet.detach();
        }
        peer.ring.try_send(packet).map_err(|e| e.into_inner())?;
        // Pairs with `Inbox::has_mail`: who sees this sees the packet.
        peer.bell.mail.store(true, Ordering::Release);
        if peer.thread != from {
            peer.bell.ring();
        }
        Ok(())
    }

    /// Whether no worker takes packets.
    pub fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }

    /// Whether there are rings of workers that are gone.
    pub fn has_orphans(&self) -> bool {
        !self.orphans.is_empty()
    }

    /// What has been sent to workers that are gone.
    pub fn strays(&self) -> Vec<Packet> {
        self.orphans.iter().flat_map(|orphan| orphan.ring.try_iter()).collect()
    }
}

impl Bell {
    fn ring(&self) {
        // SeqCst pairs with `Inbox::arm`: either it sees the packet, or we see it asleep.
        if self.asleep.load(Ordering::SeqCst) {
            let _ = self.fd.as_ref().map(|fd| rustix::io::write(fd, &1_u64.to_ne_bytes()));
        }
    }
}

/// Where workers announce their rings.
pub(super) struct Rings {
    published: Published<Peers>,
    change: Mutex<()>,
}

impl Rings {
    pub fn new() -> Self {
        Self { published: Published::new(Peers::default()), change: Mutex::new(()) }
    }

    pub fn peers(&self) -> Snapshot<Peers> {
        self.published.snapshot()
    }

    /// Changes the set, then does what must be over before the next change begins.
    fn change(&self, change: impl FnOnce(&mut Peers), then: impl FnOnce(&Peers)) {
        let _only_one = self.change.lock().unwrap_or_else(PoisonError::into_inner);
        let mut peers = Peers::clone(&self.published.get());
        change(&mut peers);
        // The same order for all, whoever came first: a hash means the same worker everywhere.
        peers.peers.sort_by_key(|p| p.thread);
        peers.orphans.retain(|orphan| orphan.bell.strong_count() > 0 || !orphan.ring.is_empty());
        self.published.publish(peers.clone());
        then(&peers);
    }
}

/// A worker's end of its ring.
pub(super) struct Inbox {
    ring: Receiver<Packet>,
    bell: Arc<Bell>,
    rings: Arc<Rings>,
}

impl Inbox {
    /// Announces a ring for `thread`.
    pub fn new(thread: usize, rings: &Arc<Rings>) -> Self {
        let (sender, ring) = bounded(RING);
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok();
        let bell = Arc::new(Bell { fd, asleep: AtomicBool::new(false), mail: AtomicBool::new(false) });
        let peer = Peer { thread, ring: sender, bell: bell.clone() };
        let join = |peers: &mut Peers| {
            peers.peers.retain(|p| p.thread != thread);
            peers.peers.push(peer);
        };
        rings.change(join, |_| ());
        Self { ring, bell, rings: rings.clone() }
    }

    /// The worker is awake: nobody needs to ring.
    #[inline(always)]
    pub fn awake(&self) {
        if self.bell.asleep.load(Ordering::Relaxed) {
            self.bell.asleep.store(false, Ordering::SeqCst);
            let _ = self.bell.fd.as_ref().map(|fd| rustix::io::read(fd, &mut [0; 8]));
        }
    }

    /// The worker is about to sleep: `false` where something has come.
    pub fn arm(&self) -> bool {
        self.bell.asleep.store(true, Ordering::SeqCst);
        self.ring.is_empty()
    }

    /// Whether nothing has come since that was asked last, and nobody rings.
    #[inline(always)]
    pub fn is_quiet(&self) -> bool {
        !self.bell.mail.load(Ordering::Relaxed) && !self.bell.asleep.load(Ordering::Relaxed)
    }

    /// Whether something may have come since this was last asked; then all of it should be taken.
    #[inline(always)]
    pub fn has_mail(&self) -> bool {
        self.bell.mail.load(Ordering::Relaxed) && self.bell.mail.swap(false, Ordering::Acquire)
    }

    /// Something was left for another time.
    pub fn left(&self) {
        self.bell.mail.store(true, Ordering::Relaxed);
    }

    /// The next packet.
    pub fn next(&self) -> Option<Packet> {
        self.ring.try_recv().ok()
    }

    pub fn fd(&self) -> Option<RawFd> {
        self.bell.fd.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Nobody sends here any more, but for those who have not picked that up yet: what they send goes to whoever finds the
    /// orphaned ring. `hand_over` gives what is here to the others; none of them retires before it has ended, so that each
    /// finds what it was given.
    pub fn retire(&self, hand_over: impl FnOnce(&Peers)) {
        let leave = |peers: &mut Peers| {
            peers.peers.retain(|p| !Arc::ptr_eq(&p.bell, &self.bell));
            peers.orphans.push(Orphan { ring: self.ring.clone(), bell: Arc::downgrade(&self.bell) });
        };
        self.rings.change(leave, hand_over);
    }
}
