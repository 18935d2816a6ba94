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

/// What a node is to the reader; decides its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Brings packets in.
    Input,
    /// Works on them.
    Inner,
    /// Sends them out.
    Output,
    /// Ends their way.
    End,
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
}

/// Nodes, and edges between them by their places.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Drawing {
    /// The nodes.
    pub vertices: Vec<Vertex>,
    /// From, to.
    pub edges: Vec<(usize, usize)>,
}
