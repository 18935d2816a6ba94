//! As a text for Graphviz.

use std::fmt::Write as _;

use super::{Drawing, Edge, Role};

/// The drawing in the DOT language.
pub fn dot(drawing: &Drawing) -> String {
    let mut out = String::from(
        "digraph \"graph\" {\n  rankdir=TB;\n  node [shape=box, style=\"rounded,filled\", fontname=\"sans-serif\"];\n",
    );
    for (number, vertex) in drawing.vertices.iter().enumerate() {
        let mut note = if vertex.note.is_empty() { String::new() } else { format!("\\n{}", quoted(&vertex.note)) };
        if vertex.dropped > 0 {
            let _ = write!(note, "\\n{} dropped", vertex.dropped);
        }
        let _ = writeln!(out, "  n{number} [label=\"{}{note}\", fillcolor=\"{}\"];", quoted(&vertex.name), fill(vertex.role));
    }
    for Edge { from, to, packets } in &drawing.edges {
        let _ = writeln!(out, "  n{from} -> n{to} [penwidth={:.1}];", weight(*packets));
    }
    out.push_str("}\n");
    out
}

/// Background of a node.
pub(super) fn fill(role: Role) -> &'static str {
    match role {
        Role::Input => "#d7ecd9",
        Role::Inner => "#eceef1",
        Role::Ip4 => "#dbe7fb",
        Role::Ip6 => "#e7defa",
        Role::Link => "#d5f0f2",
        Role::Plugin => "#f7e3f0",
        Role::Output => "#fbe8c8",
        Role::End => "#f6d9d7",
    }
}

/// Width of an edge: a step for each power of ten.
pub(super) fn weight(packets: u64) -> f64 {
    if packets == 0 { 0.8 } else { 1.3 + 0.45 * f64::from(packets.ilog10()) }
}

fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawing::Vertex;

    #[test]
    fn names_are_quoted() {
        let vertex = |name: &str| Vertex { name: name.into(), note: String::new(), role: Role::Inner, dropped: 0 };
        let text =
            dot(&Drawing { vertices: vec![vertex("a\"b"), vertex("c")], edges: vec![Edge { from: 0, to: 1, packets: 100 }] });
        assert!(text.contains(r#"n0 [label="a\"b""#) && text.contains("n0 -> n1 [penwidth=2.2];"), "{text}");
    }
}
