//! The generator's state on the main thread: interfaces, streams, captures.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use quiver_command::words;
use quiver_graph::{ArcPoint, IfIndex, NodeId, NodeSpec};
use quiver_wire::MacAddr;
use quiver_wire::pcapfile::LinkType;

use super::capture::{Capture, CreateFile, PgTx, Written};
use super::input::{Active, PgInput, Shared};
use super::stream::{Maker, Source, StreamSpec};
use crate::interface::{IfEvent, InterfaceError, InterfaceKind, Kind, NewInterface, Tx};
use crate::{NetError, Router, WorkerEvent};

words! {
    /// What packets of a generator interface begin with.
    #[derive(Default)]
    pub enum Mode {
        /// An Ethernet header.
        #[default]
        Ethernet = "ethernet",
        /// An IPv4 header.
        Ip4 = "ip4",
        /// An IPv6 header.
        Ip6 = "ip6",
    }
}

impl Mode {
    /// Whether packets begin with an Ethernet header.
    pub const fn is_ethernet(&self) -> bool {
        matches!(self, Self::Ethernet)
    }

    /// The node that packets go to.
    pub const fn input(self) -> &'static str {
        match self {
            Self::Ethernet => DEVICE_END,
            Self::Ip4 => "ip4-input",
            Self::Ip6 => "ip6-input",
        }
    }

    const fn link_type(self) -> LinkType {
        match self {
            Self::Ethernet => LinkType::ETHERNET,
            Self::Ip4 | Self::Ip6 => LinkType::RAW_IP,
        }
    }
}

/// Packet-generator interfaces.
pub const PG: InterfaceKind = InterfaceKind { name: "packet-generator", called: "a packet-generator interface", device_type: "pg" };

/// Why a generator operation failed.
#[derive(Debug, thiserror::Error)]
pub enum PgError {
    /// No such stream.
    #[error("no stream named `{0}'")]
    NoStream(String),
    /// Not a generator interface.
    #[error("`{0}' is not a packet-generator interface")]
    NotPg(String),
    /// No such node.
    #[error("no node `{0}'")]
    NoNode(String),
    /// No such worker.
    #[error("no worker {0}: this router has {1}")]
    NoWorker(usize, usize),
    /// A stream without packets.
    #[error("the stream has no packets")]
    Empty,
    /// Interfaces.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The graph.
    #[error(transparent)]
    Graph(#[from] quiver_graph::GraphError),
}

/// A generator interface.
pub struct PgInterface {
    /// Its number.
    pub index: IfIndex,
    mode: Mode,
    capture: Arc<Capture>,
}

struct Stream {
    spec: StreamSpec,
    interface: IfIndex,
    node: String,
    shared: Arc<Shared>,
}

/// A stream as `show packet-generator` tells it.
#[derive(Clone, Debug)]
pub struct StreamInfo {
    /// As configured.
    pub spec: StreamSpec,
    /// Whether it still sends, or what it sent is still under way.
    pub enabled: bool,
    /// Packets sent since it was enabled.
    pub sent: u64,
    /// Interface that its packets come in on.
    pub interface: IfIndex,
    /// Node that they go to.
    pub node: String,
}

/// The generator's part of the router.
#[derive(Default)]
pub(crate) struct Pg {
    interfaces: BTreeMap<u32, PgInterface>,
    streams: BTreeMap<String, Stream>,
}

/// The node's name.
const NODE: &str = "pg-input";
/// The arc of frames from devices; those of a stream that goes to its end pass its features.
const DEVICE_INPUT: &str = "device-input";
const DEVICE_END: &str = "ethernet-input";

/// The node that all streams run in.
pub(crate) fn nodes(_: &Router) -> Vec<NodeSpec> {
    let arc = ArcPoint::new();
    let point = arc.clone();
    vec![NodeSpec::input(NODE, move |_| PgInput::new(point.clone())).on_arc(DEVICE_INPUT, arc).traced(|entry, out| {
        use std::fmt::Write;
        let _ = write!(out, "stream packet, {} bytes, sw_if_index {}", entry.len, entry.rx_if);
    })]
}

/// Adds the generator's state.
pub(crate) fn init(router: &mut Router) -> Result<(), NetError> {
    router.add_part(Pg::default());
    router.listen(|router, event| {
        if let IfEvent::Deleted(index) = event {
            router.pg_forget(*index);
        }
    });
    router.listen_workers(|router, event| {
        if let WorkerEvent::Leaving(thread) = event {
            router.pg_move_streams(*thread);
        }
    });
    Ok(())
}

impl Router {
    fn pg(&mut self) -> &mut Pg {
        self.part_or_default()
    }

