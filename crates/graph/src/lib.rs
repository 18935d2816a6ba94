//! Nodes, frames, dispatcher, counters and their memory, clock, trace and the port contract: what other systems call VLIB.
//!
//! ```text
//!            main thread                                worker 1 … N (or main itself where N = 0)
//!   Graph: names, edges, arcs, changes ── closures ──► Worker: instances of all nodes, queue of frames
//!                                                        loop: poll input nodes, run nodes until no frame waits,
//!                                                              announce a quiescent state, sleep when idle
//! ```
//!
//! A node is written for one packet ([`Node`]), a hot one also for a batch of the common case ([`FastPath`]); the loop, its compilation
//! for each instruction set, tracing, counting and partitioning by next node are made here, once. Packets are four `u32` lanes of a [`Frame`]; headers are copied in and out by value through [`Pkt`], so that
//! crates that forbid unsafe code can write any node.
//!
//! May use: buffer, tables, the operating system. Must never know: headers, interfaces' meaning, routes.

mod batch;
mod capture;
mod chain;
pub mod clock;
mod context;
mod drop;
pub mod elog;
mod feature;
mod fleet;
mod foreign;
mod frame;
mod fuse;
mod graph;
mod handoff;
mod hold;
mod interface;
mod level;
mod loops;
mod memory;
mod node;
mod own;
mod packet;
mod port;
mod publish;
mod pulse;
pub mod reactor;
mod spec;
pub mod stats;
pub mod topology;
mod trace;
mod worker;

pub use batch::{Batch, Sent};
pub use capture::{Arrival, CapturePoint, CaptureSink, Captured, Wanted};
pub use chain::Joining;
pub use context::{NodeCx, NodeId};
pub use drop::{DropError, NullDrop};
pub use feature::{ArcPoint, ArcSlot, ArcSpec, FeatureSpec, Point};
pub use fleet::{Fleet, Rest, ThreadInfo, ThreadPlan};
pub use frame::{Frame, IfIndex, PREFETCH_MAX, Span, VECTOR_DEFAULT, VECTOR_MAX, flags};
pub use fuse::{End, FusedChain, Then};
pub use graph::{ErrorInfo, EventCounts, Graph, GraphError, MAX_NODES, NodeFigures, NodeInfo, STATS_BYTES};
pub use handoff::HANDOFF_CAPACITY;
pub use hold::Hold;
pub use interface::{InterfaceCounters, MAX_INTERFACES};
pub use level::Level;
pub use memory::{Memory, Private, Shared};
pub use node::{
    DropReasons, ErrorText, FastPath, Idle, InputNode, LoopConfig, NextNodes, NoDrops, NoNext, Node, SHARE, Severity, VectorNode,
    Verdict,
};
pub use packet::{Packet, Pkt, prefetch};
pub use port::{
    DeviceInput, DeviceNext, DeviceTx, Link, MovingQueue, PlacedQueue, Port, PortState, RxBurst, RxMode, RxQueue, RxState, Segment,
    SharedTxQueue, Transmitted, TxBatch, TxDrop, TxQueue, TxState,
};
pub use publish::{Published, Snapshot};
pub use pulse::{Activity, Pulse, Pulses, Whereabouts};
pub use spec::{MakeCx, NodeKind, NodeSpec, TraceFormat};
pub use trace::{TRACE_BYTES, TRACE_MAX, TraceEntry, TraceMark, TraceRecord};
pub use worker::{ABSENCE_BOUNDS, Absences, LoopFigures, NodeCounters, NodePeak, Worker, thread_name};
