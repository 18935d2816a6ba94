//! A node's place on a thread: where its packets go, what is known of its loop, which line begins there.

use std::cell::Cell;

use crate::context::{ERROR_DROP, NULL_NODE, NodeCx};
use crate::fuse::Fused;

/// The most expensive call of a node since the figures were cleared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodePeak {
    /// Ticks that it took.
    pub clocks: u64,
    /// Packets that it was about.
    pub vectors: u64,
}

/// What of a node does not change while frames are run, but for its peak; on lines of its own, because of that.
#[repr(align(128))]
pub(crate) struct Place {
    pub(super) nexts: Vec<u16>,
    pub(crate) error_base: u32,
    pub(super) prefetch: u8,
    pub(super) takes_shared: bool,
    /// Its loop is as it is by itself.
    pub(super) usual: bool,
    /// It often passes vectors as they are.
    pub(super) passes: bool,
    /// The line that begins here and is used.
    pub(super) line: Cell<Option<u8>>,
    /// Calls until one may be chosen; [`NEVER`] where none begins here.
    pub(super) wait: Cell<u8>,
    pub(super) peak: Cell<NodePeak>,
}

impl Place {
    pub(super) fn new(nexts: Vec<u16>, error_base: u32, prefetch: u8, takes_shared: bool) -> Self {
        Self {
            nexts,
            error_base,
            prefetch,
            takes_shared,
            usual: true,
            passes: false,
            line: Cell::new(None),
            wait: Cell::new(NEVER),
            peak: Cell::default(),
        }
    }

    /// Prepares the surroundings for a call of this node.
    #[inline(always)]
    pub(crate) fn enter<'a>(&'a self, id: u16, cx: &mut NodeCx<'a>) {
        cx.env.error_base = self.error_base;
        cx.prefetch = self.prefetch;
        cx.node = id;
        cx.nexts = &self.nexts;
    }

    /// Looks whether a line is still right for what comes here: not where more than a few packets leave it.
    #[inline(always)]
    pub(super) fn judge_line(&self, n: usize, left: usize) {
        if left * 8 > n {
            self.line.set(None);
            self.wait.set(PAUSE);
        }
    }

    /// Whether it is time to look for a line, after a call of the node by itself.
    #[inline(always)]
    pub(super) fn wants_line(&self) -> bool {
        let wait = self.wait.get();
        if (1..NEVER).contains(&wait) {
            self.wait.set(wait - 1);
        }
        wait == 0
    }

    /// Takes up a line after a call whose packets all went to `next`.
    #[inline(never)]
    pub(super) fn choose_line(&self, id: u16, next: u16, lines: &[LineSlot]) {
        let at = lines.iter().position(|slot| slot.usable && (slot.from, slot.to) == (id, next));
        self.line.set(at.and_then(|at| u8::try_from(at).ok()));
        self.wait.set(if at.is_some() { 0 } else { PAUSE });
    }

    /// Whether packets leave the graph here, sent, consumed or dropped.
    pub(super) fn ends(&self) -> bool {
        self.nexts.iter().all(|next| *next == ERROR_DROP)
    }

    /// The node of a slot.
    pub(crate) fn next_node(&self, slot: u16) -> u16 {
        self.nexts.get(usize::from(slot)).copied().unwrap_or(NULL_NODE)
    }
}

/// A line of nodes on this thread.
pub(super) struct LineSlot {
    pub(super) line: Box<dyn Fused>,
    /// Its first node and the second.
    pub(super) from: u16,
    pub(super) to: u16,
    pub(super) usable: bool,
}

/// In place of a number of calls: no line begins there.
pub(super) const NEVER: u8 = u8::MAX;
/// Calls of a node by itself after its line was not right, or after there was none for what came.
const PAUSE: u8 = 8;