    /// Makes interface `pg<number>`, up to the user to bring up. Only those of Ethernet have a MAC address.
    ///
    /// # Errors
    /// It exists, or there is no room.
    pub fn pg_create_interface(&mut self, number: u32, mac: Option<MacAddr>, mode: Mode) -> Result<IfIndex, PgError> {
        let capture = Arc::new(Capture::new(mode.link_type()));
        let (capture2, counters) = (capture.clone(), self.graph.interfaces().clone());
        let make = move |interface, name: String| {
            NodeSpec::vector(name, move |_| PgTx { interface, counters: counters.clone(), capture: capture2.clone() })
        };
        let mac = match mode {
            // VPP draws the last four bytes; ours are the number, so that runs repeat.
            Mode::Ethernet => mac.unwrap_or(MacAddr::numbered(number)),
            Mode::Ip4 | Mode::Ip6 => MacAddr::ZERO,
        };
        let index = self.create_interface(NewInterface {
            name: format!("pg{number}"),
            kind: Kind::Virtual(&PG),
            mac,
            mtu: 9000,
            max_frame: 9216,
            tx: Tx::Node(Box::new(make)),
        })?;
        self.pg().interfaces.insert(index.0, PgInterface { index, mode, capture });
        Ok(index)
    }

    /// Lets the link of a generator interface come and go, as a cable that is pulled would.
    ///
    /// # Errors
    /// Not a generator interface.
    pub fn pg_set_link(&mut self, index: IfIndex, up: bool) -> Result<(), PgError> {
        self.pg_interface(index)?;
        let link = self.interfaces.get(index).map(|i| i.link).unwrap_or_default();
        self.set_link(index, quiver_graph::Link { up, ..link });
        Ok(())
    }

    fn pg_forget(&mut self, index: IfIndex) {
        if self.pg().interfaces.remove(&index.0).is_none() {
            return;
        }
        let gone: Vec<String> =
            self.pg().streams.iter().filter(|(_, s)| s.interface == index).map(|(name, _)| name.clone()).collect();
        for name in gone {
            let _ = self.pg_delete_stream(&name);
        }
    }

    fn pg_interface(&mut self, index: IfIndex) -> Result<&PgInterface, PgError> {
        let name = self.interfaces.name(index);
        self.pg().interfaces.get(&index.0).ok_or(PgError::NotPg(name))
    }

    /// Defines a stream that comes in on `interface` (any interface) at `node`, in place of one with the same name. It starts disabled.
    ///
    /// # Errors
    /// The node or worker is not there, or the packets have no bytes. A stream with the same name then stays as it is.
    pub fn pg_new_stream(&mut self, spec: StreamSpec, interface: IfIndex, node: &str) -> Result<(), PgError> {
        self.interfaces.expect(interface)?;
        let workers = self.graph.fleet().worker_threads().len();
        if spec.worker >= workers {
            return Err(PgError::NoWorker(spec.worker, workers));
        }
        if matches!(&spec.source, Source::Made(template) if template.bytes.is_empty()) && spec.sizes.is_none() {
            return Err(PgError::Empty);
        }
        let to = self.graph.node(node).ok_or_else(|| PgError::NoNode(node.into()))?;
        let from = self.pg_input()?;
        self.graph.edge(from, to)?;
        if self.pg().streams.contains_key(&spec.name) {
            self.pg_delete_stream(&spec.name)?;
        }
        let stream = Stream { interface, node: node.into(), shared: Arc::default(), spec };
        self.pg().streams.insert(stream.spec.name.clone(), stream);
        Ok(())
    }

