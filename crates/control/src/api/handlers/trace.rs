//! `tracedump`: which packets are traced, and their traces as text.
//!
//! A client reads from a copy of the traces that it has taken (its "cache"), so that positions stay what they are while packets
//! go on to be traced.

use quiver_api::defs::*;
use quiver_command::operation::{OpError, Operation as _, retval};
use quiver_graph::NodeId;
use quiver_net::Router;
use quiver_net::api::{ALL, Call, Clients, Flow, Handlers};

use crate::ops::trace::{self, AddTrace, ClearTrace, Filter, SetTraceFilter};

/// Traces that are put into words before the thread is given back.
const AT_ONCE: usize = 16;

pub(super) fn add(handlers: &mut Handlers) {
    handlers.act::<TraceSetFilters, TraceSetFiltersReply>(|router, m| {
        let count = m.count as usize;
        let filter = match m.flag {
            TraceFilterFlag::TRACE_FF_NONE => Filter::None,
            TraceFilterFlag::TRACE_FF_INCLUDE_NODE => Filter::Include(node(router, m.node_index)?, count),
            TraceFilterFlag::TRACE_FF_EXCLUDE_NODE => Filter::Exclude(node(router, m.node_index)?, count),
            TraceFilterFlag(other) => {
                return Err(OpError::new(retval::INVALID_VALUE, format!("filters of kind {other} are not there")).key("flag"));
            }
        };
        SetTraceFilter::run(router, SetTraceFilter { filter }).map(drop)
    });
    handlers.act::<TraceCapturePackets, TraceCapturePacketsReply>(|router, m| {
        let node = node(router, m.node_index)?;
        if m.pre_capture_clear {
            ClearTrace::run(router, ClearTrace {})?;
        }
        let request = AddTrace { node, count: m.max_packets, bpf: None, filter: m.use_filter };
        // For a node that brings no packets in VPP says that there is none.
        AddTrace::run(router, request).map(drop).map_err(|error| match error.code {
            retval::UNSUPPORTED => OpError { code: retval::NO_SUCH_NODE, ..error },
            _ => error,
        })
    });
    handlers.act::<TraceClearCapture, TraceClearCaptureReply>(|router, _| ClearTrace::run(router, ClearTrace {}).map(drop));
    handlers.call::<TraceClearCache>(|call, _| {
        forget(call);
        call.send(&TraceClearCacheReply::default());
        Flow::Done
    });
    handlers.call::<TraceDump>(dump);
    handlers.call::<TraceV2Dump>(dump_v2);
    handlers.reads::<TraceDump>();
    handlers.reads::<TraceV2Dump>();
    handlers.changes::<TraceClearCache, TraceClearCacheReply>();
}

fn node(router: &Router, index: u32) -> Result<String, OpError> {
    let there = router.graph.nodes().into_iter().find(|node| u16::try_from(index).is_ok_and(|index| node.id == NodeId(index)));
    let missing = || OpError::new(retval::NO_SUCH_NODE, format!("no node {index}")).key("node_index");
    there.map(|node| node.name).ok_or_else(missing)
}

/// Drops a client's copy, if it has one.
fn forget(call: &mut Call<'_>) {
    let client = call.client;
    if let Some(copy) = call.router.part_mut::<Clients>().and_then(|clients| clients.traces(client)) {
        *copy = None;
    }
}

/// How many traces a client's copy has by thread; it is made where there is none.
fn taken(call: &mut Call<'_>) -> Vec<usize> {
    let client = call.client;
    let lengths = |clients: &mut Clients| {
        let threads = clients.traces(client)?.as_ref()?;
        Some(threads.iter().map(Vec::len).collect())
    };
    if let Some(lengths) = call.router.part_mut::<Clients>().and_then(lengths) {
        return lengths;
    }
    let threads = trace::chosen(call.router).unwrap_or_default();
    let lengths = threads.iter().map(Vec::len).collect();
    if let Some(place) = call.router.part_mut::<Clients>().and_then(|clients| clients.traces(client)) {
        *place = Some(threads);
    }
    lengths
}

