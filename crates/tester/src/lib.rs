//! The tester: sends what was asked, counts exactly what came back, times it, and says when it could not.
//!
//! ```text
//!   profile ──► maker + pace ──► source ──► device ═══ device under test ═══ device ──► sink ──► receiver: tracker, latency
//!                                   │                                                     │
//!                                   └────────────────── trial ◄───────────────────────────┘──► report
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | [`profile`], [`units`], [`port`] | what people write: streams, rates, ports |
//! | [`maker`], [`pace`], [`signature`], [`room`] | frames, when they are due, and what tells them apart |
//! | [`tracker`], [`latency`], [`receiver`] | what became of them |
//! | [`answer`] | the port as a host: ARP, neighbour discovery, ping |
//! | [`source`], [`sink`], [`bench`] | the graph: the same drivers, buffers and threads as the router's |
//! | [`trial`], [`report`] | one measurement and its result |
//! | [`disturbance`] | what the machine did to it |
//! | [`stamped`] | frames with times of a network card or of the kernel |
//! | [`stateful`] | gateways that track connections: RFC 9693 |
//! | [`tcp`] | connections of TCP, with requests and responses |
//! | [`import`] | traffic that other programs describe |
//! | [`request`] | what a client of the server asks for |
//!
//! May use: wire, buffer, tables (for the graph), graph, drivers. Must never know: what the router does with a packet.

#![forbid(unsafe_code)]

pub use quiver_wire::MacAddr;

pub mod answer;
pub mod bench;
pub mod disturbance;
pub mod dpdk;
pub mod import;
pub mod latency;
pub mod maker;
pub mod pace;
pub mod port;
pub mod profile;
pub mod random;
pub mod receiver;
pub mod report;
pub mod request;
pub mod room;
pub mod signature;
pub mod sink;
pub mod source;
pub mod stamped;
pub mod stateful;
pub mod tcp;
pub mod time;
pub mod tracker;
pub mod trial;
pub mod units;
