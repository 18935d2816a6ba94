//! A node of a plugin, as a worker runs it.

use std::ffi::c_void;
use std::sync::Arc;

use quiver_graph::{ArcPoint, Frame, IfIndex, NoDrops, NoNext, NodeCx, NodeSpec, VECTOR_MAX, VectorNode, Verdict};
use quiver_plugin::abi::{BATCH_MAX, Batch, DROP};

use crate::declared::{Close, NodeDeclared, Run};
use crate::host::{Counters, State};

const _: () = assert!(VECTOR_MAX == BATCH_MAX && quiver_plugin::abi::WINDOW == 64);

/// Interfaces are the low bits of the context lane.
const INTERFACE: u32 = (1 << 24) - 1;

/// Where packets go that the plugin says nothing about.
#[derive(Clone)]
enum Path {
    /// To the first next node, or nowhere.
    First(u16),
    /// On along the arc.
    Arc {
        point: ArcPoint,
        /// Its packets belong to the interface that they leave by.
        leaves: bool,
    },
}

/// Lanes that the framework does not have.
struct Lanes {
    heads: [*mut u8; VECTOR_MAX],
    lengths: [u32; VECTOR_MAX],
    next: [u16; VECTOR_MAX],
    reasons: [u16; VECTOR_MAX],
}

pub(crate) struct ForeignNode {
    run: Run,
    close: Option<Close>,
    state: State,
    path: Path,
    /// Reasons that it may name; the one behind them is the router's.
    reasons: u16,
    counters: Arc<[Counters]>,
    lanes: Box<Lanes>,
}

// SAFETY: the state is one thread's: `open` has made it for that thread, and the interface says that nodes run there. Addresses in the
// lanes are written anew for each vector.
unsafe impl Send for ForeignNode {}

impl Drop for ForeignNode {
    fn drop(&mut self) {
        if let Some(close) = self.close {
            // SAFETY: what `open` has made, for the last time. The plugin is in memory: nodes leave the graph before it does.
            unsafe { close(self.state) }
        }
    }
}

/// The declaration of a plugin's node to the graph. `feature` is the arc that it stands on.
pub(crate) fn spec(node: &NodeDeclared, feature: Option<&'static str>, plugin: State, counters: &Arc<[Counters]>) -> NodeSpec {
    let point = ArcPoint::new();
    let path = match feature {
        Some(arc) => Path::Arc { point: point.clone(), leaves: arc.ends_with("-output") },
        None => Path::First(u16::from(!node.next.is_empty())),
    };
    let (run, open, close, counters) = (node.run, node.open, node.close, Arc::clone(counters));
    // The last one is the router's.
    let reasons = node.reasons.len() as u16 - 1;
    let make = move |thread: u32| {
        // SAFETY: the main thread, with the state that `start` has made. The graph forgets this before the plugin is unloaded.
        let state = open.map_or(plugin, |open| unsafe { open(plugin, thread) });
        let lanes = Lanes {
            heads: [std::ptr::null_mut(); VECTOR_MAX],
            lengths: [0; VECTOR_MAX],
            next: [0; VECTOR_MAX],
            reasons: [0; VECTOR_MAX],
        };
        // Without `open` the state is the plugin's own, and not a node's to close.
        let close = close.filter(|_| open.is_some());
        ForeignNode { run, close, state, path: path.clone(), reasons, counters: Arc::clone(&counters), lanes: Box::new(lanes) }
    };
    let spec = NodeSpec::vector(node.name.clone(), move |cx| make(cx.thread as u32)).with_reasons(node.reasons);
    let spec = node.next.iter().fold(spec, |spec, next| spec.with_next(next));
    match feature {
        Some(arc) => spec.on_arc(arc, point),
        None => spec,
    }
}

/// What a call of the plugin needs of the router, behind `quiver_batch.router`.
struct Call<'a, 'b> {
    cx: &'a mut NodeCx<'b>,
    frame: &'a mut Frame,
    counters: &'a [Counters],
    reasons: u16,
    heads: *mut *mut u8,
    lengths: *mut u32,
}

