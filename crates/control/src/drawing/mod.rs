//! Drawings of a directed graph: layered, without external programs.
//!
//! The layout is the usual one in four steps: edges that close a cycle are set aside; each node gets the layer below all that
//! lead to it; within the layers nodes are moved next to their neighbours, so that few edges cross; then each is pulled above
//! or below them. An edge over several layers gets a place in each, so that it does not run through boxes.

mod dot;
mod layout;
mod svg;

pub use dot::dot;
pub use svg::svg;

/// What a node is to the reader; decides its colour, and what stands beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Brings packets in.
    Input,
    /// Works on them.
    Inner,
    /// Works on packets of IPv4.
    Ip4,
    /// Works on packets of IPv6.
    Ip6,
    /// Works on frames: Ethernet, VLANs, bridges.
    Link,
    /// Works on them for a plugin: NAT, Linux control plane.
    Plugin,
    /// Sends them out.
    Output,
    /// Ends their way.
    End,
}

impl Role {
    /// All roles in the order of the legend, each with its name there.
    pub const ALL: [(Self, &'static str); 8] = [
        (Self::Input, "input"),
        (Self::Link, "Ethernet, bridging"),
        (Self::Ip4, "IPv4"),
        (Self::Ip6, "IPv6"),
        (Self::Plugin, "plugin"),
        (Self::Inner, "other"),
        (Self::Output, "output"),
        (Self::End, "end"),
    ];
}

/// A node to draw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vertex {
    /// Its name.
    pub name: String,
    /// A second, smaller line.
    pub note: String,
    /// What it is.
    pub role: Role,
    /// Packets that it dropped: they stand at the node, since edges from every node to one end would hide all others.
    pub dropped: u64,
}

/// An edge, by the places of its nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edge {
    /// Where it begins.
    pub from: usize,
    /// Where it leads.
    pub to: usize,
    /// Packets that took it, at most; decides its width.
    pub packets: u64,
}

/// Nodes, and edges between them by their places.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Drawing {
    /// The nodes.
    pub vertices: Vec<Vertex>,
    /// The edges.
    pub edges: Vec<Edge>,
}
