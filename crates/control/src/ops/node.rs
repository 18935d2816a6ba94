//! `show node`, `set node …`, the vector size.

use std::fmt::Write as _;

use quiver_command::grammar::{Args, Command, nearest};
use quiver_command::operation::{Align, Invocation, OpError, Outcome, Registry, Text, TextTable, View, retval};
use quiver_command::request::Execute;
use quiver_command::{commands, request};
use quiver_graph::{Level, NodeKind};
use quiver_net::Router;
use quiver_net::ops::graph_error;
use serde::{Deserialize, Serialize};

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry
        .declare::<ShowNode>()
        .declare::<SetNodeLoop>()
        .declare::<ShowVectorSize>()
        .declare::<SetVectorSize>()
        .declare::<ShowFusion>()
        .declare::<SetFusion>()
        .values("node", |router| router.graph.nodes().into_iter().map(|node| node.name).collect())
        .values("variant", |_| Level::ALL.iter().filter(|level| level.available()).map(|level| level.name().to_owned()).collect())
        .command_of::<SetNodeLoop>(Command {
            path: "set node function",
            syntax: "<node> <variant>",
            help: "Chooses the instruction set of a node's loop",
            parse: |args, _| {
                let node = args.word("node")?.into_owned();
                Ok(Invocation::new::<SetNodeLoop>(SetNodeLoop {
                    node,
                    variant: Some(variant(args)?),
                    multi_loop: None,
                    prefetch: None,
                }))
            },
        });
}

/// The error of a node that is not there, with the one that may have been meant.
pub(super) fn no_such_node(router: &Router, name: &str) -> OpError {
    let error = OpError::new(retval::NO_SUCH_NODE, "no such node").key("node").value(name);
    let nodes = router.graph.nodes();
    match nearest(name, nodes.iter().map(|node| node.name.as_str())) {
        Some(meant) => error.remedy(format!("did you mean `{meant}'?")),
        None => error.remedy("`show vlib graph' lists all"),
    }
}

fn variant(args: &mut Args<'_>) -> Result<String, OpError> {
    Ok(args.word("variant")?.into_owned())
}

/// Describes a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShowNode {
    /// Its name, or its number.
    pub node: String,
}

commands! {
    read ShowNode "node_show" {
        /// Shows a node: how its loop runs, where it sends packets, where it gets them from.
        ["show node"] "[index] <node>" by |args| {
            args.take_keyword("index");
            Ok(ShowNode { node: args.word("node")?.into_owned() })
        },
    }
}

/// The answer of [`ShowNode`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeDetail {
    /// Name.
    pub name: String,
    /// Number.
    pub index: u16,
    /// `input` or `internal`.
    pub kind: &'static str,
    /// How its loop runs; none for a node that takes whole vectors.
    #[serde(rename = "loop")]
    pub multi_loop: Option<LoopDetail>,
    /// Instruction sets it can be built for here; none for a node that takes whole vectors.
    pub variants: Vec<&'static str>,
    /// Where it sends packets, by slot.
    pub next: Vec<Neighbour>,
    /// Who sends packets to it.
    pub previous: Vec<Neighbour>,
}

/// How a node's loop runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LoopDetail {
    /// Packets in a step.
    pub multi_loop: u8,
    /// Packets that prefetching is ahead.
    pub prefetch: u8,
    /// Instruction set.
    pub variant: &'static str,
}

/// A node next to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Neighbour {
    /// Slot of the edge.
    pub slot: usize,
    /// Its number.
    pub index: u16,
    /// Its name.
    pub name: String,
    /// Packets through it, on all threads.
    pub vectors: u64,
}

impl Execute<Router> for ShowNode {
    type Reply = NodeDetail;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, NodeDetail>, OpError> {
        let nodes = router.graph.nodes();
        let by_number = self.node.parse::<u16>().ok();
        let node = nodes.iter().find(|node| node.name == self.node || Some(node.id.0) == by_number);
        let node = node.ok_or_else(|| no_such_node(router, &self.node))?;
        let threads = router.graph.fleet().threads();
        let neighbour = |slot: usize, name: &str| {
            let id = router.graph.node(name);
            let vectors = id.map_or(0, |id| threads.iter().map(|thread| router.graph.figures(id, *thread).vectors).sum());
            Neighbour { slot, index: id.map_or(u16::MAX, |id| id.0), name: name.to_owned(), vectors }
        };
        let edges = |from: &quiver_graph::NodeInfo| from.nexts.iter().position(|next| *next == node.name);
        Ok(Outcome::Done(NodeDetail {
            name: node.name.clone(),
            index: node.id.0,
            kind: if node.kind == NodeKind::Input { "input" } else { "internal" },
            multi_loop: node.multi_loop.map(|(config, level)| LoopDetail {
                multi_loop: config.width,
                prefetch: config.prefetch,
                variant: level.name(),
            }),
            variants: node.multi_loop.iter().flat_map(|_| Level::ALL).filter(|level| level.available()).map(Level::name).collect(),
            next: node.nexts.iter().enumerate().map(|(slot, name)| neighbour(slot, name)).collect(),
            previous: nodes.iter().filter_map(|from| Some(neighbour(edges(from)?, &from.name))).collect(),
        }))
    }
}

