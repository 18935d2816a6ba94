//! What the graph has counted, how its loops run, what was traced.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Entry, ErrorInfo, Graph, GraphError, NodeFigures, Recipe};
use crate::context::NodeId;
use crate::frame::{IfIndex, VECTOR_MAX};
use crate::fuse::FusedChain;
use crate::level::Level;
use crate::node::LoopConfig;
use crate::spec::Loop;
use crate::trace::{TraceEntry, TraceRecord};
use crate::worker::{LoopFigures, NodePeak, Worker};

impl Graph {
    /// Counters of a node on a thread.
    pub fn figures(&self, id: NodeId, thread: usize) -> NodeFigures {
        let (nodes, i) = (&self.shared.nodes, u32::from(id.0));
        NodeFigures {
            calls: nodes.calls.get(thread, i),
            vectors: nodes.vectors.get(thread, i),
            clocks: nodes.clocks.get(thread, i),
            suspends: nodes.suspends.get(thread, i),
        }
    }

    /// Figures of each thread's loop.
    pub fn loop_figures(&mut self) -> Vec<(usize, LoopFigures)> {
        self.fleet.each(|w| (w.thread(), w.figures()))
    }

    /// The most expensive call of each node by its number, for each thread.
    pub fn node_peaks(&mut self) -> Vec<(usize, Vec<NodePeak>)> {
        self.fleet.each(|w| (w.thread(), w.peaks()))
    }

    /// Zeroes the error counters, each row by the thread that writes it, so that no count is lost half-way.
    pub fn clear_errors(&mut self) {
        let errors = self.shared.errors.clone();
        self.each_row(move |row| errors.clear_thread(row));
    }

    /// Zeroes the counters of one interface or of all, each row by the thread that writes it.
    pub fn clear_interfaces(&mut self, only: Option<IfIndex>) {
        let interfaces = self.shared.interfaces.clone();
        self.each_row(move |row| match only {
            Some(index) => interfaces.clear_index_thread(row, index.0),
            None => interfaces.clear_thread(row),
        });
    }

    /// Starts the figures of all nodes and loops anew.
    pub fn clear_runtime(&mut self) {
        let nodes = self.shared.nodes.clone();
        self.each_row(move |row| {
            for counters in [&nodes.calls, &nodes.vectors, &nodes.clocks, &nodes.suspends] {
                counters.clear_thread(row);
            }
        });
        self.fleet.each(Worker::clear_figures);
    }

    /// All drop reasons and counted events with their count, per thread that runs the graph; of threads that have left, what
    /// they have counted.
    pub fn error_counts(&self) -> Vec<(usize, ErrorInfo, u64)> {
        let threads = self.fleet.threads();
        let mut result = Vec::new();
        for (i, error) in self.errors.iter().enumerate() {
            let Some(error) = error else { continue };
            for thread in 0..self.stats.threads() {
                let count = self.shared.errors.get(thread, i as u32);
                if count > 0 || threads.contains(&thread) {
                    result.push((thread, error.clone(), count));
                }
            }
        }
        result
    }

    /// All drop reasons and counted events with their sums over all threads.
    pub fn error_sums(&self) -> impl Iterator<Item = (&ErrorInfo, u64)> {
        let sum = |i: usize| (0..self.stats.threads()).map(|thread| self.shared.errors.get(thread, i as u32)).sum::<u64>();
        self.errors.iter().enumerate().filter_map(move |(i, error)| Some((error.as_ref()?, sum(i))))
    }

    /// The reason behind an error code.
    pub fn error(&self, code: u32) -> Option<&ErrorInfo> {
        self.errors.get(code as usize).and_then(Option::as_ref)
    }

    /// Code of a reason, from its node and its text, or its name in the statistics.
    pub fn error_code(&self, node: &str, text: &str) -> Option<u32> {
        let is = |e: &ErrorInfo| e.node == node && (e.text == text || e.declared.name == text);
        self.errors.iter().position(|e| e.as_ref().is_some_and(is)).map(|i| i as u32)
    }

