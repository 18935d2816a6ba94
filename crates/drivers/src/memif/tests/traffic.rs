//! Packets between two ends that keep the rules.

use super::*;
use quiver_graph::Idle;

/// Frames go over whole and in order, both ways, `rounds` times `burst` at a time.
pub(super) fn exchange(server: &mut End, client: &mut End, rounds: usize, burst: usize, len: impl Fn(usize) -> usize) {
    let mut number = 0;
    for round in 0..rounds {
        for (from, to) in [(0, 1), (1, 0)] {
            let ends = [&mut *server, &mut *client];
            let frames: Vec<Vec<u8>> = (0..burst).map(|k| frame(number + k, len(number + k))).collect();
            number += burst;
            ends[from].send(&frames);
            let got = ends[to].poll_all();
            assert_eq!(got.len(), frames.len(), "round {round} from end {from}");
            assert!(got == frames, "round {round} from end {from}: other bytes");
        }
    }
}

#[test]
fn frames_pass_at_every_ring_size_and_past_every_wrap() {
    for log2 in 0..=LOG2_RING_MAX {
        let folder = Folder::new();
        let mut s = End::new(&folder, server());
        let mut c = End::new(&folder, MemifConfig { ring_size: 1 << log2, buffer_size: 256, ..client() });
        connect(&mut s, &mut c);
        let burst = (1_usize << log2).min(256);
        // Indices are 16 bits wide: far enough to pass their end where that takes reasonable time.
        let rounds = if log2 >= 8 { 70_000 / burst } else { 40 };
        exchange(&mut s, &mut c, rounds, burst, |n| 1 + n % 256);
        for end in [&mut s, &mut c] {
            assert_eq!((end.counter("rx-error"), end.counter("tx-error"), end.counter("drops")), (0, 0, 0));
            end.assert_pool_is_whole();
        }
    }
}

#[test]
fn frames_of_every_length_pass_in_one_or_several_buffers() {
    for buffer_size in [64, 100, 2048, 9216] {
        let folder = Folder::new();
        let mut s = End::new(&folder, server());
        let mut c = End::new(&folder, MemifConfig { ring_size: 256, buffer_size, ..client() });
        connect(&mut s, &mut c);
        exchange(&mut s, &mut c, 300, 1, |n| 1 + n);
        // Jumbo frames between small ones: at most 64 descriptors a frame.
        let most = (buffer_size as usize * 60).min(9216);
        exchange(&mut s, &mut c, 20, 3, |n| if n % 3 == 1 { most } else { 60 + n % 5 });
        exchange(&mut s, &mut c, 20, 2, |n| (2040 + n % 30).min(most));
        s.assert_pool_is_whole();
        c.assert_pool_is_whole();
    }
}

#[test]
fn what_finds_no_room_is_counted_and_the_rest_passes() {
    let folder = Folder::new();
    let mut s = End::new(&folder, server());
    let mut c = End::new(&folder, MemifConfig { ring_size: 64, ..client() });
    connect(&mut s, &mut c);
    let frames: Vec<_> = (0..100).map(|n| frame(n, 60)).collect();
    s.send(&frames);
    c.send(&frames);
    assert_eq!(c.poll_all(), frames[..64]);
    assert_eq!(s.poll_all(), frames[..64]);
    assert_eq!((s.counter("tx-error"), c.counter("tx-error")), (36, 36));
    // A frame that can never fit is refused; one behind it is not.
    let mut c2 = MemifConfig { ring_size: 2, buffer_size: 64, ..client() };
    c2.key.id = 0;
    drop(c);
    let mut c = End::new(&folder, c2);
    connect(&mut s, &mut c);
    for end in [&mut s, &mut c] {
        let before = end.counter("tx-error");
        end.send(&[frame(1, 200), frame(2, 60)]);
        assert_eq!(end.counter("tx-error") - before, 1);
    }
    assert_eq!(s.poll_all(), [frame(2, 60)]);
    assert_eq!(c.poll_all(), [frame(2, 60)]);
    s.assert_pool_is_whole();
    c.assert_pool_is_whole();
}

