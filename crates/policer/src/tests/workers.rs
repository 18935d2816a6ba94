//! Several workers: one of them has a policer, whoever gets the packets.

use super::*;

/// Has each worker get 20 frames at the same time, and counts what leaves.
fn from_all(s: &mut Scene, workers: usize) -> usize {
    let x0 = s.interface("x0");
    for thread in 0..workers {
        s.h.cast_many(x0, &vec![frame(false); 20], thread);
    }
    let mut left = 0;
    for _ in 0..10 {
        left += s.h.run().len();
    }
    left
}

/// Packets that a thread has policed.
fn by_thread(s: &Scene, index: u32, thread: usize) -> u64 {
    let stats = s.h.router.graph.stats();
    ["conform", "exceed", "violate"]
        .map(|name| stats.combined(&format!("/net/policer/{name}"), crate::control::POLICERS_MAX).get(thread, index).0)
        .iter()
        .sum()
}

#[test]
fn several_workers_pass_the_rate_once() {
    for workers in [1, 2, 4] {
        for use_of in ["input name a x0", "output name a x1"] {
            let mut s = scene_with(workers);
            s.run("policer add name a cir 1 cb 15000");
            s.run(&format!("policer {use_of}"));
            assert_eq!(from_all(&mut s, workers), 15);
            let busy = (0..=workers).filter(|thread| by_thread(&s, 0, *thread) > 0).count();
            assert_eq!((busy, counts(&s, 0).iter().map(|(packets, _)| packets).sum::<u64>()), (1, 20 * workers as u64));
            s.h.assert_buffers_held(0);
        }
    }
}

#[test]
fn a_bound_policer_works_on_its_worker_only() {
    let mut s = scene_with(2);
    s.run("policer add name a cir 1 cb 15000");
    s.run("policer bind name a 1");
    s.run("policer input name a x0");
    from_all(&mut s, 2);
    assert_eq!([1, 2].map(|thread| by_thread(&s, 0, thread)), [0, 40]);
    assert!(s.error("policer bind name a 2").contains("there is no worker 2; their numbers are below 2"));
    s.run("policer bind unbind name a 1");
    let x0 = s.interface("x0");
    s.h.inject_many(x0, &vec![frame(false); 5], 0);
    s.h.run();
    from_all(&mut s, 2);
    assert_eq!([1, 2].map(|thread| by_thread(&s, 0, thread)), [45, 40], "the worker with the first packet has it");
    s.run("configure policer name a cir 1 cb 3000");
    assert_eq!(from_all(&mut s, 2), 3);
    assert_eq!([1, 2].map(|thread| by_thread(&s, 0, thread)), [40, 0], "it stays there");
    s.h.assert_buffers_held(0);
}

#[test]
fn a_worker_that_leaves_hands_its_policers_on() {
    let mut s = scene_with(2);
    s.run("policer add name a cir 1 cb 100000");
    s.run("policer bind name a 1");
    s.run("policer add name unused cir 1 cb 1");
    s.run("policer input name a x0");
    assert_eq!(from_all(&mut s, 2), 40);
    s.h.router.set_workers(&[quiver_graph::ThreadPlan::default()]).unwrap();
    assert_eq!(from_all(&mut s, 1), 20);
    assert_eq!([1, 2].map(|thread| by_thread(&s, 0, thread)), [20, 40]);
    assert!(!s.run("show policer name a").contains("bound"), "its worker is not there any more");
    s.h.assert_buffers_held(0);
}
