//! `pcap_trace_on`, `pcap_trace_off`: captures into a file.

use quiver_api::defs::*;
use quiver_command::operation::{Empty, OpError, retval};
use quiver_net::Router;
use quiver_net::api::{Handlers, reference};

use crate::ops::pcap::{StartCapture, StartRequest, StopCapture};

pub(super) fn add(handlers: &mut Handlers) {
    handlers.run::<StartCapture, _, _>(start, |_, _: PcapTraceOn, started| started.map(|_| PcapTraceOnReply::default()));
    handlers.passes::<PcapTraceOn>();
    handlers.run::<StopCapture, _, _>(
        |_, _| Ok(Empty {}),
        |_, _: PcapTraceOff, written| {
            // As in VPP: a capture that has nothing says so.
            let nothing = || OpError::new(retval::NO_SUCH_ENTRY, "no packet was captured");
            written.and_then(|written| if written["packets"] == 0 { Err(nothing()) } else { Ok(PcapTraceOffReply::default()) })
        },
    );
    handlers.passes::<PcapTraceOff>();
}

fn start(router: &Router, m: PcapTraceOn) -> Result<StartRequest, OpError> {
    let said = |text: String| Some(text).filter(|text| !text.is_empty());
    // 0 stands for all interfaces here, and so does the usual number for that.
    let interface = match m.sw_if_index.0 {
        0 | u32::MAX => None,
        _ => Some(reference(router, &m.sw_if_index)?),
    };
    Ok(StartRequest {
        rx: m.capture_rx,
        tx: m.capture_tx,
        drop: m.capture_drop,
        max: m.max_packets as usize,
        max_bytes: m.max_bytes_per_packet as usize,
        interface,
        file: said(m.filename.0),
        error: said(m.error.0),
        nodes: Vec::new(),
        bpf: None,
        filter: m.filter,
    })
}
