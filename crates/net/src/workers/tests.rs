use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use quiver_graph::{IfIndex, Link, Port, RxBurst, RxMode, RxQueue, RxState, ThreadPlan, TxBatch, TxQueue};
use quiver_wire::MacAddr;

use crate::interface::{InterfaceKind, Kind, L2Mode, NewInterface, Tx};
use crate::pg::{Source, StreamSpec, parse};
use crate::testing::Harness;

/// A device that brings in numbered frames for as long as it may, and counts what it sends.
#[derive(Clone, Default)]
struct Line {
    limit: Arc<AtomicU64>,
    received: Arc<AtomicU64>,
    sent: Arc<AtomicU64>,
    disorder: Arc<AtomicU64>,
    last: Arc<AtomicU64>,
    tx_queues: Arc<AtomicU32>,
}

struct LineTx(Line);

impl Drop for LineTx {
    fn drop(&mut self) {
        self.0.tx_queues.fetch_sub(1, Ordering::Relaxed);
    }
}

impl RxQueue for Line {
    fn rx(&mut self, burst: &mut RxBurst<'_, '_>) -> RxState {
        while burst.room() > 0 && self.received.load(Ordering::Relaxed) < self.limit.load(Ordering::Relaxed) {
            let mut frame = [0xa5; 60];
            let number = self.received.load(Ordering::Relaxed);
            frame[14..22].copy_from_slice(&number.to_be_bytes());
            if !burst.push(&frame) {
                break;
            }
            self.received.fetch_add(1, Ordering::Relaxed);
        }
        RxState::Up
    }

    fn discard(&mut self) {
        self.limit.store(0, Ordering::Relaxed);
    }
}

impl TxQueue for LineTx {
    fn tx(&mut self, batch: &mut TxBatch<'_, '_>) -> usize {
        for i in 0..batch.len() {
            let number = u64::from_be_bytes(batch.packet(i).bytes()[14..22].try_into().unwrap());
            if self.0.last.swap(number + 1, Ordering::AcqRel) > number {
                self.0.disorder.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.0.sent.fetch_add(batch.len() as u64, Ordering::AcqRel);
        batch.len()
    }
}

impl Port for Line {
    fn input_node(&self) -> &'static str {
        "line-input"
    }
    fn take_rx(&mut self) -> io::Result<Vec<Box<dyn RxQueue>>> {
        Ok(vec![Box::new(self.clone())])
    }
    fn open_tx(&mut self, thread: usize) -> io::Result<Box<dyn TxQueue>> {
        if thread == 5 {
            return Err(io::Error::other("no queue for a fifth worker"));
        }
        self.tx_queues.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(LineTx(self.clone())))
    }
    fn link(&mut self) -> Link {
        Link { up: true, speed: None }
    }
    fn mac(&self) -> Option<[u8; 6]> {
        None
    }
    fn max_frame(&self) -> usize {
        1514
    }
}

fn line(h: &mut Harness, name: &str) -> (IfIndex, Line) {
    let line = Line::default();
    let new = NewInterface {
        name: name.into(),
        kind: Kind::Device(&InterfaceKind { name: "line", called: "a line", device_type: "line" }),
        mac: MacAddr([2, 0, 0, 0, 0, 1]),
        mtu: 1500,
        max_frame: 1514,
        tx: Tx::Port(Box::new(line.clone())),
    };
    let index = h.router.create_interface(new).unwrap();
    h.router.set_interface_up(index, true).unwrap();
    (index, line)
}

fn plans(n: usize) -> Vec<ThreadPlan> {
    vec![ThreadPlan::default(); n]
}

fn set(h: &mut Harness, workers: usize) {
    h.router.set_workers(&plans(workers)).unwrap();
    assert_eq!(h.router.graph.fleet().workers(), workers);
    assert_eq!(h.router.graph.fleet().main_forwards(), workers == 0);
}

