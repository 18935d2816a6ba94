//! The nodes, on the `ip4-unicast` arc.

mod crossing;
mod handoff;
mod logged;
mod translate;

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use quiver_graph::{ArcPoint, FeatureSpec, NodeSpec, Published, TraceEntry};
use quiver_net::Router;

use crate::config::NatConfig;
use crate::counters::Counters;
use crate::early::{SharedEarly, lock_early};
use crate::fragments::Fragments;
use crate::thread::Shared;
use handoff::Handoff;
pub(crate) use logged::send as send_log;
pub use translate::Drop;
use translate::Translate;

/// The arc.
pub const ARC: &str = "ip4-unicast";
/// Names of the features: inside, outside.
pub const TRANSLATE: [&str; 2] = ["nat44-ed-in2out", "nat44-ed-out2in"];
/// The same for several threads: they come before.
pub const HANDOFF: [&str; 2] = ["nat44-ed-in2out-handoff", "nat44-ed-out2in-handoff"];

/// What the nodes of all threads share.
pub struct Parts {
    /// Configuration.
    pub config: Published<NatConfig>,
    /// State by thread.
    pub threads: Vec<Shared>,
    /// Ports of fragments.
    pub fragments: Fragments,
    /// Fragments that wait, by node ([`TRANSLATE`], [`HANDOFF`]) and thread.
    pub(crate) early: [Vec<SharedEarly>; 4],
    /// Counters of both directions: from inside, from outside.
    pub counters: [Counters; 2],
    /// Seconds of timer time.
    pub clock: Arc<AtomicU32>,
}

fn trace(entry: &TraceEntry, out: &mut String) {
    use std::fmt::Write;
    let _ = write!(out, "NAT44: sw_if_index {}, {} bytes", entry.rx_if, entry.len);
}

/// Declares nodes and features.
pub fn declare(router: &mut Router, parts: &Parts) -> Result<(), quiver_graph::GraphError> {
    let mut nodes = vec![translate_node::<false>(router, parts), translate_node::<true>(router, parts)];
    for outside in [false, true] {
        let arc = ArcPoint::new();
        let node = Handoff {
            outside,
            interfaces: router.data.interfaces.clone(),
            config: parts.config.snapshot(),
            egress: router.egress4(),
            fragments: parts.fragments.clone(),
            early: parts.early[2 + usize::from(outside)].clone(),
            clock: parts.clock.clone(),
            arc: arc.clone(),
            thread: 0,
            now: 0,
        };
        nodes.push(NodeSpec::node(HANDOFF[usize::from(outside)], node).traced(trace).on_arc(ARC, arc));
    }
    nodes.push(logged::node());
    router.graph.add(nodes)?;
    let feature = |node: &str, before: &[&'static str]| FeatureSpec {
        arc: ARC,
        node: node.into(),
        before: before.to_vec(),
        after: Vec::new(),
    };
    router.graph.add_features(vec![
        feature(HANDOFF[1], &[TRANSLATE[1], HANDOFF[0], TRANSLATE[0]]),
        feature(TRANSLATE[1], &[HANDOFF[0], TRANSLATE[0]]),
        feature(HANDOFF[0], &[TRANSLATE[0]]),
        feature(TRANSLATE[0], &[]),
    ])
}

/// Ends waits of fragments on all threads: of those whose first has come, and of those that have waited for long enough.
pub(crate) fn end_waits(router: &mut Router, parts: &Parts, now: u32) {
    let names = TRANSLATE.into_iter().chain(HANDOFF);
    for (n, (name, early)) in names.zip(&parts.early).enumerate() {
        let Some(node) = router.graph.node(name) else { continue };
        for thread in router.graph.fleet().threads() {
            let (Some(early), fragments) = (early.get(thread).cloned(), parts.fragments.clone()) else { continue };
            router.graph.fleet().cast(thread, move |worker| {
                worker.at_node(node, |cx| {
                    let mut early = lock_early(&early);
                    match n {
                        0 => translate::end_waits::<false>(cx, &mut early, &fragments, now),
                        1 => translate::end_waits::<true>(cx, &mut early, &fragments, now),
                        n => handoff::end_waits(cx, &mut early, &fragments, n == 3, now),
                    }
                });
            });
        }
    }
}

fn translate_node<const OUTSIDE: bool>(router: &Router, parts: &Parts) -> NodeSpec {
    let (config, threads) = (parts.config.snapshot(), parts.threads.clone());
    let (fragments, clock) = (parts.fragments.clone(), parts.clock.clone());
    let (interfaces, egress) = (router.data.interfaces.clone(), router.egress4());
    let counters = parts.counters[usize::from(OUTSIDE)].clone();
    let early = parts.early[usize::from(OUTSIDE)].clone();
    let arc = ArcPoint::new();
    let point = arc.clone();
    let make = move |cx: &quiver_graph::MakeCx| Translate::<OUTSIDE> {
        thread: cx.thread,
        interfaces: interfaces.clone(),
        egress: egress.clone(),
        config: config.clone(),
        // There are as many as threads can be.
        state: threads.get(cx.thread).cloned().unwrap_or_default(),
        fragments: fragments.clone(),
        early: early.get(cx.thread).cloned().unwrap_or_default(),
        waits: None,
        fresh: Vec::with_capacity(quiver_graph::VECTOR_MAX),
        counted_by: None,
        counters: counters.clone(),
        clock: clock.clone(),
        arc: point.clone(),
    };
    // In VPP nodes of their own begin sessions: there its users look for what is counted when none can be.
    let slow_path = if OUTSIDE { "nat44-ed-out2in-slowpath" } else { "nat44-ed-in2out-slowpath" };
    NodeSpec::vector(TRANSLATE[usize::from(OUTSIDE)], make).traced(trace).on_arc(ARC, arc).errors_also_of(slow_path)
}
