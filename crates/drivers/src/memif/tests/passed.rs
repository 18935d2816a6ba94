//! Connections that pass from one process to the next, both of them here.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use quiver_graph::{Hold, Idle};

use super::traffic::exchange;
use super::*;
use crate::rights::{NamespaceFds, RedirectFds, Rights};

/// What another process passes on.
pub(super) struct Passed(Mutex<HashMap<String, Vec<OwnedFd>>>);

impl Rights for Passed {
    fn namespace(&self, _: &str, _: u32) -> std::io::Result<NamespaceFds> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
    fn redirect(&self, _: u32) -> std::io::Result<RedirectFds> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
    fn fast_path(&self) -> std::io::Result<crate::fast_path::FastPathFds> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
    fn inherited(&self, device: &str) -> Option<Vec<OwnedFd>> {
        self.0.lock().unwrap().remove(device)
    }
}

fn descriptors(end: &End) -> Vec<OwnedFd> {
    end.port.descriptors().unwrap().unwrap().1
}

/// A process that gets these and waits.
fn waiting(folder: &Folder, config: MemifConfig, key: String, fds: Vec<OwnedFd>) -> End {
    let rights = Arc::new(Passed(Mutex::new(HashMap::from([(key, fds)]))));
    let mut end = End::made(folder, config, TRUSTING, End::keeps, Some(rights));
    end.graph.set_hold(Hold::All);
    end.port.set_up(true).unwrap();
    end
}

/// A process that is about to take over from `old`.
fn successor(folder: &Folder, config: MemifConfig, old: &End) -> End {
    let (key, fds) = old.port.descriptors().unwrap().unwrap();
    let mut new = waiting(folder, config, key, fds);
    run_until(&mut [&mut new], "memory is ready", |ends| ends[0].is_up());
    new
}

/// It takes over; the old process ends without a word.
fn take_over(mut old: End, new: &mut End) {
    old.graph.set_hold(Hold::Receive);
    new.graph.discard_held();
    new.graph.begin(0);
    new.port.begin().unwrap();
    std::mem::forget(old);
}

/// Both roles of the process that is replaced, with its peer's settings.
fn roles() -> [(MemifConfig, MemifConfig); 2] {
    let small = MemifConfig { ring_size: 16, rx_queues: 2, tx_queues: 2, buffer_size: 256, ..client() };
    [(server(), small.clone()), (small, server())]
}

fn pair(folder: &Folder, (ours, theirs): &(MemifConfig, MemifConfig)) -> (End, End) {
    let make = |config: &MemifConfig| End::new(folder, config.clone());
    let (mut old, mut peer);
    if ours.role == Role::Server {
        old = make(ours);
        peer = make(theirs);
    } else {
        peer = make(theirs);
        old = make(ours);
    }
    connect(&mut old, &mut peer);
    (old, peer)
}

#[test]
fn a_peer_does_not_notice_that_another_process_goes_on() {
    for config in roles() {
        let folder = Folder::new();
        let (mut old, mut peer) = pair(&folder, &config);
        // Indices of 16 bits come to their end within a few thousand rounds of a ring of 16.
        for (number, rounds) in [3, 40, 5000].into_iter().enumerate() {
            exchange(&mut old, &mut peer, rounds, 13, |n| 1 + n % 256);
            let mut new = successor(&folder, config.0.clone(), &old);
            // The old one forwards meanwhile; what the new one would send is not sent.
            exchange(&mut old, &mut peer, 2, 13, |n| 1 + n % 256);
            new.send(&[frame(1, 60)]);
            assert!(peer.poll_all().is_empty());
            let sent: Vec<_> = (0..7).map(|n| frame(50 + n, 70)).collect();
            old.send(&sent);
            // Frames that nobody has received when the old one stops.
            let unread: Vec<_> = (0..9).map(|n| frame(n, 100)).collect();
            peer.send(&unread);
            take_over(old, &mut new);
            assert_eq!(new.poll_all(), unread, "take-over {number}");
            assert_eq!(peer.poll_all(), sent);
            exchange(&mut new, &mut peer, 40, 13, |n| 1 + n % 256);
            for _ in 0..3 {
                drop((peer.memif.run(), new.memif.run()));
            }
            assert!(peer.is_up() && new.is_up());
            assert_eq!(new.info().remote_interface, "memif1/0");
            assert_eq!((new.counter("rx-error"), peer.counter("rx-error"), peer.counter("tx-error")), (0, 0, 0));
            old = new;
        }
        // A sleeper is woken, by either of them.
        assert_eq!(old.arm(), Idle::Sleep { until: None });
        peer.send(&[frame(1, 60)]);
        assert_eq!(old.poll_all().len(), 1);
        // And the end of the peer is seen.
        drop(peer);
        run_until(&mut [&mut old], "peer gone", |ends| !ends[0].is_up());
        let mut peer = End::new(&folder, config.1.clone());
        connect(&mut old, &mut peer);
        exchange(&mut old, &mut peer, 5, 13, |n| 1 + n % 256);
    }
}