impl ForeignNode {
    /// Where each packet goes by itself.
    fn fill(path: &Path, frame: &Frame, next: &mut [u16]) {
        match path {
            Path::First(slot) => next.fill(*slot),
            Path::Arc { point, leaves } => {
                let lane = if *leaves { frame.notes() } else { frame.contexts() };
                let first = lane.first().map_or(0, |word| word & INTERFACE);
                let slot = |interface: u32| point.next(IfIndex(interface), Verdict::DROP).index();
                if lane.iter().all(|word| word & INTERFACE == first) {
                    return next.fill(slot(first));
                }
                next.iter_mut().zip(lane).for_each(|(next, word)| *next = slot(word & INTERFACE));
            }
        }
    }
}

impl VectorNode for ForeignNode {
    type Next = NoNext;
    type Drop = NoDrops;

    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame) {
        let n = frame.len();
        let Lanes { heads, lengths, next, reasons } = &mut *self.lanes;
        cx.windows(frame, heads, lengths);
        Self::fill(&self.path, frame, &mut next[..n]);
        reasons[..n].fill(0);
        let (now, thread) = (cx.now(), cx.thread() as u32);
        let (context, note) = (frame.contexts().as_ptr(), frame.notes().as_ptr());
        let (heads, lengths) = (heads.as_mut_ptr(), lengths.as_mut_ptr());
        let mut call = Call { cx: &mut *cx, frame: &mut *frame, counters: &self.counters, reasons: self.reasons, heads, lengths };
        let mut batch = Batch {
            size: size_of::<Batch>() as u32,
            count: n as u32,
            head: heads,
            length: lengths,
            context,
            note,
            next: next.as_mut_ptr(),
            reason: reasons.as_mut_ptr(),
            now,
            thread,
            reserved: 0,
            router: (&raw mut call).cast(),
            shift,
            count_events,
            add,
        };
        // SAFETY: the state is this thread's, and every lane has a value for each packet. What the lanes point to is this node's for the
        // time of the call: packets are the frame's, in memory of the router alone.
        unsafe { (self.run)(self.state, &raw mut batch) };
        let next = &next[..n];
        cx.slots(frame).copy_from_slice(next);
        if next.contains(&DROP) {
            for i in (0..n).filter(|i| next[*i] == DROP) {
                cx.drop_at(frame, i, reasons[i].min(self.reasons));
            }
        }
    }
}

/// What belongs to a batch.
///
/// # Safety
/// A batch that the plugin was given, while the call lasts.
unsafe fn call<'a>(batch: *mut Batch) -> &'a mut Call<'a, 'a> {
    // SAFETY: the caller's promise.
    unsafe { &mut *(*batch).router.cast::<c_void>().cast() }
}

unsafe extern "C" fn shift(batch: *mut Batch, packet: u32, bytes: i32) -> i32 {
    // SAFETY: the plugin's argument.
    let call = unsafe { call(batch) };
    let at = packet as usize;
    if at >= call.frame.len() {
        return -1;
    }
    let mut view = call.cx.packet(call.frame, at);
    let many = bytes.unsigned_abs() as usize;
    let done = if bytes < 0 { view.push(many) } else { view.pull(many) };
    if !done {
        return -1;
    }
    let length = view.span().len() as u32;
    // SAFETY: lanes of this node, of which the packet has a value.
    unsafe {
        *call.heads.add(at) = (*call.heads.add(at)).wrapping_offset(bytes as isize);
        *call.lengths.add(at) = length;
    }
    0
}

unsafe extern "C" fn count_events(batch: *mut Batch, reason: u32, events: u64) {
    // SAFETY: the plugin's argument.
    let call = unsafe { call(batch) };
    if reason < u32::from(call.reasons) {
        call.cx.count_at(reason as u16, events);
    }
}

unsafe extern "C" fn add(batch: *mut Batch, counter: u32, index: u32, packets: u64, bytes: u64) {
    // SAFETY: the plugin's argument.
    let call = unsafe { call(batch) };
    if let Some(counters) = call.counters.get(counter as usize) {
        counters.add(call.cx.thread(), index, packets, bytes);
    }
}
