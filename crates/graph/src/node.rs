//! What a node is: a struct, where packets go next, why they are dropped, and a function for one packet.

use crate::batch::{Batch, Sent};
use crate::context::NodeCx;
use crate::frame::Frame;
use crate::memory::{Memory, Private};
use crate::packet::Pkt;

/// Where a packet goes: slot in the node's list of next nodes. Slot 0 is `error-drop`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Verdict(pub(crate) u16);

impl Verdict {
    /// To `error-drop`; the aux lane must hold the reason (see [`Pkt::drop`]).
    pub const DROP: Self = Self(0);

    /// A slot that the graph gave for an edge added at run time. A slot that does not exist is a drop.
    #[inline(always)]
    pub const fn slot(slot: u16) -> Self {
        Self(slot)
    }

    /// The slot.
    pub const fn index(self) -> u16 {
        self.0
    }

    /// One of two verdicts, without a branch.
    #[inline(always)]
    pub const fn select(condition: bool, yes: Self, no: Self) -> Self {
        Self(if condition { yes.0 } else { no.0 })
    }
}

impl<N: NextNodes> From<N> for Verdict {
    #[inline(always)]
    fn from(next: N) -> Self {
        Self(next.slot())
    }
}

/// The nodes that a node can send to, made by [`crate::next_nodes!`].
pub trait NextNodes: Copy + 'static {
    /// Names of the nodes, by slot - 1.
    const NAMES: &'static [&'static str];
    /// Slot of this one, from 1.
    fn slot(self) -> u16;
}

/// How grave a counted event is, as `show errors` prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Something to count, nothing wrong.
    Info,
    /// Something is wrong with a packet.
    Error,
}

impl std::fmt::Display for Severity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Info => "info",
            Self::Error => "error",
        })
    }
}

/// One drop reason or counted event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorText {
    /// As `show errors` prints it.
    pub text: &'static str,
    /// As the statistics segment names it: `text`, or the short name that VPP has for it.
    pub name: &'static str,
    /// What has happened, in a sentence; empty where the declaration says nothing.
    pub about: &'static str,
    /// What it often comes from; empty where the sentence says enough.
    pub causes: &'static str,
    /// What to look at, and what to do about it; empty as above.
    pub check: &'static str,
    /// Commands and counters that belong to it, in backquotes; empty as above.
    pub see: &'static str,
    /// Its severity.
    pub severity: Severity,
}

impl ErrorText {
    /// A reason with the comment of its declaration: a sentence, and where more is to be said, paragraphs that begin with `Causes:`,
    /// `Check:` and `See:`, in this order.
    pub const fn new(text: &'static str, comment: &'static str, severity: Severity) -> Self {
        let (rest, see) = split(comment, " See: ");
        let (rest, check) = split(rest, " Check: ");
        let (about, causes) = split(rest, " Causes: ");
        Self { text, name: text, about, causes, check, see, severity }
    }

    /// The same under the name that VPP's statistics have.
    pub const fn named(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }
}

/// What stands before a mark, and what behind it; all and nothing where it is not there.
const fn split(text: &'static str, mark: &str) -> (&'static str, &'static str) {
    let (bytes, mark) = (text.as_bytes(), mark.as_bytes());
    let mut at = 0;
    while at + mark.len() <= bytes.len() {
        let mut same = 0;
        while same < mark.len() && bytes[at + same] == mark[same] {
            same += 1;
        }
        if same == mark.len() {
            let (before, rest) = text.split_at(at);
            return (before.trim_ascii(), rest.split_at(same).1.trim_ascii());
        }
        at += 1;
    }
    (text.trim_ascii(), "")
}

/// The reasons for which a node drops, and other events that it counts; made by [`crate::drop_reasons!`].
pub trait DropReasons: Copy + 'static {
    /// All reasons in order.
    const TEXTS: &'static [ErrorText];
    /// Position of this one.
    fn index(self) -> u16;
}

/// A node with nothing to drop and nothing to count.
#[derive(Clone, Copy, Debug)]
pub enum NoDrops {}

impl DropReasons for NoDrops {
    const TEXTS: &'static [ErrorText] = &[];
    fn index(self) -> u16 {
        match self {}
    }
}