#[test]
fn a_server_takes_more_rings_than_it_has_queues() {
    for (queues, rings) in [(1, 5), (2, 5), (4, 2)] {
        let folder = Folder::new();
        let mut s = End::new(&folder, MemifConfig { rx_queues: queues, ..server() });
        let mut c = End::new(&folder, MemifConfig { rx_queues: rings, tx_queues: rings, ring_size: 16, ..client() });
        connect(&mut s, &mut c);
        let info = s.info();
        assert_eq!(info.rings.len(), 2 * rings);
        assert!(info.rings.iter().enumerate().all(|(k, r)| r.number == k % rings && r.to_server == (k >= rings)), "{info:?}");
        exchange(&mut s, &mut c, 30, 16, |n| 60 + n % 100);
    }
}

#[test]
fn who_sleeps_is_woken_and_who_polls_is_not() {
    let folder = Folder::new();
    let mut s = End::new(&folder, server());
    let mut c = End::new(&folder, client());
    connect(&mut s, &mut c);
    for (from, to) in [(0, 1), (1, 0)] {
        let ends = [&mut s, &mut c];
        let fd = ends[to].event_fd();
        let readable = move || {
            let mut entry = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            // SAFETY: one live pollfd.
            unsafe { libc::poll(&raw mut entry, 1, 0) == 1 }
        };
        assert!(readable(), "there are rings");
        assert_eq!(ends[to].arm(), Idle::Sleep { until: None });
        assert_eq!(ends[to].poll_all().len(), 0);
        ends[from].send(&[frame(1, 60)]);
        assert!(!readable(), "a poller gets no event");
        assert_eq!(ends[to].arm(), Idle::Busy, "a packet waits");
        assert_eq!(ends[to].poll_all().len(), 1);
        for _ in 0..3 {
            assert_eq!(ends[to].arm(), Idle::Sleep { until: None });
            assert!(!readable());
            ends[from].send(&[frame(2, 60)]);
            assert!(readable(), "a sleeper does");
            assert_eq!(ends[to].poll_all().len(), 1);
        }
        assert_eq!(ends[to].event_fd(), fd, "one descriptor for the life of the queue");
    }
}

#[test]
fn connections_come_and_go_and_leave_nothing() {
    let folder = Folder::new();
    let open = || {
        let fds = std::fs::read_dir("/proc/self/fd").unwrap().count();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        (fds, maps.lines().filter(|l| l.contains("quiver-memif")).count())
    };
    let mut s = End::new(&folder, server());
    let mut c = End::new(&folder, MemifConfig { ring_size: 16, rx_queues: 3, tx_queues: 2, ..client() });
    let mut before = None;
    for round in 0..10 {
        connect(&mut s, &mut c);
        exchange(&mut s, &mut c, 3, 16, |n| 60 + n % 50);
        let ends = if round % 2 == 0 { &mut s } else { &mut c };
        ends.port.set_up(false).unwrap();
        run_until(&mut [&mut s, &mut c], "going down", |ends| ends.iter_mut().all(|e| !e.is_up()));
        s.send(&[frame(1, 60)]);
        assert!(c.poll_all().is_empty());
        s.port.set_up(false).unwrap();
        c.port.set_up(false).unwrap();
        // Other tests of this process open and close descriptors as well: what counts is that they do not add up.
        let now = open();
        let before = *before.get_or_insert(now);
        assert!(now.0 < before.0 + 200 && now.1 < before.1 + 50, "{before:?} {now:?}");
    }
    assert_eq!(s.counter("tx-error"), 10);
    s.assert_pool_is_whole();
    c.assert_pool_is_whole();
}