impl Text for NodeDetail {
    fn text(&self, out: &mut String, _view: &View) {
        let state = if self.kind == "input" { "polling" } else { "active" };
        let _ = writeln!(out, "node {}, type {}, state {state}, index {}", self.name, self.kind, self.index);
        if let Some(LoopDetail { multi_loop, prefetch, variant }) = self.multi_loop {
            let _ = writeln!(out, "  multi-loop {multi_loop}, prefetch {prefetch}");
            out.push_str("  node function variants:\n");
            let table = TextTable::new()
                .column("", 4, Align::Left)
                .column("Name", 10, Align::Left)
                .column("Active", 8, Align::Centre)
                .trim();
            table.heading(out);
            for name in &self.variants {
                table.row(out, &[&"", name, &if *name == variant { "yes" } else { "" }]);
            }
        }
        if !self.next.is_empty() {
            out.push_str("  next nodes:\n");
            let table = TextTable::new()
                .column("next-index", 14, Align::Right)
                .column("node-index", 12, Align::Right)
                .column("Node", 30, Align::Right)
                .column("Vectors", 16, Align::Right);
            table.heading(out);
            for next in &self.next {
                table.row(out, &[&next.slot, &next.index, &next.name, &next.vectors]);
            }
        }
        if !self.previous.is_empty() {
            let names: Vec<_> = self.previous.iter().map(|node| format!("{} ({})", node.name, node.index)).collect();
            let _ = writeln!(out, "  known previous nodes:\n    {}", names.join(", "));
        }
    }
}

request! {
    /// Sets how many packets a step of a node's loop takes, how far it prefetches, for which instruction set it is built.
    pub change SetNodeLoop "node_loop_set" ["set node"] {
        /// Name of the node.
        pub node: String = "<node>",
        /// Packets in a step: 1, 2, 4 or 8.
        pub multi_loop: Option<u8> = "multi-loop <n>",
        /// Packets that prefetching is ahead; 0 for none.
        pub prefetch: Option<u8> = "prefetch <n>",
        /// Instruction set: `v2`, `v3`, `v4`, or `base` on other processors.
        pub variant: Option<String> = "variant <variant>",
    }
}

/// The instruction set of this name.
pub fn level(name: &str) -> Result<Level, OpError> {
    Level::ALL.into_iter().find(|level| level.name() == name).ok_or_else(|| {
        let names: Vec<_> = Level::ALL.iter().filter(|level| level.available()).map(|level| level.name()).collect();
        OpError::invalid("variant", name, "no such variant").remedy(format!("use {}", names.join(", ")))
    })
}

impl Execute<Router> for SetNodeLoop {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        if self.multi_loop.is_none() && self.prefetch.is_none() && self.variant.is_none() {
            return Err(OpError::unspecified("nothing to set").remedy("expected `multi-loop', `prefetch' or `variant'"));
        }
        let level = self.variant.as_deref().map(level).transpose()?;
        let set = router.graph.set_loop(&self.node, self.multi_loop, self.prefetch, level);
        set.map_err(|error| graph_error(&error))?;
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Shows how many packets a vector holds at most.
    pub read ShowVectorSize "vector_size_show" ["show vector-size"] {}
}

/// How many packets a vector holds at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct VectorSize {
    /// So many.
    pub packets: usize,
}

impl Text for VectorSize {
    fn text(&self, out: &mut String, _view: &View) {
        let _ = writeln!(out, "vector size {}", self.packets);
    }
}

impl Execute<Router> for ShowVectorSize {
    type Reply = VectorSize;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, VectorSize>, OpError> {
        Ok(Outcome::Done(VectorSize { packets: router.graph.vector_size() }))
    }
}

request! {
    /// Sets how many packets a vector holds at most, 4 to 1024.
    pub change SetVectorSize "vector_size_set" ["set vector-size"] {
        /// So many.
        pub packets: usize = "<n>" name("vector size"),
    }
}

impl Execute<Router> for SetVectorSize {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        router.graph.set_vector_size(self.packets).map_err(|error| graph_error(&error))?;
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Shows whether nodes that usually follow one another run as one loop.
    pub read ShowFusion "fusion_show" ["show fusion"] {}
}

/// Whether lines of nodes run as one loop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FusionDetail {
    /// Whether they do.
    pub on: bool,
    /// The lines, each a list of nodes.
    pub lines: Vec<Vec<String>>,
}

impl Text for FusionDetail {
    fn text(&self, out: &mut String, _view: &View) {
        let _ = writeln!(out, "fusion {}", if self.on { "on" } else { "off" });
        for line in &self.lines {
            let _ = writeln!(out, "  {}", line.join(" -> "));
        }
    }
}

impl Execute<Router> for ShowFusion {
    type Reply = FusionDetail;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, FusionDetail>, OpError> {
        let names = |line: &[&str]| line.iter().map(ToString::to_string).collect();
        let lines = router.graph.chains().map(names).collect();
        Ok(Outcome::Done(FusionDetail { on: router.graph.fusion(), lines }))
    }
}

request! {
    /// Sets whether nodes that usually follow one another run as one loop.
    pub change SetFusion "fusion_set" ["set fusion"] {
        /// Whether they are.
        pub on: bool = "on|off" required(),
    }
}

impl Execute<Router> for SetFusion {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        router.graph.set_fusion(self.on);
        Ok(Outcome::Done(()))
    }
}
