//! `show vlib graph`, `show vlib graphviz`, `show vlib graph svg`.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;
use std::path::PathBuf;

use quiver_command::grammar::Args;
use quiver_command::operation::{Access, Align, OpError, Outcome, Registry, Text, TextTable, View};
use quiver_command::request::Execute;
use quiver_command::{commands, request};
use quiver_graph::{NodeInfo, NodeKind, Severity};
use quiver_net::Router;
use quiver_net::files::{Elsewhere, Files, Use};
use serde::{Deserialize, Serialize};

use super::node::no_such_node;
use crate::drawing::{Drawing, Edge, Role, Vertex, dot, svg};

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.declare::<ShowGraph>().declare::<DrawGraph>();
}

fn parse_drawing(args: &mut Args<'_>, format: Format, active: bool) -> Result<DrawGraph, OpError> {
    let mut request = DrawGraph { format, active, file: None };
    while !args.is_empty() {
        if args.take_keyword("filter") {
            request.active = true;
        } else if args.take_keyword("all") {
            request.active = false;
        } else if args.take_keyword("file") {
            request.file = Some(args.word("file")?.into_owned());
        } else {
            return Err(args.unexpected());
        }
    }
    Ok(request)
}

request! {
    /// Shows which node sends packets to which.
    pub read ShowGraph "graph_dump" ["show vlib graph"] {
        /// Only this node.
        pub node: Option<String> = "<node>",
    }
}

/// A node and its neighbours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GraphNode {
    /// Its name.
    pub name: String,
    /// Where it sends packets: the slot, the node.
    pub next: Vec<(usize, String)>,
    /// Who sends packets to it.
    pub previous: Vec<String>,
}

/// The answer of [`ShowGraph`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct GraphNodes(pub Vec<GraphNode>);

impl Execute<Router> for ShowGraph {
    type Reply = GraphNodes;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, GraphNodes>, OpError> {
        let nodes = router.graph.nodes();
        if let Some(node) = &self.node
            && router.graph.node(node).is_none()
        {
            return Err(no_such_node(router, node));
        }
        let mut previous: HashMap<&str, Vec<String>> = HashMap::new();
        for node in &nodes {
            node.nexts.iter().for_each(|next| previous.entry(next).or_default().push(node.name.clone()));
        }
        let describe = |node: &NodeInfo| {
            let mut previous = previous.get(node.name.as_str()).cloned().unwrap_or_default();
            previous.sort();
            previous.dedup();
            GraphNode { name: node.name.clone(), next: node.nexts.iter().cloned().enumerate().collect(), previous }
        };
        let chosen = nodes.iter().filter(|node| self.node.as_ref().is_none_or(|name| *name == node.name));
        let mut chosen: Vec<GraphNode> = chosen.map(describe).collect();
        chosen.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Outcome::Done(GraphNodes(chosen)))
    }
}

impl Text for GraphNodes {
    fn text(&self, out: &mut String, _view: &View) {
        let table = TextTable::new().column("Name", 26, Align::Left).column("Next", 26, Align::Centre).column(
            "Previous",
            26,
            Align::Centre,
        );
        table.heading(out);
        for node in &self.0 {
            for line in 0..node.next.len().max(node.previous.len()).max(1) {
                let name = if line == 0 { node.name.as_str() } else { "" };
                let next = node.next.get(line).map(|(slot, next)| format!("{next} [{slot}]")).unwrap_or_default();
                let previous = node.previous.get(line).map_or("", String::as_str);
                table.row(out, &[&name, &next, &previous]);
            }
            out.push('\n');
        }
    }
}

/// As what the graph is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// A text for Graphviz.
    Dot,
    /// A picture.
    Svg,
}

/// Draws the graph.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DrawGraph {
    /// As what.
    pub format: Format,
    /// Only nodes that had packets since the figures were cleared.
    #[serde(default)]
    pub active: bool,
    /// Name of a file, or its path; without it the drawing is the answer.
    #[serde(default)]
    pub file: Option<String>,
}

commands! {
    read DrawGraph "graph_draw" {
        /// Draws the graph as a text for Graphviz; with `filter' only nodes that had packets.
        ["show vlib graphviz"] "[filter] [file <name>]" by |args| parse_drawing(args, Format::Dot, false),
        /// Draws the nodes that had packets, or all, as a picture.
        ["show vlib graph svg"] "[all] [file <name>]" by |args| parse_drawing(args, Format::Svg, true),
    }
}