#[test]
fn a_process_that_does_not_take_over_leaves_the_connection_and_the_socket_as_they_were() {
    for config in roles() {
        let folder = Folder::new();
        let (mut old, mut peer) = pair(&folder, &config);
        for step in 0..3 {
            let mut new = successor(&folder, config.0.clone(), &old);
            if step > 0 {
                new.port.set_up(false).unwrap();
            }
            if step > 1 {
                new.port.set_up(true).unwrap();
            }
            drop(new);
            run_until(&mut [&mut old, &mut peer], "still up", |ends| ends.iter_mut().all(|end| end.is_up()));
            exchange(&mut old, &mut peer, 20, 13, |n| 1 + n % 256);
        }
        assert!(std::path::Path::new(&folder.socket()).exists());
        drop(peer);
        run_until(&mut [&mut old], "peer gone", |ends| !ends[0].is_up());
        let mut peer = End::new(&folder, config.1.clone());
        connect(&mut old, &mut peer);
        exchange(&mut old, &mut peer, 5, 13, |n| 1 + n % 256);
    }
}

#[test]
fn sealed_memory_and_lent_buffers_do_not_pass() {
    let folder = Folder::new();
    let (mut s, mut c) = (End::wary(&folder, server()), End::wary(&folder, client()));
    // The interface's settings, and for a server the socket that listens.
    let interface_alone = |s: &End, c: &End| assert_eq!((descriptors(s).len(), descriptors(c).len()), (2, 1));
    interface_alone(&s, &c);
    connect(&mut s, &mut c);
    interface_alone(&s, &c);
    let folder = Folder::new();
    let mut s = End::new(&folder, server());
    let mut c = End::new(&folder, MemifConfig { zero_copy: true, ..client() });
    connect(&mut s, &mut c);
    assert_eq!(descriptors(&c).len(), 1);
}

#[test]
fn what_is_not_as_it_is_passed_costs_the_connection_alone() {
    for config in roles() {
        let folder = Folder::new();
        let (mut old, mut peer) = pair(&folder, &config);
        let is_server = config.0.role == Role::Server;
        let first = if is_server { 2 } else { 1 };
        let count = descriptors(&old).len();
        let odd = || -> OwnedFd { std::fs::File::open("/proc/self/exe").unwrap().into() };
        for at in 0..count {
            // Another file, and none, in each place. That the channel is none shows when somebody speaks on it.
            for missing in [false, true] {
                let (key, mut fds) = old.port.descriptors().unwrap().unwrap();
                if missing {
                    fds.truncate(at);
                } else if at == first || is_server && at == 1 {
                    continue;
                } else {
                    fds[at] = odd();
                }
                if is_server && (fds.len() < 2 || at == 0) {
                    // Without the socket it cannot listen where the old process does.
                    continue;
                }
                let mut new = waiting(&folder, config.0.clone(), key, fds);
                let deadline = std::time::Instant::now() + std::time::Duration::from_millis(20);
                while std::time::Instant::now() < deadline {
                    new.memif.run();
                }
                assert!(!new.is_up(), "{at} {missing}");
            }
        }
        drop((old.memif.run(), peer.memif.run()));
        exchange(&mut old, &mut peer, 20, 13, |n| 1 + n % 256);
    }
}