#[test]
fn a_wrong_secret_or_mode_or_id_is_refused_with_a_reason() {
    let folder = Folder::new();
    let secret = |text: &str| Some(text.to_owned());
    let mut s = End::new(&folder, MemifConfig { secret: secret("sesame"), ..server() });
    s.port.set_up(true).unwrap();
    for (config, reason) in [
        (client(), "secret required"),
        (MemifConfig { secret: secret("sesam"), ..client() }, "incorrect secret"),
        (MemifConfig { secret: secret("sesame"), mode: Mode::Ip, ..client() }, "mode mismatch"),
        (MemifConfig { key: Key { id: 7, ..KEY }, ..client() }, "unknown interface id"),
    ] {
        let key = config.key;
        let mut c = End::new(&folder, config);
        c.port.set_up(true).unwrap();
        let expected = format!("peer says: {reason}");
        let said = |c: &End| c.memif.interface(key).unwrap().reason == expected;
        let deadline = std::time::Instant::now() + LONG;
        while !said(&c) && std::time::Instant::now() < deadline {
            s.memif.run();
            c.memif.run();
        }
        assert!(said(&c), "{reason}: {:?}", c.memif.interface(key));
        assert!(!s.is_up() && !c.is_up());
    }
    let mut c = End::new(&folder, MemifConfig { secret: secret("sesame"), ..client() });
    connect(&mut s, &mut c);
    // A second client of the same interface has to wait.
    let mut second = End::new(&folder, MemifConfig { secret: secret("sesame"), ..client() });
    second.port.set_up(true).unwrap();
    run_until(&mut [&mut s, &mut second], "refusal", |e| e[1].info().reason.contains("connected already"));
    assert!(c.is_up());
}

#[test]
fn a_client_finds_a_server_that_comes_late_and_a_server_replaces_a_dead_ones_file() {
    let folder = Folder::new();
    let mut c = End::new(&folder, client());
    c.port.set_up(true).unwrap();
    c.memif.run();
    assert!(c.info().reason.starts_with("cannot connect: "));
    // A file that nobody listens at any more, as kill -9 leaves it.
    drop(std::os::unix::net::UnixListener::bind(folder.socket()).unwrap());
    let mut s = End::new(&folder, server());
    connect(&mut s, &mut c);
    exchange(&mut s, &mut c, 2, 8, |_| 60);
    // A second server at the same place is refused, and does not disturb the first.
    let other = Memif::new("/nowhere/memif.sock").unwrap();
    other.add_socket(1, &folder.socket()).unwrap();
    assert!(matches!(other.create(server()), Err(MemifError::Listening(_))));
    assert!(c.is_up() && s.is_up());
    drop(s);
    run_until(&mut [&mut c], "server gone", |e| !e[0].is_up());
    assert!(!std::path::Path::new(&folder.socket()).exists());
    let mut s = End::new(&folder, server());
    connect(&mut s, &mut c);
    exchange(&mut s, &mut c, 2, 8, |_| 60);
}

#[test]
fn frames_whose_lines_are_demoted_are_the_same() {
    for client in [MemifConfig { buffer_size: 256, ..client() }, MemifConfig { zero_copy: true, ..client() }] {
        let folder = Folder::new();
        let mut s = End::new(&folder, server());
        let mut c = End::new(&folder, MemifConfig { ring_size: 128, ..client });
        connect(&mut s, &mut c);
        // Whole groups and parts of them, and frames that no single buffer holds.
        for burst in [1, 31, 32, 33, 100] {
            exchange(&mut s, &mut c, 10, burst, |n| 1 + n % 250);
        }
        exchange(&mut s, &mut c, 20, 3, |n| if n % 3 == 1 { 9216 } else { 60 + n % 5 });
        for end in [&mut s, &mut c] {
            assert_eq!((end.counter("rx-error"), end.counter("tx-error"), end.counter("drops")), (0, 0, 0));
            end.assert_pool_is_whole();
        }
    }
}