/// The answer of [`DrawGraph`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Drawn {
    /// Where the drawing is, if it is in a file.
    pub file: Option<PathBuf>,
    /// The drawing, if it is not.
    pub drawing: Option<String>,
    /// Nodes drawn.
    pub nodes: usize,
}

impl Execute<Router> for DrawGraph {
    type Reply = Drawn;

    fn access(&self) -> Access {
        if self.file.is_some() { Access::Change } else { Access::Read }
    }

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Drawn>, OpError> {
        let place = self.file.map(|name| Files::place(router, name, Use::Write)).transpose()?;
        let drawing = draw(router, self.active);
        let nodes = drawing.vertices.len();
        let text = match self.format {
            Format::Dot => dot(&drawing),
            Format::Svg => svg(&drawing, "Packets through the graph"),
        };
        let Some(place) = place else { return Ok(Outcome::Done(Drawn { drawing: Some(text), file: None, nodes })) };
        let save = move || {
            place.save(text.as_bytes()).map_err(|error| place.cannot("write", &error))?;
            Ok(Drawn { drawing: None, file: Some(place.path().to_owned()), nodes })
        };
        Ok(Outcome::job(Elsewhere::new(save, |_, drawn| Ok(drawn))))
    }
}

/// From so many interfaces on, their nodes of one kind are drawn as one.
const MANY: usize = 6;

/// What is drawn of a node: nodes of many interfaces share a name.
fn drawn_as(router: &Router, node: &str) -> String {
    let interface = node.strip_suffix("-output").or_else(|| node.strip_suffix("-tx"));
    let is_one = interface.is_some_and(|name| router.interfaces.iter().any(|interface| interface.name == name));
    if !is_one || router.interfaces.iter().count() < MANY {
        return node.to_owned();
    }
    if node.ends_with("-tx") { "<interface>-tx".to_owned() } else { "<interface>-output".to_owned() }
}

fn role(node: &NodeInfo) -> Role {
    let begins = |words: &[&str]| words.iter().any(|word| node.name.starts_with(word));
    match node.name.as_str() {
        _ if node.kind == NodeKind::Input => Role::Input,
        "error-drop" | "error-punt" | "null-node" | "packet-loop" => Role::End,
        name if name.ends_with("-drop") || name.ends_with("-punt") => Role::End,
        name if name.ends_with("-tx") || name.ends_with("-output") => Role::Output,
        _ if begins(&["nat44", "linux-cp"]) => Role::Plugin,
        _ if begins(&["ip6", "icmp6", "lookup-ip6"]) => Role::Ip6,
        _ if begins(&["ip4", "arp", "lookup-ip4"]) => Role::Ip4,
        _ if begins(&["ethernet", "l2"]) => Role::Link,
        _ => Role::Inner,
    }
}

/// The graph with the packets that went through each node and the drops of each. Where packets are dropped stands at the node, so
/// there are no edges to the node that frees them.
fn draw(router: &mut Router, active: bool) -> Drawing {
    let threads = router.graph.fleet().threads();
    let mut drawing = Drawing::default();
    let mut places: HashMap<String, usize> = HashMap::new();
    let (mut packets, mut counts): (Vec<u64>, Vec<usize>) = (Vec::new(), Vec::new());
    let nodes = router.graph.nodes();
    for node in nodes.iter().filter(|node| node.name != "error-drop") {
        let vectors: u64 = threads.iter().map(|thread| router.graph.figures(node.id, *thread).vectors).sum();
        if active && vectors == 0 {
            continue;
        }
        let name = drawn_as(router, &node.name);
        let place = *places.entry(name.clone()).or_insert_with(|| {
            drawing.vertices.push(Vertex { name, note: String::new(), role: role(node), dropped: 0 });
            packets.push(0);
            counts.push(0);
            drawing.vertices.len() - 1
        });
        packets[place] += vectors;
        counts[place] += 1;
    }
    for (place, vertex) in drawing.vertices.iter_mut().enumerate() {
        let many = if counts[place] > 1 { format!("{} interfaces", counts[place]) } else { String::new() };
        let through = if packets[place] > 0 { format!("{} packets", grouped(packets[place])) } else { String::new() };
        let between = if many.is_empty() || through.is_empty() { "" } else { ", " };
        vertex.note = format!("{many}{between}{through}");
    }
    for (_, error, count) in router.graph.error_counts().into_iter().filter(|(_, error, _)| error.severity == Severity::Error) {
        if let Some(place) = places.get(&drawn_as(router, &error.node)) {
            drawing.vertices[*place].dropped += count;
        }
    }
    let mut pairs = BTreeSet::new();
    for node in &nodes {
        let Some(from) = places.get(&drawn_as(router, &node.name)) else { continue };
        let targets = node.nexts.iter().filter_map(|next| places.get(&drawn_as(router, next)));
        pairs.extend(targets.filter(|to| *to != from).map(|to| (*from, *to)));
    }
    drawing.edges = pairs.into_iter().map(|(from, to)| Edge { from, to, packets: 0 }).collect();
    share_out(&mut drawing, &packets);
    drawing
}