/// A trace of a client's copy, in words.
fn text(call: &mut Call<'_>, thread: usize, position: usize) -> String {
    let client = call.client;
    let record = call.router.part_mut::<Clients>().and_then(|clients| {
        let threads = clients.traces(client)?.as_ref()?;
        threads.get(thread)?.get(position).cloned()
    });
    record.map(|record| trace::packet_text(call.router, &record)).unwrap_or_default()
}

fn dump(call: &mut Call<'_>, m: TraceDump) -> Flow {
    if m.clear_cache != 0 {
        forget(call);
    }
    if (m.thread_id, m.position) == (ALL, ALL) {
        let reply = TraceDumpReply { last_thread_id: ALL, last_position: ALL, flush_only: 1, done: 1, ..TraceDumpReply::default() };
        call.send(&reply);
        return Flow::Done;
    }
    let lengths = taken(call);
    let (first, position) = (m.thread_id as usize, m.position as usize);
    let places = lengths.iter().enumerate().skip(first).flat_map(move |(thread, length)| {
        let from = if thread == first { position } else { 0 };
        (from..*length).map(move |position| (thread, position))
    });
    let places: Vec<(usize, usize)> = places.take(m.max_records as usize).collect();
    let mut reply =
        TraceDumpReply { retval: retval::NO_SUCH_ENTRY, last_thread_id: ALL, last_position: ALL, ..TraceDumpReply::default() };
    let mut next = 0;
    Flow::More(Box::new(move |call| {
        for (thread, position) in places.iter().skip(next).take(AT_ONCE) {
            next += 1;
            let last_of_thread = lengths.get(*thread).is_some_and(|length| position + 1 == *length);
            let done = last_of_thread && lengths.iter().skip(thread + 1).all(|length| *length == 0);
            let stops = next == places.len() && !done;
            let (more_this_thread, more_threads) = (u8::from(stops && !last_of_thread), u8::from(stops && last_of_thread));
            let (thread_id, at) = (*thread as u32, *position as u32);
            let trace_data = text(call, *thread, *position);
            let done = u8::from(done);
            reply = TraceDumpReply {
                retval: 0,
                last_thread_id: thread_id,
                last_position: at,
                more_this_thread,
                more_threads,
                flush_only: 0,
                done,
            };
            call.send(&TraceDetails {
                thread_id,
                position: at,
                more_this_thread,
                more_threads,
                done,
                packet_number: at,
                trace_data,
            });
        }
        if next < places.len() {
            return false;
        }
        call.send(&reply);
        true
    }))
}

fn dump_v2(call: &mut Call<'_>, m: TraceV2Dump) -> Flow {
    if m.clear_cache {
        forget(call);
    }
    if m.position == ALL {
        return Flow::Done;
    }
    let lengths = taken(call);
    let (from, max) = (m.position as usize, m.max as usize);
    let wanted = |thread: usize| m.thread_id == ALL || m.thread_id as usize == thread;
    let threads = lengths.iter().enumerate().filter(|(thread, _)| wanted(*thread));
    let places = threads.flat_map(|(thread, length)| {
        let end = from.saturating_add(max).min(*length);
        (from..end).map(move |position| (thread, position, position + 1 < *length))
    });
    let places: Vec<(usize, usize, bool)> = places.collect();
    let mut next = 0;
    Flow::More(Box::new(move |call| {
        for (thread, position, more) in places.iter().skip(next).take(AT_ONCE) {
            next += 1;
            let trace_data = text(call, *thread, *position);
            let (thread_id, position) = (*thread as u32, *position as u32);
            call.send(&TraceV2Details { thread_id, position, more: *more, trace_data });
        }
        next >= places.len()
    }))
}