/// A node that only drops, or only sends to slots added at run time.
#[derive(Clone, Copy, Debug)]
pub enum NoNext {}

impl NextNodes for NoNext {
    const NAMES: &'static [&'static str] = &[];
    fn slot(self) -> u16 {
        match self {}
    }
}

/// Declares the `Next` enum of a node; the names are those of the graph.
///
/// ```
/// quiver_graph::next_nodes! {
///     /// Where ip4-input sends packets.
///     pub enum Next { Lookup = "ip4-lookup", Punt = "error-punt" }
/// }
/// ```
#[macro_export]
macro_rules! next_nodes {
    ($(#[$meta:meta])* $vis:vis enum $name:ident { $($(#[$vmeta:meta])* $variant:ident = $node:expr),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u16)]
        $vis enum $name { $($(#[$vmeta])* #[doc = concat!("To `", $node, "`.")] $variant),+ }
        impl $crate::NextNodes for $name {
            const NAMES: &'static [&'static str] = &[$($node),+];
            #[inline(always)]
            fn slot(self) -> u16 { self as u16 + 1 }
        }
    };
}

/// Declares the drop reasons of a node; `info` marks what is counted without being an error, `as "name"` gives the name in the statistics
/// segment where VPP's is another than the text. The doc comment of a reason is what
/// the reference says of it, and `explain drop`: [`ErrorText::new`].
///
/// ```
/// quiver_graph::drop_reasons! {
///     /// Why ip4-input drops.
///     pub enum Drop {
///         /// The packet has passed as many routers as it may.
///         ///
///         /// Causes: a routing loop.
///         /// Check: `traceroute` from the source.
///         /// See: `show ip fib ADDRESS`.
///         TtlExpired = "ip4 ttl <= 1",
///         /// The router answered.
///         Sent = "replies sent" (info),
///     }
/// }
/// ```
#[macro_export]
macro_rules! drop_reasons {
    (@severity) => { $crate::Severity::Error };
    (@severity info) => { $crate::Severity::Info };
    ($(#[$meta:meta])* $vis:vis enum $name:ident { $($(#[doc = $about:literal])* $variant:ident = $text:literal $(($kind:ident))? $(as $stat:literal)?),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u16)]
        $vis enum $name { $($(#[doc = $about])* #[doc = concat!("`", $text, "`")] $variant),+ }
        impl $crate::DropReasons for $name {
            const TEXTS: &'static [$crate::ErrorText] =
                &[$($crate::ErrorText::new($text, concat!($($about),*), $crate::drop_reasons!(@severity $($kind)?))$(.named($stat))?),+];
            #[inline(always)]
            fn index(self) -> u16 { self as u16 }
        }
    };
}

/// How a node's loop runs; all of it can be switched at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopConfig {
    /// Packets a step: 1, 2, 4 or 8. With 1, and for nodes without a [fast path](FastPath), each packet is taken by [`Node::packet`].
    pub width: u8,
    /// Prefetch distance in packets, 0 for none, at most [`crate::PREFETCH_MAX`].
    pub prefetch: u8,
}

/// A node: one function for one packet, which holds its whole rule. The framework owns the loop over the packets of a frame,
/// prefetching, the compilation for each instruction set, tracing and counters.
///
/// A node is declared as a prototype ([`crate::NodeSpec::node`]), which is cloned for each thread that runs the graph.
///
/// Mark `packet` `#[inline(always)]` where the node is hot: only what is inlined into the loop is compiled for each instruction set.
///
/// # Memory that a peer writes
/// `impl Node for …` is a node for private memory: packets whose bytes a peer can change come to it as copies. A node on the main paths
/// takes them as they are, and says so: `impl Node<Shared> for …`. It copies each header once and lets nothing that lies in memory depend
/// on two reads agreeing. Of bytes it only gets copies:
///
/// ```
/// use quiver_graph::{NoDrops, NoNext, Node, NodeCx, Pkt, Shared, Verdict};
///
/// #[derive(Clone)]
/// struct First;
///
/// impl Node<Shared> for First {
///     type Next = NoNext;
///     type Drop = NoDrops;
///     fn packet(&mut self, _: &mut NodeCx<'_>, mut packet: Pkt<'_, Shared>) -> Verdict {
///         let first: u8 = packet.head();
///         packet.set_aux(first.into());
///         Verdict::DROP
///     }
/// }
/// ```
///
/// No slice of such memory can be had, as somebody else writes to it:
///
/// ```compile_fail,E0599
/// use quiver_graph::{NoDrops, NoNext, Node, NodeCx, Pkt, Shared, Verdict};
///
/// #[derive(Clone)]
/// struct First;
///
/// impl Node<Shared> for First {
///     type Next = NoNext;
///     type Drop = NoDrops;
///     fn packet(&mut self, _: &mut NodeCx<'_>, mut packet: Pkt<'_, Shared>) -> Verdict {
///         let first = packet.bytes()[0];
///         packet.set_aux(first.into());
///         Verdict::DROP
///     }
/// }
/// ```
///
/// Nor of a packet that such a node has taken out of its frame:
///
/// ```compile_fail,E0599
/// use quiver_graph::{NoDrops, NoNext, Node, NodeCx, Pkt, Shared, Verdict};
///
/// #[derive(Clone)]
/// struct Taker;
///
/// impl Node<Shared> for Taker {
///     type Next = NoNext;
///     type Drop = NoDrops;
///     fn packet(&mut self, cx: &mut NodeCx<'_>, packet: Pkt<'_, Shared>) -> Verdict {
///         let (mut taken, verdict) = packet.take();
///         let _ = cx.view(&mut taken).bytes();
///         cx.emit(verdict, taken);
///         verdict
///     }
/// }
/// ```
pub trait Node<M: Memory = Private>: Clone + Send + 'static {
    /// Where packets go.
    type Next: NextNodes;
    /// Why packets are dropped.
    type Drop: DropReasons;
    /// Prefetch distance in packets that measured best: 0 unless the node meets a line first.
    const PREFETCH: u8 = 0;
    /// Whether it takes packets out of the frame ([`Pkt::take`]): then what comes is traced before it runs.
    const CONSUMES: bool = false;

    /// Once for each instance, on the main thread: this one will run on `thread`.
    fn start(&mut self, _thread: usize) {}

    /// Once before each vector: pick up snapshots, copy loop invariants into `self`.
    #[inline(always)]
    fn begin(&mut self, _cx: &mut NodeCx<'_>) {}

    /// Which lines of a later packet to fetch; the header by default.
    #[inline(always)]
    fn prefetch(&self, packet: &Pkt<'_, M>) {
        packet.prefetch_header();
    }

    /// Handles a packet, and says where it goes.
    fn packet(&mut self, cx: &mut NodeCx<'_>, packet: Pkt<'_, M>) -> Verdict;

    /// Once after each vector: flush per-vector counters, send packets made meanwhile.
    #[inline(always)]
    fn end(&mut self, _cx: &mut NodeCx<'_>) {}

    /// Gives back what the node holds (its packets) before it is taken out of the graph.
    fn release(&mut self, _cx: &mut NodeCx<'_>) {}
}

/// The fast path of a hot node: the common case, for several packets at a time with their values in arrays, so that the compiler
/// checks several headers by one instruction.
///
/// It decides as [`Node::packet`] does, for the packets that it takes. Mark it `#[inline(always)]`.
pub trait FastPath<M: Memory = Private>: Node<M> {
    /// Packets a step that measured best: 1, 2, 4 or 8.
    const WIDTH: u8 = 8;

    /// Bytes that it takes off the front of packets: nodes behind it in a fused chain that prefetch look behind these.
    const PULLS: usize = 0;

    /// Handles a batch whose packets are all of the common case, and sends them on. `None`, with no lane and no byte changed,
    /// where one of them is not: they are then taken one by one, by a batch of one or by [`Node::packet`].
    fn batch<const W: usize>(&mut self, batch: &mut Batch<'_, W>) -> Option<Sent>;
}

/// A node that must see the whole vector at a time: table kernels, nodes that hold or make packets. `run` gives each
/// packet a verdict with [`NodeCx::decide`] (packets without one are dropped as `no verdict`, which tests forbid).
/// What is inlined into `run` is compiled for each instruction set, if `run` is marked `#[inline(always)]`. Its memory is as that of a
/// [`Node`].
pub trait VectorNode<M: Memory = Private>: Send + 'static {
    /// Where packets go.
    type Next: NextNodes;
    /// Why packets are dropped.
    type Drop: DropReasons;

    /// Handles a vector.
    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame<M>);

    /// Where it now sends every vector as it is, with no look at it: then it is only counted. For nodes declared by
    /// [`crate::NodeSpec::passes`].
    fn passes(&self) -> Option<Verdict> {
        None
    }

    /// Gives back what the node holds (its packets) before it is taken out of the graph.
    fn release(&mut self, _cx: &mut NodeCx<'_>) {}
}

/// When an input node wants to run again although nothing arrived now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// It must be polled without pause.
    Busy,
    /// Its event descriptors tell; it may also want to run at a time (ns of the router's clock).
    Sleep {
        /// When to run at the latest.
        until: Option<u64>,
    },
}

/// Packets with which an input node goes on to the next one's turn: enough for what a vector costs to be spread over them, and few
/// enough that what another queue has does not wait for a vector of each.
pub const SHARE: usize = 32;

/// A node that brings packets in.
pub trait InputNode: Send + 'static {
    /// Where packets go.
    type Next: NextNodes;
    /// Why packets are dropped.
    type Drop: DropReasons;

    /// Brings in what is there, at most a vector per queue, and returns the number of packets.
    fn poll(&mut self, cx: &mut NodeCx<'_>) -> usize;

    /// Whether [`poll`](Self::poll) would do nothing now. Asked in each turn of nodes that seldom bring anything.
    fn idle(&self) -> bool {
        false
    }

    /// Whether some queues have not had their turn, because those before them brought in [`SHARE`] packets or more: then the
    /// worker runs these to their end, and polls again.
    fn unfinished(&self) -> bool {
        false
    }

    /// Called when the worker would like to sleep: arm the devices' events. Packets that arrived meanwhile make it
    /// [`Idle::Busy`].
    fn arm(&mut self, _now: u64) -> Idle {
        Idle::Sleep { until: None }
    }

    /// Whether the thread should go on polling for a while after the last packet before it sleeps; `None` where the node does
    /// not mind. Threads whose nodes do not mind poll on.
    fn spins(&self) -> Option<bool> {
        None
    }

    /// Descriptors that become readable when there is something to poll.
    fn event_fds(&self, _fds: &mut Vec<std::os::fd::RawFd>) {}

    /// Gives back what the node holds before it is taken out of the graph.
    fn release(&mut self, _cx: &mut NodeCx<'_>) {}

    /// Throws away what waits, while another process handles the same packets.
    fn discard(&mut self) {}

    /// Begins to bring packets in, in place of another process that stopped at `since` (ns of the kernel's wall clock).
    fn begin(&mut self, _since: u64) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    drop_reasons! {
        /// Reasons with more and with less to say.
        enum Why {
            /// It says all: causes
            /// and what to do are plain.
            Short = "short",
            /// More is to be said.
            ///
            /// Causes: one thing; another
            /// thing.
            /// Check: `show this`, then that.
            /// See: `show this`, `show that`.
            Long = "long" (info),
            /// Only what to look at.
            ///
            /// Check: the cable.
            Part = "part",
        }
    }

    #[test]
    fn a_comment_is_a_sentence_and_what_more_there_is() {
        let [short, long, part] = Why::TEXTS else { panic!("three reasons") };
        assert_eq!((short.about, short.causes, short.check), ("It says all: causes and what to do are plain.", "", ""));
        assert_eq!((long.about, long.causes), ("More is to be said.", "one thing; another thing."));
        assert_eq!((long.check, long.see), ("`show this`, then that.", "`show this`, `show that`."));
        assert_eq!((part.about, part.causes, part.check, part.see), ("Only what to look at.", "", "the cable.", ""));
        assert_eq!([Why::Short, Why::Long, Why::Part].map(DropReasons::index), [0, 1, 2]);
    }
}
