//! Lines: nodes that usually follow one another, run as one loop.
//!
//! ```text
//!   one node after the other:   [p p p p] ► A   [p p p p] ► B   [p p p p] ► C      three calls, three passes over the packets
//!   as a line:                  [p p p p] ► A ► B ► C                              one call; each group passes all three
//! ```
//!
//! A line is put together from the same functions as its nodes, so no rule stands twice. Each node says by its verdicts where packets
//! go; a group that goes on along the line is handed to the next node's [`Node::group`] where it stands, and what goes
//! anywhere else (a feature, a drop, an ICMP error) leaves the line there and waits for that node as ever. A packet of a group that is not
//! plain goes on by itself, so packets that take the same way stay in order.
//!
//! Packets are counted for each node that they pass, as without lines; clocks of a line count for its first node. Where packets are
//! traced, or the loop of one of its nodes is set by hand, its nodes run one after the other.

use crate::context::NodeCx;
use crate::frame::{Frame, TAKEN};
use crate::group::Group;
use crate::packet::Env;
use crate::spec::Body;
use crate::staged::Level;
use crate::stats::SimpleRows;
use crate::worker::Place;

mod steps;

use steps::{Bodies, BodyPtr, Exit, LineEnv, Passed, Places, Steps, Way};
pub use steps::{End, Then};

/// Packets a step.
const WIDTH: usize = 8;

/// A line of nodes: `Then<First, Then<Second, End<Third>>>`.
pub trait Line: Steps {}

impl<L: Steps> Line for L {}

/// The loop over a frame.
#[inline(always)]
fn drive<L: Steps>(line: &mut L, cx: &mut NodeCx<'_>, frame: &mut Frame, exits: &mut Vec<Exit>) {
    let (n, env) = (frame.len, cx.env);
    let mut way = Way { frame, next: cx.next.as_mut_ptr(), env, exits };
    let mut i = 0;
    // For both loops: i + W ≤ n; frame and next lane are exclusively borrowed, and no view or group is alive.
    while i + WIDTH <= n {
        // SAFETY: as above.
        unsafe {
            line.ahead::<WIDTH>(way.frame, i, 0);
            let mut group = Group::<WIDTH>::new(way.frame, i, way.next, &env);
            line.group(&mut group, &mut way);
        }
        i += WIDTH;
    }
    while i < n {
        // SAFETY: as above.
        unsafe {
            let mut group = Group::<1>::new(way.frame, i, way.next, &env);
            line.group(&mut group, &mut way);
        }
        i += 1;
    }
}

/// A compiled loop.
///
/// # Safety
/// Calling it needs the processor features of the level it was compiled for.
type LineFn<L> = unsafe fn(&mut L, &mut NodeCx<'_>, &mut Frame, &mut Vec<Exit>);

fn base<L: Steps>(line: &mut L, cx: &mut NodeCx<'_>, frame: &mut Frame, exits: &mut Vec<Exit>) {
    drive(line, cx, frame, exits);
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Exit, Frame, NodeCx, Steps, drive};

    #[target_feature(enable = "sse3,ssse3,sse4.1,sse4.2,popcnt")]
    pub(super) fn v2<L: Steps>(line: &mut L, cx: &mut NodeCx<'_>, frame: &mut Frame, exits: &mut Vec<Exit>) {
        drive(line, cx, frame, exits);
    }

    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,movbe,fma,popcnt")]
    pub(super) fn v3<L: Steps>(line: &mut L, cx: &mut NodeCx<'_>, frame: &mut Frame, exits: &mut Vec<Exit>) {
        drive(line, cx, frame, exits);
    }
}

/// The loop for the level that nodes have by themselves.
fn select<L: Steps>() -> LineFn<L> {
    match Level::best() {
        #[cfg(target_arch = "x86_64")]
        Level::V2 => x86::v2::<L>,
        #[cfg(target_arch = "x86_64")]
        Level::V3 => x86::v3::<L>,
        _ => base::<L>,
    }
}

/// A line behind a pointer.
pub(crate) trait Fused: Send {
    /// Its nodes, in order.
    fn ids(&self) -> &[u16];
    /// Runs a frame through the line: afterwards `cx` is that of the last node, whose verdicts are in the next lane, and packets
    /// that have left before wait for the nodes that they went to. Counts calls and packets of each node, and gives their sums.
    fn run<'a>(
        &mut self,
        bodies: &mut [Body],
        places: &'a [Place],
        cx: &mut NodeCx<'a>,
        frame: &mut Frame,
        nodes: &SimpleRows<3>,
    ) -> Passed;
}

struct Whole<L> {
    line: L,
    ids: Vec<u16>,
    run: LineFn<L>,
    exits: Vec<Exit>,
}

/// A line of these nodes for a worker; `None` where they are not of its types, or one does not lead to the next.
pub(crate) fn line<L: Line>(names: &[&str], ids: &[u16], env: Env, bodies: &[Body]) -> Option<Box<dyn Fused>> {
    let distinct = ids.iter().enumerate().all(|(at, id)| !ids[..at].contains(id));
    let line = L::make(names, ids, &LineEnv(env)).filter(|line| distinct && line.fits(&Bodies(bodies)))?;
    Some(Box::new(Whole { line, ids: ids.to_vec(), run: select::<L>(), exits: Vec::new() }))
}

impl<L: Line> Fused for Whole<L> {
    fn ids(&self) -> &[u16] {
        &self.ids
    }

    fn run<'a>(
        &mut self,
        bodies: &mut [Body],
        places: &'a [Place],
        cx: &mut NodeCx<'a>,
        frame: &mut Frame,
        nodes: &SimpleRows<3>,
    ) -> Passed {
        let Self { line, run, exits, .. } = self;
        let places = Places(places);
        let mut sum = Passed::default();
        let n = frame.len;
        // SAFETY: the line was made for these bodies (`line`: distinct, of its types) and goes with the first of them that does;
        // they are exclusively borrowed. `select` gives only loops that this processor can run.
        unsafe {
            line.begin(&BodyPtr(bodies.as_mut_ptr()), &places, cx);
            run(line, cx, frame, exits);
        }
        line.end(&places, cx);
        line.count(n, &mut sum, nodes);
        if !exits.is_empty() {
            leave(exits, places.0, cx, frame);
        }
        sum
    }
}

/// Packets that have left wait for their nodes.
#[cold]
fn leave(exits: &mut Vec<Exit>, places: &[Place], cx: &mut NodeCx<'_>, frame: &mut Frame) {
    for Exit { at, id, slot } in exits.drain(..) {
        cx.core.queue.open_frame(places[id as usize].next_node(slot)).append_from(frame, at);
        frame.index[at] = TAKEN;
        frame.taken += 1;
    }
}