    /// Sets how a node's loop runs; what is `None` stays.
    ///
    /// # Errors
    /// No such node, one that lacks what is set, values out of range, an instruction set that the processor lacks.
    pub fn set_loop(
        &mut self,
        name: &str,
        width: Option<u8>,
        prefetch: Option<u8>,
        level: Option<Level>,
    ) -> Result<(), GraphError> {
        let id = self.node(name).ok_or_else(|| GraphError::NoSuchNode(name.into()))?;
        let entry = self.entries[id.0 as usize].as_mut().ok_or_else(|| GraphError::NoSuchNode(name.into()))?;
        let (settable, old) = (entry.spec.settable, entry.loop_config);
        let config = LoopConfig { width: width.unwrap_or(old.width), prefetch: prefetch.unwrap_or(old.prefetch) };
        let lacks = match settable {
            Loop::Fixed => Some("loop"),
            Loop::Vectors if config.prefetch != old.prefetch => Some("prefetching"),
            Loop::Vectors | Loop::Packets if config.width != old.width => Some("multi-loop"),
            _ => None,
        };
        if let Some(what) = lacks {
            return Err(GraphError::NoSetting { node: name.into(), what });
        }
        if ![1, 2, 4, 8].contains(&config.width) {
            return Err(GraphError::Range { what: "multi-loop", value: config.width.into(), expected: "1, 2, 4 or 8" });
        }
        // The loop reads `width` packets ahead of the distance; the padding covers both.
        if usize::from(config.prefetch) + usize::from(config.width) > crate::frame::PREFETCH_MAX {
            return Err(GraphError::Range {
                what: "prefetch",
                value: config.prefetch.into(),
                expected: "0 to 16 less the multi-loop's width",
            });
        }
        let level = level.unwrap_or(entry.level);
        if !level.available() {
            return Err(GraphError::Variant(level.name()));
        }
        (entry.loop_config, entry.level) = (config, level);
        let usual = entry.is_usual();
        self.fleet.each(move |w| w.set_loop(id.0, config, level, usual));
        Ok(())
    }

    /// Declares that these nodes usually follow one another, as the types of `L` do: they are run as one loop where
    /// [fusion](Graph::set_fusion) is on. Any crate may declare chains, of its own nodes and of others'.
    ///
    /// # Errors
    /// No such node.
    pub fn fuse<L: FusedChain>(&mut self, names: &'static [&'static str]) -> Result<(), GraphError> {
        let id = |name: &&str| self.node(name).map(|id| id.0).ok_or_else(|| GraphError::NoSuchNode((*name).into()));
        let ids: Vec<u16> = names.iter().map(id).collect::<Result<_, _>>()?;
        let recipe: Recipe = Arc::new(move |worker: &mut Worker| worker.install_chain::<L>(&ids));
        self.chains.push((names, recipe.clone()));
        self.fleet.each(move |w| recipe(w));
        Ok(())
    }

    /// The fused chains that were declared, by names of nodes.
    pub fn chains(&self) -> impl Iterator<Item = &'static [&'static str]> {
        self.chains.iter().map(|(names, _)| *names)
    }

    /// Whether nodes that usually follow one another run as one loop.
    pub fn fusion(&self) -> bool {
        self.fusion
    }

    /// Whether a node runs as part of a fused chain: clocks of a chain are with its first node.
    pub fn is_fused(&self, id: NodeId) -> bool {
        let entry = |name: &&str| self.node(name).and_then(|id| self.entries[id.0 as usize].as_ref());
        let runs = |chain: &[&str]| chain.iter().all(|name| entry(name).is_some_and(Entry::is_usual));
        self.fusion && self.chains().any(|chain| chain.contains(&self.node_name(id)) && runs(chain))
    }

    /// Switches that on or off, for experiments.
    pub fn set_fusion(&mut self, on: bool) {
        self.fusion = on;
        self.fleet.each(move |w| w.set_fusion(on));
    }

    /// Largest vector now.
    pub fn vector_size(&self) -> usize {
        self.vector_size
    }

    /// Sets the largest vector.
    ///
    /// # Errors
    /// Outside 4..=1024.
    pub fn set_vector_size(&mut self, n: usize) -> Result<(), GraphError> {
        if !(4..=VECTOR_MAX).contains(&n) {
            return Err(GraphError::Range { what: "vector size", value: n as u64, expected: "4 to 1024" });
        }
        self.vector_size = n;
        self.fleet.each(move |w| w.set_vector_size(n));
        Ok(())
    }

    /// Whether packets of any thread are traced or captured, or are to be.
    pub fn is_observed(&self) -> bool {
        self.shared.observed.load(Ordering::Acquire) != 0
    }

    /// Traces of all threads.
    pub fn traces(&mut self) -> Vec<(usize, Vec<TraceRecord>)> {
        self.fleet.each(|w| (w.thread(), w.traces()))
    }

    /// Puts a trace entry into words: the node's own, or where it goes.
    pub fn format_trace(&self, entry: &TraceEntry, out: &mut String) {
        use std::fmt::Write;
        let format = self.entries.get(entry.node as usize).and_then(Option::as_ref).and_then(|e| e.spec.trace.as_ref());
        match format {
            Some(format) => format(entry, out),
            None if entry.node == 0 || self.node_name(NodeId(entry.node)) == "error-punt" => {
                let reason = self.error(entry.aux).map_or_else(|| "unknown".into(), |e| format!("{}: {}", e.node, e.text));
                let _ = write!(out, "rx:sw_if_index {}\n{reason}", entry.rx_if);
            }
            None => {
                let _ = write!(out, "{} bytes, to {}", entry.len, self.node_name(NodeId(entry.next)));
            }
        }
    }
}