    fn pg_input(&self) -> Result<NodeId, PgError> {
        self.graph.node(NODE).ok_or_else(|| PgError::NoNode(NODE.into()))
    }

    /// Starts a stream from its beginning, or all. A packet-generator interface that a stream comes in on is brought up, as in VPP.
    ///
    /// # Errors
    /// No such stream.
    pub fn pg_enable(&mut self, name: Option<&str>) -> Result<(), PgError> {
        let names = self.pg_names(name)?;
        let input = self.pg_input()?;
        for name in names {
            let threads = self.graph.fleet().worker_threads();
            let now = self.graph.clock().now();
            let vector = self.graph.vector_size();
            let Some(stream) = self.pg().streams.get(&name) else { continue };
            let (spec, interface, node, shared) =
                (stream.spec.clone(), stream.interface, stream.node.clone(), stream.shared.clone());
            let device = node == DEVICE_END;
            let to = self.graph.node(&node).ok_or(PgError::NoNode(node))?;
            let next = self.graph.edge(input, to)?;
            if self.pg().interfaces.contains_key(&interface.0) {
                self.set_interface_up(interface, true)?;
            }
            shared.sent.store(0, Ordering::Relaxed);
            let active = Active {
                name: name.clone(),
                maker: Maker::new(&spec),
                interface,
                next,
                device,
                left: spec.limit,
                max_frame: spec.max_frame.unwrap_or(vector).max(1),
                pace: spec.rate.filter(|r| *r > 0.0).map(|rate| (1e9 / rate, now as f64)),
                shared,
            };
            let thread = threads[spec.worker % threads.len()];
            self.graph.input::<PgInput, _>(input, thread, move |node| node.start(active));
        }
        Ok(())
    }

    /// Moves the streams of a thread that leaves: to their own worker where that stays, or to one that takes its place. They go
    /// on where they are.
    fn pg_move_streams(&mut self, from: usize) {
        let Ok(input) = self.pg_input() else { return };
        let threads = self.staying_workers();
        let streams = self.graph.input::<PgInput, _>(input, from, PgInput::take).unwrap_or_default();
        for stream in streams {
            let worker = self.pg().streams.get(&stream.name).map_or(0, |s| s.spec.worker);
            let thread = threads[worker % threads.len()];
            self.graph.input::<PgInput, _>(input, thread, move |node| node.resume(stream));
        }
    }

    /// Stops a stream, or all.
    ///
    /// # Errors
    /// No such stream.
    pub fn pg_disable(&mut self, name: Option<&str>) -> Result<(), PgError> {
        let names = self.pg_names(name)?;
        let input = self.pg_input()?;
        for name in names {
            for thread in self.graph.fleet().threads() {
                let name = name.clone();
                self.graph.input::<PgInput, _>(input, thread, move |node| node.stop(&name));
            }
        }
        Ok(())
    }

    fn pg_names(&mut self, name: Option<&str>) -> Result<Vec<String>, PgError> {
        match name {
            Some(name) if self.pg().streams.contains_key(name) => Ok(vec![name.into()]),
            Some(name) => Err(PgError::NoStream(name.into())),
            None => Ok(self.pg().streams.keys().cloned().collect()),
        }
    }

    /// Removes a stream.
    ///
    /// # Errors
    /// No such stream.
    pub fn pg_delete_stream(&mut self, name: &str) -> Result<(), PgError> {
        self.pg_disable(Some(name))?;
        self.pg().streams.remove(name);
        Ok(())
    }

    /// Changes a stream's settings; it goes on with them when it is enabled next.
    ///
    /// # Errors
    /// No such stream.
    pub fn pg_configure(&mut self, name: &str, change: impl FnOnce(&mut StreamSpec)) -> Result<(), PgError> {
        let stream = self.pg().streams.get_mut(name).ok_or_else(|| PgError::NoStream(name.into()))?;
        change(&mut stream.spec);
        stream.spec.name = name.into();
        Ok(())
    }

