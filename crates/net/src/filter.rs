//! Filters of traces and captures that a plugin has: what the word `filter` means in `trace add` and `pcap trace`.

use std::sync::Arc;

use quiver_graph::{IfIndex, Wanted};

use crate::Router;

/// Filters, as they are at the moment of each packet.
pub struct PacketFilters {
    /// Of traces.
    pub trace: Wanted,
    /// Of a capture on an interface, or on all.
    pub capture: Arc<dyn Fn(Option<IfIndex>) -> Wanted>,
}

impl Router {
    /// The filter of traces; none where no plugin has one.
    pub fn trace_filter(&self) -> Option<Wanted> {
        self.part::<PacketFilters>().map(|filters| filters.trace.clone())
    }

    /// The filter of a capture on an interface, or on all.
    pub fn capture_filter(&self, interface: Option<IfIndex>) -> Option<Wanted> {
        self.part::<PacketFilters>().map(|filters| (filters.capture)(interface))
    }
}
