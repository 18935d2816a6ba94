//! A client whose packets lie where the peer sees them.

use super::traffic::exchange;
use super::*;

fn lender() -> MemifConfig {
    MemifConfig { zero_copy: true, ring_size: 64, ..client() }
}

#[test]
fn frames_pass_at_every_ring_size_and_length() {
    for log2 in 0..=12 {
        let folder = Folder::new();
        let mut s = End::new(&folder, server());
        let mut c = End::new(&folder, MemifConfig { ring_size: 1 << log2, ..lender() });
        connect(&mut s, &mut c);
        let burst = (1_usize << log2).min(256);
        let rounds = if log2 >= 8 { 70_000 / burst } else { 40 };
        exchange(&mut s, &mut c, rounds, burst, |n| 1 + n % 2048);
        if log2 >= 4 {
            // Frames that no single buffer holds.
            exchange(&mut s, &mut c, 20, 3, |n| if n % 3 == 1 { 9216 } else { 60 + n % 5 });
        }
        for end in [&mut s, &mut c] {
            assert_eq!((end.counter("rx-error"), end.counter("tx-error"), end.counter("drops")), (0, 0, 0));
            end.assert_pool_is_whole();
        }
    }
}

/// Places in packet memory that a ring's slots name.
fn places(end: &End, to_server: bool) -> Vec<u32> {
    let info = end.memif.interface_with_descriptors(KEY).unwrap();
    let ring = info.rings.into_iter().find(|r| r.to_server == to_server).unwrap();
    ring.descriptors.iter().map(|d| d.offset).collect()
}

#[test]
fn what_goes_back_to_the_peer_lies_where_it_came_in() {
    let folder = Folder::new();
    let mut s = End::new(&folder, server());
    let mut c = End::echo(&folder, lender());
    connect(&mut s, &mut c);
    let frames: Vec<_> = (0..20).map(|n| frame(n, 60 + 7 * n)).collect();
    let received = places(&c, false);
    s.send(&frames);
    c.poll();
    assert_eq!(places(&c, true)[..20], received[..20], "a packet was moved");
    assert_eq!(s.poll_all(), frames);
    // Slots are used again and again, and no buffer is lost.
    for round in 0..100 {
        let frames: Vec<_> = (0..50).map(|n| frame(round + n, 64 + n)).collect();
        s.send(&frames);
        c.poll();
        assert!(s.poll_all() == frames, "round {round}");
    }
    assert_eq!((c.counter("rx-error"), c.counter("tx-error")), (0, 0));
    c.assert_pool_is_whole();
}

#[test]
fn the_pool_goes_with_the_last_interface() {
    let folder = Folder::new();
    let mut s = End::new(&folder, server());
    let mut c = End::new(&folder, lender());
    let region = c.graph.pools()[0].region().clone();
    assert!(region.has_shared());
    connect(&mut s, &mut c);
    exchange(&mut s, &mut c, 3, 20, |n| 60 + n);
    // A peer that goes takes no buffer with it.
    drop(s);
    run_until(&mut [&mut c], "the end", |ends| !ends[0].is_up());
    let pool = region.shared_pools().remove(0);
    c.graph.fleet().each(|w| w.step());
    assert_eq!(pool.usage().available, pool.usage().total);
    let mut s = End::new(&folder, server());
    connect(&mut s, &mut c);
    exchange(&mut s, &mut c, 3, 20, |n| 60 + n);
    let memif = c.memif.clone();
    drop(c);
    memif.run();
    assert!(!region.has_shared(), "the pool is still there");
}

#[test]
fn settings_that_cannot_be_are_refused_and_leave_nothing() {
    let folder = Folder::new();
    let memif = Memif::new("/nowhere/memif.sock").unwrap();
    memif.add_socket_with(1, SocketConfig { pool_buffers: 4096, ..SocketConfig::new(&folder.socket()) }).unwrap();
    let error = |config: MemifConfig| memif.create(config).err().map(|e| e.to_string()).unwrap_or_default();
    assert_eq!(error(MemifConfig { zero_copy: true, ..server() }), "zero-copy is for slaves: a master's memory is the peer's");
    assert!(error(MemifConfig { ring_size: 4096, ..lender() }).contains("has 4096 buffers, 10240 are needed"));
    assert_eq!(error(lender()), "there is no packet memory to share");
    assert!(memif.keys().is_empty());
}