    /// All streams by name.
    pub fn pg_streams(&mut self) -> Vec<StreamInfo> {
        let pg = self.pg();
        // A stream has stopped when what it sent stands in the files of captures, too.
        let is_behind = pg.interfaces.values().any(|interface| interface.capture.is_behind());
        let info = |s: &Stream| StreamInfo {
            spec: s.spec.clone(),
            enabled: s.shared.enabled.load(Ordering::Acquire) || (is_behind && s.shared.sent.load(Ordering::Relaxed) > 0),
            sent: s.shared.sent.load(Ordering::Relaxed),
            interface: s.interface,
            node: s.node.clone(),
        };
        pg.streams.values().map(info).collect()
    }

    /// Names of all streams.
    pub fn pg_stream_names(&self) -> Vec<String> {
        self.part::<Pg>().map_or_else(Vec::new, |pg| pg.streams.keys().cloned().collect())
    }

    /// A name that no stream has.
    pub fn pg_free_name(&self) -> String {
        let taken = self.pg_stream_names();
        (0..).map(|n| format!("stream{n}")).find(|name| !taken.contains(name)).unwrap_or_default()
    }

    /// What packets of an interface begin with, where it is one of the generator's.
    pub fn pg_mode(&self, interface: IfIndex) -> Option<Mode> {
        self.part::<Pg>()?.interfaces.get(&interface.0).map(|pg| pg.mode)
    }

    /// Whether an interface is one of the generator's.
    ///
    /// # Errors
    /// It is not.
    pub fn pg_expect(&mut self, interface: IfIndex) -> Result<(), PgError> {
        self.pg_interface(interface).map(drop)
    }

    /// Writes what leaves on a generator interface to a new file, which `create` makes when the first packet has left.
    ///
    /// # Errors
    /// Not a generator interface.
    pub fn pg_capture(&mut self, interface: IfIndex, name: String, create: CreateFile, count: Option<u64>) -> Result<(), PgError> {
        self.pg_interface(interface)?.capture.start(name, create, count);
        Ok(())
    }

