//! The reader round by round, with the kernel of a test host.

use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};

use quiver_net::testing::Harness;
use quiver_testbed::{Host, Scenario};

use super::*;

/// Rounds within which a reader that nothing disturbs is done.
const ROUNDS: usize = 10_000;

struct Scene {
    host: Host,
    reader: Reader,
    /// The other ends, without which the reader ends.
    _ends: (Sender<Command>, Receiver<Vec<Change>>, Harness),
}

impl Scene {
    /// A reader that has compared with the kernel of a host with a link and an address, and holds `held` bytes of announcements.
    fn new(held: usize) -> Self {
        let host = Host::new("linux").unwrap();
        host.ip("link add e0 type veth peer name p0\nlink set p0 up\nlink set e0 up\naddr add 10.0.0.1/24 dev e0").unwrap();
        let socket = host.enter(|| Socket::open(Socket::here()?, held)).unwrap();
        let harness = Harness::new();
        let (to_reader, commands) = channel();
        let (to_main, batches) = sync_channel(100_000);
        let ends = Ends {
            commands,
            batches: to_main,
            wake: Arc::new(rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap()),
            waits: Arc::default(),
            signal: harness.router.process_signal("linux-nl"),
            figures: Arc::default(),
            batch: 64,
        };
        let mut scene = Self { host, reader: Reader::new(socket, ends), _ends: (to_reader, batches, harness) };
        let interfaces = HashMap::from([(scene.link(), IfIndex(1))]);
        scene.reader.take(Command::Interfaces(interfaces));
        scene.rest();
        assert_eq!(scene.reader.figures.comparisons, 1);
        scene
    }

    fn link(&self) -> u32 {
        let output = self.host.run("cat /sys/class/net/e0/ifindex", Duration::from_secs(120)).unwrap();
        output.stdout.trim().parse().unwrap()
    }

    fn routes(&self, what: &str, range: std::ops::Range<usize>) {
        let lines: String = range.map(|n| format!("route {what} 20.{}.{}.0/24 via 10.0.0.2 dev e0\n", n / 256, n % 256)).collect();
        self.host.ip(&lines).unwrap();
    }

    /// Rounds until the reader would wait for the kernel, comparisons that are to come included.
    fn rest(&mut self) {
        for _ in 0..ROUNDS {
            match self.reader.round().unwrap() {
                Next::Wait if self.reader.schedule.due().is_none() => return,
                Next::Wait => self.reader.wait().unwrap(),
                Next::Go => {}
                Next::End => panic!("it ends"),
            }
        }
        panic!("not at rest: {:?}", self.reader.figures);
    }

    /// How many routes of [`Scene::routes`] the router has.
    fn count(&self) -> usize {
        self.reader.rib.all_told().filter(|(table, prefix)| *table == 0 && prefix.to_string().starts_with("20.")).count()
    }

    /// The place of the list that the kernel has been asked for.
    fn asked(&self) -> Option<usize> {
        self.reader.dump.as_ref().filter(|dump| dump.asked).map(|dump| dump.list)
    }
}

#[test]
fn after_an_overflow_nothing_is_asked_for_until_the_socket_is_empty() {
    let Some(_scenario) = Scenario::begin(&["ip"]) else { return };
    let mut scene = Scene::new(64 << 10);
    scene.routes("add", 0..2_000);
    let mut rounds = 0;
    while scene.asked().is_none() {
        scene.reader.round().unwrap();
        rounds += 1;
        assert!(rounds < ROUNDS, "{:?}", scene.reader.figures);
    }
    assert!(rounds > 1, "the socket holds more than a round reads");
    assert_eq!(scene.reader.figures.overruns, 1);
    // What changes now is announced again.
    scene.routes("del", 0..10);
    scene.rest();
    assert_eq!(scene.count(), 1_990);
    assert_eq!((scene.reader.figures.overruns, scene.reader.figures.comparisons), (1, 2));
}

#[test]
fn a_list_that_the_kernel_puts_off_is_waited_for() {
    let Some(_scenario) = Scenario::begin(&["ip"]) else { return };
    let mut scene = Scene::new(64 << 10);
    scene.reader.schedule.at_once(Instant::now());
    scene.reader.round().unwrap();
    for errno in [Errno::NOBUFS, Errno::BUSY] {
        let envelope = Envelope { kind: 2, flags: 0, sequence: scene.reader.sequence, body: &[] };
        scene.reader.message(&envelope, Message::Error(-errno.raw_os_error()));
        assert_eq!(scene.asked(), Some(0), "{errno:?}");
    }
    scene.rest();
    assert_eq!(scene.reader.figures.comparisons, 2);
    // The real answer: there is no room for it, nor for a word that there is none.
    scene.routes("add", 0..2_000);
    scene.reader.dump = Some(Dump::begin(Instant::now()));
    scene.reader.request().unwrap();
    scene.rest();
    assert_eq!(scene.count(), 2_000);
    assert_eq!(scene.reader.figures.overruns, 1);
}

#[test]
fn a_comparison_whose_answer_is_lost_begins_anew() {
    let Some(_scenario) = Scenario::begin(&["ip"]) else { return };
    let mut scene = Scene::new(64 << 10);
    for list in 0..List::ALL.len() {
        let comparisons = scene.reader.figures.comparisons;
        scene.reader.schedule.at_once(Instant::now());
        while scene.asked() != Some(list) {
            scene.reader.round().unwrap();
        }
        scene.routes("add", list * 10..list * 10 + 10);
        while scene.reader.socket.read().unwrap() != Read::Empty {}
        scene.rest();
        assert_eq!(scene.count(), list * 10 + 10);
        assert_eq!(scene.reader.figures.comparisons, comparisons + 1);
    }
}
