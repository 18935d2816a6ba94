//! Trace texts that several nodes share, in the words of VPP's `show trace`.

use std::fmt::Write;

use quiver_graph::TraceEntry;
use quiver_wire::describe::{Ethernet, Frame, Ip4, Ip6};

use crate::ip::FamilyId;

/// A device's input node: where the frame came from, and its size.
pub(crate) fn received(entry: &TraceEntry, out: &mut String) {
    let _ = write!(out, "sw_if_index {}, {} bytes", entry.rx_if, entry.len);
}

/// A node that looks at the link header: the header, pulled or still in place.
pub(crate) fn link(entry: &TraceEntry, out: &mut String) {
    let header: Vec<u8> = entry.pulled.iter().chain(&entry.bytes).copied().collect();
    let _ = write!(out, "{}", Ethernet(&header));
}

/// A node that leaves a whole frame.
pub(crate) fn frame(entry: &TraceEntry, out: &mut String) {
    let _ = write!(out, "{}", Frame(&entry.bytes));
}

/// A node that leaves the packet at its IP header.
pub(crate) fn ip(family: FamilyId) -> impl Fn(&TraceEntry, &mut String) + Copy {
    move |entry, out| {
        let _ = match family {
            FamilyId::V4 => write!(out, "{}", Ip4(&entry.bytes)),
            FamilyId::V6 => write!(out, "{}", Ip6(&entry.bytes)),
        };
    }
}