#[test]
fn no_packet_of_a_device_is_lost_or_overtaken_while_workers_come_and_go_and_its_queue_moves() {
    let mut h = Harness::with_workers(1);
    let ((a, line_a), (b, line_b)) = (line(&mut h, "a"), line(&mut h, "b"));
    h.router.set_l2(a, L2Mode::CrossConnect(b)).unwrap();
    let readers = h.router.graph.domain().readers();
    line_a.limit.store(u64::MAX, Ordering::Relaxed);
    for round in 0..6 {
        for workers in [4, 2, 1, 0, 3] {
            set(&mut h, workers);
            assert_eq!(line_b.tx_queues.load(Ordering::Relaxed), workers.max(1) as u32, "one tx queue a thread");
            assert_eq!(h.router.graph.domain().readers(), readers - 1 + workers.max(1));
            for worker in 1..=workers {
                h.router.set_rx_placement(a, 0, worker).unwrap();
                assert_eq!(h.router.rx_places(a)[0].thread, worker);
                h.run();
            }
            if round == 3 && workers > 0 {
                // Main forwards beside the workers for as long as it has a queue.
                h.router.set_rx_placement(a, 0, 0).unwrap();
                assert!(h.router.graph.fleet().main_forwards());
                h.run();
                h.router.set_rx_placement(a, 0, 1).unwrap();
                assert!(!h.router.graph.fleet().main_forwards());
            }
            h.run();
        }
    }
    line_a.limit.store(line_a.received.load(Ordering::Relaxed), Ordering::Relaxed);
    h.run();
    h.run();
    let received = line_a.received.load(Ordering::Relaxed);
    assert!(received > 1000);
    assert_eq!(line_b.sent.load(Ordering::Relaxed), received, "{:?}", h.counts());
    assert_eq!(line_b.disorder.load(Ordering::Relaxed), 0);
    let counters = h.router.graph.interfaces().clone();
    assert_eq!((counters.rx.sum(a.0).0, counters.tx.sum(b.0).0), (received, received), "counts of those who left stay");
    h.assert_buffers_held(0);
    // A new interface of the same number starts at nothing, also on rows that nobody writes any more.
    h.router.delete_interface(b).unwrap();
    // The number is free when all threads have let go of it.
    for _ in 0..20 {
        h.run();
        h.router.reclaim();
    }
    let (again, _) = line(&mut h, "c");
    assert_eq!((again, counters.tx.sum(again.0).0), (b, 0));
}

#[test]
fn generated_packets_are_all_accounted_for_while_workers_come_and_go() {
    let mut h = Harness::with_workers(1);
    let pg = h.router.pg_create_interface(0, None, crate::pg::Mode::Ethernet).unwrap();
    h.router.set_interface_up(pg, true).unwrap();
    let text = "IP4: 02:00:00:00:00:01 -> 02:00:00:00:00:02 UDP: 10.0.0.1 -> 10.1.0.1 UDP: 1234 -> 2345 incrementing 30";
    let made = parse::template(text, parse::Start::Ethernet).unwrap();
    let spec = |name: &str, worker| StreamSpec {
        name: name.into(),
        limit: Some(200_000),
        rate: None,
        sizes: None,
        worker,
        max_frame: None,
        seed: 1,
        source: Source::Made(made.clone()),
    };
    set(&mut h, 4);
    for worker in 0..4 {
        h.router.pg_new_stream(spec(&format!("s{worker}"), worker), pg, "null-node").unwrap();
    }
    set(&mut h, 1);
    h.router.pg_enable(None).unwrap();
    for workers in [4, 2, 1, 3, 0].into_iter().cycle() {
        set(&mut h, workers);
        h.run();
        std::thread::sleep(Duration::from_millis(1));
        if h.router.pg_streams().iter().all(|s| !s.enabled) {
            break;
        }
    }
    assert!(h.router.pg_streams().iter().all(|s| s.sent == 200_000));
    assert_eq!(h.count("null-node", "blackholed packets"), 800_000);
    assert_eq!(h.router.graph.interfaces().rx.sum(pg.0).0, 800_000);
    h.assert_buffers_held(0);
}

#[test]
fn a_worker_without_a_tx_queue_does_not_join_and_leaves_nothing_behind() {
    let mut h = Harness::with_workers(1);
    let (_, first) = line(&mut h, "a");
    let error = h.router.set_workers(&plans(6)).unwrap_err();
    assert!(error.to_string().contains("fifth"), "{error}");
    assert_eq!(h.router.graph.fleet().workers(), 4);
    assert_eq!(first.tx_queues.load(Ordering::Relaxed), 4);
    assert!(h.router.set_workers(&plans(64)).is_err());
    assert_eq!(h.router.graph.fleet().workers(), 4);
}

#[test]
fn placements_and_modes_that_are_not_possible_are_refused() {
    let mut h = Harness::with_workers(2);
    let (a, _) = line(&mut h, "a");
    let plain = h.interface(1);
    for (index, queue, thread) in [(a, 0, 3), (a, 1, 1), (plain, 0, 1), (IfIndex(99), 0, 1)] {
        assert!(h.router.set_rx_placement(index, queue, thread).is_err());
    }
    assert_eq!(h.router.rx_places(a)[0].mode, RxMode::Polling, "a device without events is polled");
    assert!(h.router.set_rx_mode(a, None, RxMode::Interrupt).unwrap_err().to_string().contains("only be polled"));
    h.router.set_rx_mode(a, Some(0), RxMode::Polling).unwrap();
    assert!(h.router.set_rx_mode(a, Some(1), RxMode::Polling).is_err());
}
