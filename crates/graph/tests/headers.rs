//! Link headers of any length, put in front of packets one by one and in batches.

use std::sync::{Arc, Mutex};

use quiver_buffer::{PageSize, Region, RegionConfig};
use quiver_graph::clock::Clock;
use quiver_graph::stats::Stats;
use quiver_graph::{
    Batch, FastPath, Frame, Graph, IfIndex, InputNode, NoDrops, NoNext, Node, NodeCx, NodeSpec, Pkt, STATS_BYTES, Sent, VectorNode,
    Verdict, next_nodes,
};
use quiver_tables::qsbr;

next_nodes! { enum SourceNext { Put = "put" } }
next_nodes! { enum PutNext { Sink = "sink" } }

/// Bytes of the longest header.
const MOST: u32 = 24;
const PACKETS: usize = 21;
const PAYLOAD: [u8; 60] = [0x5a; 60];

/// The header whose last bytes packets get.
fn header() -> [u8; MOST as usize] {
    std::array::from_fn(|n| 1 + n as u8)
}

fn words() -> [u64; 3] {
    let bytes = header();
    std::array::from_fn(|n| u64::from_ne_bytes(std::array::from_fn(|k| bytes[8 * n + k])))
}

/// How headers are put.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    OneByOne,
    /// Each packet one of so many bytes less than the first.
    Batch,
    /// All the same, where that is long enough.
    Same,
}

struct Source(usize);

impl InputNode for Source {
    type Next = SourceNext;
    type Drop = NoDrops;
    fn poll(&mut self, cx: &mut NodeCx<'_>) -> usize {
        let n = std::mem::take(&mut self.0);
        for _ in 0..n {
            let packet = cx.alloc_bytes(&PAYLOAD, IfIndex(1)).expect("a buffer");
            cx.emit(SourceNext::Put, packet);
        }
        n
    }
}

#[derive(Clone)]
struct Put {
    way: Way,
    len: u32,
}

impl Node for Put {
    type Next = PutNext;
    type Drop = NoDrops;
    #[inline(always)]
    fn packet(&mut self, _cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        assert!(packet.prepend(words(), self.len as usize));
        PutNext::Sink.into()
    }
}

impl FastPath for Put {
    #[inline(always)]
    fn batch<const W: usize>(&mut self, batch: &mut Batch<'_, W>) -> Option<Sent> {
        let len = self.len;
        let done = match self.way {
            Way::OneByOne => false,
            Way::Batch => batch.prepend(|k| (words(), len.saturating_sub(k as u32))),
            Way::Same => batch.prepend_same(words(), len),
        };
        assert!(done || self.way == Way::OneByOne || self.way == Way::Same && len < 16, "{:?} of {len}", self.way);
        done.then(|| batch.send_all(PutNext::Sink.into()))
    }
}

struct Sink(Arc<Mutex<Vec<Vec<u8>>>>);

impl VectorNode for Sink {
    type Next = NoNext;
    type Drop = NoDrops;
    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame) {
        for n in 0..frame.len() {
            let packet = cx.packet(frame, n);
            self.0.lock().unwrap().push(packet.bytes().to_vec());
            drop(packet.take());
        }
    }
}

/// What comes out.
fn put(way: Way, len: u32, width: u8) -> Vec<Vec<u8>> {
    let region = Region::new(&RegionConfig { buffers_per_numa: 1024, page_size: PageSize::Kb4, ..Default::default() }).unwrap();
    let mut graph = Graph::new(region, Stats::new(STATS_BYTES).unwrap(), Clock::new(), qsbr::Domain::new());
    graph.start_workers(&[]).unwrap();
    let seen = Arc::default();
    let sink = Arc::clone(&seen);
    graph.add(vec![NodeSpec::vector("sink", move |_: &_| Sink(Arc::clone(&sink)))]).unwrap();
    graph.add(vec![NodeSpec::fast("put", Put { way, len })]).unwrap();
    graph.set_loop("put", Some(width), None, None).unwrap();
    graph.add(vec![NodeSpec::input("source", move |_| Source(PACKETS))]).unwrap();
    graph.fleet().step_here();
    std::mem::take(&mut *seen.lock().unwrap())
}

#[test]
fn packets_get_the_last_bytes_of_a_header_and_keep_what_they_are() {
    for len in 0..=MOST {
        for (way, width) in [(Way::OneByOne, 1), (Way::Batch, 4), (Way::Batch, 8), (Way::Same, 4), (Way::Same, 8)] {
            let out = put(way, len, width);
            assert_eq!(out.len(), PACKETS);
            for (n, packet) in out.iter().enumerate() {
                // Behind the last whole batch they pass one by one.
                let batched = n < PACKETS / usize::from(width) * usize::from(width);
                let less = if way == Way::Batch && batched { n % usize::from(width) } else { 0 };
                let from = (MOST as usize - len as usize + less).min(MOST as usize);
                let expected = [&header()[from..], &PAYLOAD].concat();
                assert_eq!(*packet, expected, "{way:?} of {len} bytes, {width} at a time, packet {n}");
            }
        }
    }
}