/// Gives edges the packets that took them, as far as the packets of nodes tell: a node's only way in took all that it had, its only
/// way out all that it did not drop. What stays open gets the most that is possible.
fn share_out(drawing: &mut Drawing, packets: &[u64]) {
    let mut coming = packets.to_vec();
    let mut going: Vec<u64> =
        packets.iter().zip(&drawing.vertices).map(|(packets, vertex)| packets.saturating_sub(vertex.dropped)).collect();
    let mut open: Vec<usize> = (0..drawing.edges.len()).collect();
    while !open.is_empty() {
        let edges = &drawing.edges;
        let left = |edge: &usize| coming[edges[*edge].to].min(going[edges[*edge].from]);
        open.retain(|edge| left(edge) > 0);
        let only = |edge: &usize| {
            let others =
                |same: fn(&Edge) -> usize| open.iter().filter(|other| same(&edges[**other]) == same(&edges[*edge])).count();
            others(|edge| edge.to) == 1 || others(|edge| edge.from) == 1
        };
        let Some(found) = open.iter().copied().find(|edge| only(edge)) else { break };
        let (Edge { from, to, .. }, packets) = (edges[found], left(&found));
        drawing.edges[found].packets = packets;
        coming[to] -= packets;
        going[from] -= packets;
        open.retain(|edge| *edge != found);
    }
    for edge in open {
        let Edge { from, to, .. } = drawing.edges[edge];
        drawing.edges[edge].packets = coming[to].min(going[from]);
    }
}

/// `1,234,567`.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

impl Text for Drawn {
    fn text(&self, out: &mut String, _view: &View) {
        if let Some(file) = &self.file {
            let _ = writeln!(out, "{} nodes drawn to {}", self.nodes, file.display());
        }
        out.push_str(self.drawing.as_deref().unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn show_vlib_graph_has_the_usual_columns() {
        let node = GraphNode {
            name: "ip4-lookup".into(),
            next: vec![(0, "ip4-drop".into()), (1, "ip4-punt".into())],
            previous: vec!["vxlan-gpe-encap".into(), "udp-echo".into()],
        };
        let mut out = String::new();
        GraphNodes(vec![node]).text(&mut out, &View::TEXT);
        let lines: Vec<_> = out.lines().collect();
        assert_eq!(lines[0], "           Name                      Next                    Previous         ");
        assert_eq!(lines[1], "ip4-lookup                       ip4-drop [0]             vxlan-gpe-encap     ");
        assert_eq!(lines[2].trim_end(), "                                 ip4-punt [1]                udp-echo");
    }

    #[test]
    fn edges_have_the_packets_that_nodes_tell_of() {
        let vertex = |dropped| Vertex { name: String::new(), note: String::new(), role: Role::Inner, dropped };
        let edge = |(from, to)| Edge { from, to, packets: 0 };
        // 0 drops 40 of 100 and sends the rest to 1, which sends 50 to 2 and 10 to 3; nothing goes from 0 to 3.
        let mut drawing =
            Drawing { vertices: [40, 0, 0, 0].map(vertex).to_vec(), edges: [(0, 1), (0, 3), (1, 2), (1, 3)].map(edge).to_vec() };
        share_out(&mut drawing, &[100, 60, 50, 10]);
        assert_eq!(drawing.edges.iter().map(|edge| edge.packets).collect::<Vec<_>>(), [60, 0, 50, 10]);
        // Two of equal right: each may have had all.
        drawing.edges = [(0, 1), (0, 2), (3, 1), (3, 2)].map(edge).to_vec();
        drawing.vertices[0].dropped = 0;
        share_out(&mut drawing, &[5, 5, 5, 5]);
        assert_eq!(drawing.edges.iter().map(|edge| edge.packets).collect::<Vec<_>>(), [5, 5, 5, 5]);
    }

    #[test]
    fn large_numbers_are_grouped() {
        assert_eq!(
            (grouped(0), grouped(999), grouped(1000), grouped(1_234_567)),
            ("0".into(), "999".into(), "1,000".into(), "1,234,567".into())
        );
    }
}
