//! The messages and types that are spoken, a file for each of VPP's.
//!
//! Names and fields are those of the interface, and its reference says what they mean; `docs/api.md` says which of them do what
//! here.
#![allow(missing_docs, unused_imports, reason = "names are the interface's own; not every file needs every import")]

use crate::codec::{Many, Reader, Text, Wire, WireError};
use crate::module;
use crate::schema::{Array, Definition, Field, Head, Kind, Message, MessageInfo, Module, Type, Value};

mod af_packet;
mod af_xdp;
mod arp;
mod arping;
mod bfd;
mod ethernet_types;
mod fib;
mod fib_types;
mod graph;
mod interface;
mod interface_types;
mod ip;
mod ip6_dad;
mod ip6_nd;
mod ip_neighbor;
mod ip_types;
mod l2;
mod lcp;
mod memclnt;
mod memif;
mod mfib_types;
mod nat44_ed;
mod nat_types;
mod pg;
mod ping;
mod punt;
mod rd_cp;
mod syslog;
mod tapv2;
mod tracedump;
mod vlib;
mod vpe;
mod vpe_types;
mod vrrp;

pub use af_packet::*;
pub use af_xdp::*;
pub use arp::*;
pub use arping::*;
pub use bfd::*;
pub use ethernet_types::*;
pub use fib::*;
pub use fib_types::*;
pub use graph::*;
pub use interface::*;
pub use interface_types::*;
pub use ip::*;
pub use ip_neighbor::*;
pub use ip_types::*;
pub use ip6_dad::*;
pub use ip6_nd::*;
pub use l2::*;
pub use lcp::*;
pub use memclnt::*;
pub use memif::*;
pub use mfib_types::*;
pub use nat_types::*;
pub use nat44_ed::*;
pub use pg::*;
pub use ping::*;
pub use punt::*;
pub use rd_cp::*;
pub use syslog::*;
pub use tapv2::*;
pub use tracedump::*;
pub use vlib::*;
pub use vpe::*;
pub use vpe_types::*;
pub use vrrp::*;

/// All of them; types come before what uses them.
pub(crate) static MODULES: &[&Module] = &[
    vpe_types(),
    interface_types(),
    ethernet_types(),
    ip_types(),
    fib_types(),
    mfib_types(),
    memclnt(),
    vpe(),
    vlib(),
    interface(),
    fib(),
    ip(),
    ip_neighbor(),
    ip6_nd(),
    ip6_dad(),
    rd_cp(),
    arp(),
    l2(),
    memif(),
    af_packet(),
    af_xdp(),
    tapv2(),
    pg(),
    ping(),
    arping(),
    punt(),
    syslog(),
    graph(),
    tracedump(),
    nat_types(),
    nat44_ed(),
    lcp(),
    bfd(),
    vrrp(),
];
