//! As a text for Graphviz.

use std::fmt::Write as _;

use super::{Drawing, Role};

/// The drawing in the DOT language.
pub fn dot(drawing: &Drawing) -> String {
    let mut out = String::from(
        "digraph \"graph\" {\n  rankdir=TB;\n  node [shape=box, style=\"rounded,filled\", fontname=\"sans-serif\"];\n",
    );
    for (number, vertex) in drawing.vertices.iter().enumerate() {
        let note = if vertex.note.is_empty() { String::new() } else { format!("\\n{}", quoted(&vertex.note)) };
        let _ = writeln!(out, "  n{number} [label=\"{}{note}\", fillcolor=\"{}\"];", quoted(&vertex.name), fill(vertex.role));
    }
    for (from, to) in &drawing.edges {
        let _ = writeln!(out, "  n{from} -> n{to};");
    }
    out.push_str("}\n");
    out
}

/// Background of a node.
pub(super) fn fill(role: Role) -> &'static str {
    match role {
        Role::Input => "#d7ecd9",
        Role::Inner => "#e3e9f4",
        Role::Output => "#fbe8c8",
        Role::End => "#f6d9d7",
    }
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
        let vertex = |name: &str| Vertex { name: name.into(), note: String::new(), role: Role::Inner };
        let text = dot(&Drawing { vertices: vec![vertex("a\"b"), vertex("c")], edges: vec![(0, 1)] });
        assert!(text.contains(r#"n0 [label="a\"b""#) && text.contains("n0 -> n1;"), "{text}");
    }
}
