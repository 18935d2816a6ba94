//! Threads that leave packets to another process: nothing is brought in, and what is sent depends on which of the two processes it is.

use std::sync::{Arc, Mutex};

use quiver_buffer::{PageSize, Region, RegionConfig};
use quiver_graph::clock::Clock;
use quiver_graph::stats::Stats;
use quiver_graph::{
    ArcPoint, DeviceInput, DeviceTx, Graph, Hold, IfIndex, NodeId, NodeSpec, PlacedQueue, RxBurst, RxQueue, RxState, STATS_BYTES,
    ThreadPlan, TxBatch, TxQueue, TxState, Verdict,
};
use quiver_tables::qsbr;

#[derive(Debug, PartialEq)]
enum Event {
    Asked,
    Discarded,
    Begun(u64),
    Left(usize),
}

type Events = Arc<Mutex<Vec<Event>>>;

/// Brings in a packet each time.
struct Queue(Events);

impl RxQueue for Queue {
    fn rx(&mut self, burst: &mut RxBurst<'_, '_>) -> RxState {
        self.0.lock().unwrap().push(Event::Asked);
        assert!(burst.push(&[7; 60]));
        RxState::Up
    }

    fn discard(&mut self) {
        self.0.lock().unwrap().push(Event::Discarded);
    }

    fn begin(&mut self, since: u64) {
        self.0.lock().unwrap().push(Event::Begun(since));
    }
}

struct Sink(Events);

impl TxQueue for Sink {
    fn tx(&mut self, batch: &mut TxBatch<'_, '_>) -> usize {
        self.0.lock().unwrap().push(Event::Left(batch.len()));
        batch.len()
    }
}

/// A graph with one queue, and what has happened.
struct Bed {
    graph: Graph,
    input: NodeId,
    events: Events,
}

impl Bed {
    fn new() -> Self {
        let region = Region::new(&RegionConfig { buffers_per_numa: 4096, page_size: PageSize::Kb4, ..Default::default() }).unwrap();
        let mut graph = Graph::new(region, Stats::new(STATS_BYTES).unwrap(), Clock::new(), qsbr::Domain::new());
        graph.interfaces().set_len(2);
        let (events, state) = (Events::default(), Arc::new(TxState::default()));
        state.set_up(true);
        let sink = events.clone();
        let make = move |_: &_| DeviceTx::new(IfIndex(1), state.clone(), Some(Box::new(Sink(sink.clone()))));
        graph.add(vec![NodeSpec::vector("ethernet-input", make)]).unwrap();
        let point = ArcPoint::new();
        let input = graph.add(vec![NodeSpec::input("queue-input", move |_| DeviceInput::new(point.clone()))]).unwrap()[0];
        let rx = Box::new(Queue(events.clone()));
        let queue = PlacedQueue { interface: IfIndex(1), queue: 0, next: Verdict::slot(1), up: true, rx };
        graph.input::<DeviceInput, _>(input, 0, move |node| node.place(queue));
        events.lock().unwrap().clear();
        Self { graph, input, events }
    }

    /// What a turn of the thread comes to, in which the control side sends a packet, too.
    fn turn(&mut self) -> Vec<Event> {
        let input = self.input;
        self.graph.fleet().on(0, move |worker| {
            worker.at_node(input, |cx| {
                let packet = cx.alloc(60, IfIndex(1)).unwrap();
                cx.emit(Verdict::slot(1), packet);
            })
        });
        self.graph.fleet().step_here();
        std::mem::take(&mut *self.events.lock().unwrap())
    }
}

#[test]
fn a_process_that_waits_for_its_turn_neither_receives_nor_sends() {
    let mut bed = Bed::new();
    bed.graph.set_hold(Hold::All);
    assert_eq!(bed.turn(), []);
    let errors = bed.graph.interfaces().tx_error.sum(1);
    assert_eq!(errors, 1, "what the router itself would send is dropped and counted");
    bed.graph.discard_held();
    assert_eq!(bed.turn(), [Event::Discarded], "what waits is thrown away when it is said, and not looked at");
    bed.graph.begin(42);
    assert_eq!(bed.turn(), [Event::Begun(42), Event::Asked, Event::Left(2)]);
    assert_eq!(bed.graph.pools()[0].usage().used(), 0);
}

#[test]
fn a_process_that_hands_over_sends_what_it_has() {
    let mut bed = Bed::new();
    bed.graph.set_hold(Hold::Receive);
    assert_eq!(bed.turn(), [Event::Left(1)]);
    // The other one did not take over.
    bed.graph.set_hold(Hold::None);
    assert_eq!(bed.turn(), [Event::Asked, Event::Left(2)]);
}

#[test]
fn threads_that_join_are_held_as_the_others_are() {
    let mut bed = Bed::new();
    bed.graph.set_hold(Hold::All);
    bed.graph.add_worker(&ThreadPlan::default()).unwrap();
    bed.graph.retire(0).unwrap();
    assert_eq!(bed.graph.hold(), Hold::All);
    let rx = Box::new(Queue(bed.events.clone()));
    let queue = PlacedQueue { interface: IfIndex(1), queue: 0, next: Verdict::slot(1), up: false, rx };
    let up = move |node: &mut DeviceInput| {
        node.place(queue);
        node.set_up(IfIndex(1), true);
    };
    bed.graph.input::<DeviceInput, _>(bed.input, 1, up);
    // Two looks at the thread: between them it would have polled.
    bed.graph.fleet().each(|_| ());
    bed.graph.fleet().each(|_| ());
    assert!(!bed.events.lock().unwrap().contains(&Event::Asked));
}
