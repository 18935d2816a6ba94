//! Interfaces, Ethernet, L2, IPv4, IPv6, ARP, ND, groups, ICMP, FIB, adjacencies and the packet generator: what other systems call
//! VNET.
//!
//! Two sides meet here. The control side is [`Router`]: it lives on the main thread, owns every table and changes them. The
//! data path is nodes, which read what the control side publishes: [`DataPlane`] (records by index, each word whole), and
//! snapshots picked up between vectors.
//!
//! Modules tell one another what happened to an interface through [`IfEvent`]s, so that none has to know the others.
//!
//! A subject stands in one folder: nodes and tables, `ops` (operations and their commands), `api` (messages of the binary API).
//! What all of them and plugins build on is here too: [`Plugin`], [`ops`], [`api`], [`files`].
//!
//! May use: wire, buffer, tables, command, api, graph. Must never know: plugins, sessions, sockets, drivers.
#![forbid(unsafe_code)]

pub mod api;
mod arp;
pub mod data;
pub mod ethernet;
pub mod fib;
pub mod files;
pub mod filter;
mod frag;
pub mod group;
pub mod icmp;
pub mod interface;
pub mod ip;
pub mod l2;
pub mod linux;
pub mod local;
pub mod mfib;
pub mod nd;
pub mod neighbor;
pub mod ops;
mod owner;
pub mod pg;
mod plugin;
pub mod punt;
mod random;
pub mod restart;
mod router;
pub mod rss;
mod run_counter;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod timed;
mod trace;
pub mod watch;
mod workers;

pub use data::DataPlane;
pub use interface::{IfEvent, Interface, InterfaceError, Interfaces};
pub use plugin::{Plugin, PluginState};
pub use quiver_graph::IfIndex;
pub use router::{NetError, Process, ProcessSignal, Router, RouterConfig};
pub use timed::{Due, Notices, Timed, TimedGuard};
pub use workers::{WorkerEvent, WorkerListener};
