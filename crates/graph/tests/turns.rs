//! The turns of a device's queues: what one brings in leaves before another with as much is asked, and small shares go together.

use std::sync::{Arc, Mutex};

use quiver_buffer::{PageSize, Region, RegionConfig};
use quiver_graph::clock::Clock;
use quiver_graph::stats::Stats;
use quiver_graph::{
    ArcPoint, DeviceInput, DeviceTx, Graph, IfIndex, NodeSpec, PlacedQueue, RxBurst, RxQueue, RxState, SHARE, STATS_BYTES, TxBatch,
    TxQueue, TxState, Verdict,
};
use quiver_tables::qsbr;

/// What happened, in order: a queue was asked (its number), or so many packets left.
#[derive(Debug, PartialEq)]
enum Event {
    Asked(u8),
    Left(usize),
}

type Events = Arc<Mutex<Vec<Event>>>;

/// Brings in so many packets each time.
struct Queue {
    number: u8,
    packets: usize,
    events: Events,
}

impl RxQueue for Queue {
    fn rx(&mut self, burst: &mut RxBurst<'_, '_>) -> RxState {
        self.events.lock().unwrap().push(Event::Asked(self.number));
        for _ in 0..self.packets {
            assert!(burst.push(&[self.number; 60]));
        }
        RxState::Up
    }
}

struct Sink(Events);

impl TxQueue for Sink {
    fn tx(&mut self, batch: &mut TxBatch<'_, '_>) -> usize {
        self.0.lock().unwrap().push(Event::Left(batch.len()));
        batch.len()
    }
}

/// One turn with queues that bring in so many packets each.
fn turn(queues: &[usize]) -> Vec<Event> {
    let region = Region::new(&RegionConfig { buffers_per_numa: 4096, page_size: PageSize::Kb4, ..Default::default() }).unwrap();
    let mut graph = Graph::new(region, Stats::new(STATS_BYTES).unwrap(), Clock::new(), qsbr::Domain::new());
    graph.start_workers(&[]).unwrap();
    graph.interfaces().set_len(queues.len() as u32 + 1);
    let (events, state) = (Events::default(), Arc::new(TxState::default()));
    state.set_up(true);
    let sink = events.clone();
    let make = move |_: &_| DeviceTx::new(IfIndex(1), state.clone(), Some(Box::new(Sink(sink.clone()))));
    graph.add(vec![NodeSpec::vector("ethernet-input", make)]).unwrap();
    let point = ArcPoint::new();
    let input = graph.add(vec![NodeSpec::input("queue-input", move |_| DeviceInput::new(point.clone()))]).unwrap()[0];
    for (number, packets) in queues.iter().enumerate() {
        let rx = Box::new(Queue { number: number as u8, packets: *packets, events: events.clone() });
        let interface = IfIndex(number as u32 + 1);
        let queue = PlacedQueue { interface, queue: 0, next: Verdict::slot(1), up: true, rx };
        graph.input::<DeviceInput, _>(input, 0, move |node| node.place(queue));
    }
    events.lock().unwrap().clear();
    graph.fleet().step_here();
    let first = std::mem::take(&mut *events.lock().unwrap());
    graph.fleet().step_here();
    assert_eq!(*events.lock().unwrap(), first, "each turn begins with the first queue");
    first
}

#[test]
fn a_queue_with_much_does_not_make_the_others_wait_for_all() {
    use Event::{Asked, Left};
    let much = SHARE;
    assert_eq!(turn(&[much, much]), [Asked(0), Left(much), Asked(1), Left(much)]);
    assert_eq!(turn(&[much - 1, 1, 1]), [Asked(0), Asked(1), Left(much), Asked(2), Left(1)]);
}

#[test]
fn small_shares_leave_together() {
    use Event::{Asked, Left};
    assert_eq!(turn(&[3, 0, 4]), [Asked(0), Asked(1), Asked(2), Left(7)]);
    assert_eq!(turn(&[0, 0]), [Asked(0), Asked(1)]);
}
