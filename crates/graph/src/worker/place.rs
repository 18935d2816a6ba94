//! A node's place on a thread: where its packets go, what is known of its loop, which fused chain begins there.

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

/// What of a node does not change while frames are run, but for its peak; on cache lines of its own, because of that.
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
    /// The fused chain that begins here and is used.
    pub(super) chain: Cell<Option<u8>>,
    /// The one that was not right last.
    pub(super) tried: Cell<Option<u8>>,
    /// Calls until one may be chosen; [`NEVER`] where none begins here.
    pub(super) wait: Cell<u8>,
    /// Calls until a longer one is tried again; 0: the one in use is the longest.
    pub(super) renew: Cell<u8>,
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
            chain: Cell::new(None),
            tried: Cell::new(None),
            wait: Cell::new(NEVER),
            renew: Cell::new(0),
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

    /// Looks whether a chain is still right for what comes here: not where more than a few packets leave it.
    #[inline(always)]
    pub(super) fn judge_chain(&self, at: u8, n: usize, left: usize) {
        if left * 8 > n {
            self.look_again(Some(at), PAUSE);
            return;
        }
        let renew = self.renew.get();
        if renew != 0 {
            self.renew.set(renew - 1);
            if renew == 1 {
                self.look_again(None, 0);
            }
        }
    }

    /// The node runs by itself, and after so many calls a chain is chosen again: one behind `tried`.
    pub(super) fn look_again(&self, tried: Option<u8>, wait: u8) {
        self.chain.set(None);
        self.tried.set(tried);
        self.wait.set(wait);
        self.renew.set(0);
    }

    /// Whether it is time to look for a chain, after a call of the node by itself.
    #[inline(always)]
    pub(super) fn wants_chain(&self) -> bool {
        let wait = self.wait.get();
        if (1..NEVER).contains(&wait) {
            self.wait.set(wait - 1);
        }
        wait == 0
    }

    /// Takes up a chain after a call whose packets all went to `next`: of several, the longest first, the one behind that which was not
    /// right last.
    #[inline(never)]
    pub(super) fn choose_chain(&self, id: u16, next: u16, chains: &[ChainSlot]) {
        let begins = |at: &u8| {
            let slot = &chains[usize::from(*at)];
            slot.usable && (slot.from, slot.to) == (id, next)
        };
        let mut all = (0..=u8::MAX).take(chains.len()).filter(begins);
        let first = all.clone().next();
        let at = all.find(|at| Some(*at) > self.tried.get()).or(first);
        self.chain.set(at);
        self.wait.set(if at.is_some() { 0 } else { PAUSE });
        self.renew.set(if at == first { 0 } else { RENEW });
    }

    /// Whether packets leave the graph here, sent, consumed or dropped.
    pub(super) fn ends(&self) -> bool {
        self.nexts.iter().all(|next| *next == ERROR_DROP)
    }

    /// The slot that leads to a node.
    pub(crate) fn slot_of(&self, node: u16) -> Option<u16> {
        self.nexts.iter().position(|next| *next == node).map(|at| at as u16)
    }

    /// The node of a slot.
    pub(crate) fn next_node(&self, slot: u16) -> u16 {
        self.nexts.get(usize::from(slot)).copied().unwrap_or(NULL_NODE)
    }
}

/// A fused chain on this thread.
pub(super) struct ChainSlot {
    pub(super) chain: Box<dyn Fused>,
    /// Its first node and the second.
    pub(super) from: u16,
    pub(super) to: u16,
    pub(super) usable: bool,
}

/// In place of a number of calls: no chain begins there.
pub(super) const NEVER: u8 = u8::MAX;
/// Calls of a chain that is not the longest until a longer one is tried.
const RENEW: u8 = u8::MAX;
/// Calls of a node by itself after its chain was not right, or after there was none for what came.
const PAUSE: u8 = 8;