    /// Ends a capture, where one runs: what its file comes to, and the packets for which there was no memory.
    ///
    /// # Errors
    /// Not a generator interface.
    pub fn pg_capture_stop(&mut self, interface: IfIndex) -> Result<Option<(Written, u64)>, PgError> {
        Ok(self.pg_interface(interface)?.capture.stop())
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse::{Start, template};
    use super::super::{Sizes, Vary};
    use super::*;
    use crate::interface::L2Mode;
    use crate::testing::Harness;

    fn spec(name: &str, limit: u64) -> StreamSpec {
        let text = "IP4: 02:00:00:00:00:01 -> 02:00:00:00:00:02 UDP: 10.0.0.1 - 10.0.0.4 -> 10.1.0.1 UDP: 1 -> 2";
        StreamSpec {
            name: name.into(),
            limit: Some(limit),
            rate: None,
            sizes: Some(Sizes { low: 60, high: 61, vary: Vary::Increment }),
            worker: 0,
            max_frame: None,
            seed: 1,
            source: Source::Made(template(text, Start::Ethernet).unwrap()),
        }
    }

    fn finish(h: &mut Harness) -> Vec<(IfIndex, Vec<u8>)> {
        let mut got = Vec::new();
        h.until("stream stops", |h| {
            got.extend(h.run());
            h.router.pg_streams().iter().all(|s| !s.enabled)
        });
        got
    }

    #[test]
    fn a_stream_sends_its_limit_with_right_lengths_and_checksums() {
        for workers in [0, 1, 2, 4] {
            let mut h = Harness::with_workers(workers);
            let pg = h.router.pg_create_interface(0, None, Mode::Ethernet).unwrap();
            let out = h.interface(1);
            h.router.set_interface_up(pg, true).unwrap();
            h.router.set_l2(pg, L2Mode::CrossConnect(out)).unwrap();
            let mut s = spec("x", 1000);
            s.worker = workers.saturating_sub(1);
            h.router.pg_new_stream(s, pg, "ethernet-input").unwrap();
            for _ in 0..2 {
                h.router.pg_enable(None).unwrap();
                let got = finish(&mut h);
                assert_eq!(got.len(), 1000);
                for (i, (_, frame)) in got.iter().enumerate() {
                    assert_eq!(frame.len(), 60 + i % 2);
                    assert_eq!(frame[29], 1 + (i % 4) as u8);
                    assert_eq!(quiver_wire::checksum::checksum(&frame[14..34]), 0);
                    assert_eq!(usize::from(u16::from_be_bytes([frame[16], frame[17]])), frame.len() - 14);
                    assert_eq!(usize::from(u16::from_be_bytes([frame[38], frame[39]])), frame.len() - 34);
                }
            }
            h.assert_buffers_held(0);
        }
    }

    #[test]
    fn a_rate_is_kept_on_average() {
        let mut h = Harness::new();
        let pg = h.router.pg_create_interface(0, None, Mode::Ethernet).unwrap();
        let mut s = spec("x", 2000);
        s.rate = Some(100_000.0);
        h.router.pg_new_stream(s, pg, "null-node").unwrap();
        // Taken before the stream begins, because the thread may lose its processor right after that.
        let start = h.router.graph.clock().now();
        h.router.pg_enable(Some("x")).unwrap();
        finish(&mut h);
        let took = h.router.graph.clock().now() - start;
        assert!(took >= 19_000_000, "2000 packets at 100,000 a second in {took} ns");
        assert_eq!(h.count("null-node", "blackholed packets"), 2000);
    }

    #[test]
    fn mistakes_are_told_and_change_nothing() {
        let mut h = Harness::new();
        let pg = h.router.pg_create_interface(0, None, Mode::Ethernet).unwrap();
        assert!(h.router.pg_create_interface(0, None, Mode::Ethernet).is_err());
        assert!(matches!(h.router.pg_new_stream(spec("x", 1), pg, "nowhere"), Err(PgError::NoNode(_))));
        let mut far = spec("x", 1);
        far.worker = 1;
        assert!(matches!(h.router.pg_new_stream(far, pg, "null-node"), Err(PgError::NoWorker(1, 1))));
        assert!(matches!(h.router.pg_enable(Some("x")), Err(PgError::NoStream(_))));
        h.router.pg_new_stream(spec("x", 1), pg, "null-node").unwrap();
        assert!(h.router.pg_new_stream(spec("x", 2), pg, "nowhere").is_err());
        assert_eq!(h.router.pg_streams()[0].spec.limit, Some(1), "the stream with that name stays");
        let other = h.interface(1);
        let create: CreateFile = Arc::new(|| Err(std::io::ErrorKind::NotFound.into()));
        assert!(matches!(h.router.pg_capture(other, "x".into(), create, None), Err(PgError::NotPg(_))));
        h.router.delete_interface(pg).unwrap();
        assert!(h.router.pg_streams().is_empty(), "streams go with their interface");
    }

    #[test]
    fn a_stream_takes_the_place_of_one_with_its_name_even_of_one_that_runs() {
        let mut h = Harness::new();
        let pg = h.router.pg_create_interface(0, None, Mode::Ethernet).unwrap();
        let mut endless = spec("x", 1);
        endless.limit = None;
        h.router.pg_new_stream(endless, pg, "null-node").unwrap();
        h.router.pg_enable(None).unwrap();
        h.run();
        h.router.pg_new_stream(spec("x", 3), pg, "null-node").unwrap();
        assert_eq!(h.router.pg_streams().len(), 1);
        h.run();
        let before = h.count("null-node", "blackholed packets");
        h.run();
        assert_eq!(h.count("null-node", "blackholed packets"), before, "the old one sends no more");
        h.router.pg_enable(None).unwrap();
        finish(&mut h);
        assert_eq!(h.count("null-node", "blackholed packets"), before + 3);
    }

    #[test]
    fn enabling_brings_the_interface_up_and_a_capture_without_packets_sends_none() {
        let mut h = Harness::new();
        let pg = h.router.pg_create_interface(0, None, Mode::Ethernet).unwrap();
        let other = h.interface(1);
        let mut empty = spec("empty", 0);
        empty.source = Source::Recorded(Vec::new());
        empty.sizes = None;
        h.router.pg_new_stream(empty, pg, "null-node").unwrap();
        let mut elsewhere = spec("elsewhere", 1);
        elsewhere.limit = Some(1);
        h.router.set_interface_up(other, false).unwrap();
        h.router.pg_new_stream(elsewhere, other, "null-node").unwrap();
        assert!(!h.router.interfaces.get(pg).unwrap().admin_up);
        h.router.pg_enable(None).unwrap();
        finish(&mut h);
        assert!(h.router.interfaces.get(pg).unwrap().admin_up);
        assert!(!h.router.interfaces.get(other).unwrap().admin_up, "only the generator's own interfaces");
        assert_eq!(h.count("null-node", "blackholed packets"), 1);
    }

    #[test]
    fn a_capture_shows_what_left() {
        let mut h = Harness::with_workers(1);
        let (a, b) = (
            h.router.pg_create_interface(0, None, Mode::Ethernet).unwrap(),
            h.router.pg_create_interface(1, None, Mode::Ethernet).unwrap(),
        );
        for i in [a, b] {
            h.router.set_interface_up(i, true).unwrap();
        }
        h.router.set_l2(a, L2Mode::CrossConnect(b)).unwrap();
        h.router.pg_new_stream(spec("x", 300), a, "ethernet-input").unwrap();
        let path = std::env::temp_dir().join(format!("quiver-pg-test-{}.pcap", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let new = path.clone();
        let create: CreateFile = Arc::new(move || std::fs::File::create_new(&new));
        h.router.pg_capture(b, "x.pcap".into(), create, Some(200)).unwrap();
        h.router.pg_enable(None).unwrap();
        finish(&mut h);
        let file = std::fs::File::open(&path).unwrap();
        let packets: Vec<_> = quiver_wire::pcapfile::Reader::new(file).unwrap().map(Result::unwrap).collect();
        assert_eq!(packets.len(), 200);
        assert!(packets.iter().all(|p| p.bytes.len() >= 60));
        let (written, missed) = h.router.pg_capture_stop(b).unwrap().unwrap();
        assert_eq!((futures_lite::future::block_on(written), missed), (Ok(()), 0));
        std::fs::remove_file(&path).unwrap();
        h.assert_buffers_held(0);
    }

    #[test]
    fn a_file_that_cannot_be_written_holds_up_no_packet_and_is_told_at_the_end() {
        let mut h = Harness::with_workers(1);
        let (a, b) = (
            h.router.pg_create_interface(0, None, Mode::Ethernet).unwrap(),
            h.router.pg_create_interface(1, None, Mode::Ethernet).unwrap(),
        );
        for i in [a, b] {
            h.router.set_interface_up(i, true).unwrap();
        }
        h.router.set_l2(a, L2Mode::CrossConnect(b)).unwrap();
        h.router.pg_new_stream(spec("x", 300), a, "ethernet-input").unwrap();
        let (answer, answered) = std::sync::mpsc::channel::<()>();
        let answered = std::sync::Mutex::new(answered);
        let create: CreateFile = Arc::new(move || {
            // A disk that does not answer before it is told to.
            let _ = answered.lock().unwrap().recv();
            Err(std::io::ErrorKind::StorageFull.into())
        });
        h.router.pg_capture(b, "x.pcap".into(), create, None).unwrap();
        h.router.pg_enable(None).unwrap();
        h.until("all packets have left", |h| {
            h.run();
            h.router.graph.interfaces().tx.sum(b.0).0 == 300
        });
        assert!(h.router.pg_streams()[0].enabled, "what it sent is not in the file");
        drop(answer);
        finish(&mut h);
        let (written, missed) = h.router.pg_capture_stop(b).unwrap().unwrap();
        let error = futures_lite::future::block_on(written).unwrap_err();
        assert!(error.to_string().contains("x.pcap") && missed == 0, "{error}");
        h.assert_buffers_held(0);
    }
}
