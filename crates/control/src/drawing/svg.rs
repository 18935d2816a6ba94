//! As a picture.

use std::fmt::Write as _;

use super::{
    Drawing, Role,
    dot::{fill, weight},
    layout::{BOX_HEIGHT, layout},
};

const MARGIN: f64 = 16.0;
/// Width of a letter of each line; the fonts of readers differ, so there is some room.
const LETTER: f64 = 7.4;
const SMALL_LETTER: f64 = 6.2;
/// Room for the legend below the picture.
const LEGEND: f64 = 34.0;

/// The drawing as an SVG picture.
pub fn svg(drawing: &Drawing, title: &str) -> String {
    let widths: Vec<f64> = drawing
        .vertices
        .iter()
        .map(|vertex| {
            let (name, note) = (vertex.name.chars().count() as f64 * LETTER, vertex.note.chars().count() as f64 * SMALL_LETTER);
            let drops = dropped(vertex.dropped).chars().count() as f64 * SMALL_LETTER;
            (name.max(note).max(drops) + 20.0).max(64.0)
        })
        .collect();
    let layout = layout(drawing, &widths);
    let legend = legend(drawing);
    let (width, height) = ((layout.width + 2.0 * MARGIN).max(legend.1), layout.height + 2.0 * MARGIN + LEGEND);
    let mut out = String::new();
    let _ = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" height=\"{height:.0}\" \
         font-family=\"Helvetica, Arial, sans-serif\" text-anchor=\"middle\">\n<title>{}</title>\n\
         <defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerUnits=\"userSpaceOnUse\" markerWidth=\"9\" markerHeight=\"9\" orient=\"auto\">\
         <path d=\"M0 0L8 4L0 8z\" fill=\"#5b6778\"/></marker></defs>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <g transform=\"translate({MARGIN} {MARGIN})\">\n<g fill=\"none\" stroke=\"#5b6778\">\n",
        escaped(title)
    );
    for (edge, route) in drawing.edges.iter().zip(&layout.routes) {
        let (wide, faint) = (weight(edge.packets), if edge.packets == 0 { " stroke-opacity=\"0.4\"" } else { "" });
        let _ = writeln!(
            out,
            "<path d=\"{}\" stroke-width=\"{wide:.1}\"{faint} marker-end=\"url(#tip)\"><title>{} to {}, at most {} packets</title></path>",
            path(route),
            escaped(&drawing.vertices[edge.from].name),
            escaped(&drawing.vertices[edge.to].name),
            edge.packets
        );
    }
    out.push_str("</g>\n");
    for (vertex, (x, y, width)) in drawing.vertices.iter().zip(&layout.boxes) {
        let (left, top) = (x - width / 2.0, y - BOX_HEIGHT / 2.0);
        let _ = writeln!(
            out,
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{BOX_HEIGHT}\" rx=\"6\" fill=\"{}\" stroke=\"#8a96a8\"/>",
            fill(vertex.role)
        );
        let first = if vertex.note.is_empty() { y + 4.5 } else { y - 2.5 };
        let _ =
            writeln!(out, "<text x=\"{x:.1}\" y=\"{first:.1}\" font-size=\"13\" fill=\"#1c2430\">{}</text>", escaped(&vertex.name));
        if !vertex.note.is_empty() {
            let second = y + 12.5;
            let _ = writeln!(
                out,
                "<text x=\"{x:.1}\" y=\"{second:.1}\" font-size=\"11\" fill=\"#4a5567\">{}</text>",
                escaped(&vertex.note)
            );
        }
        if vertex.dropped > 0 {
            let below = y + BOX_HEIGHT / 2.0 + 12.0;
            let _ = writeln!(
                out,
                "<text x=\"{x:.1}\" y=\"{below:.1}\" font-size=\"11\" font-weight=\"bold\" fill=\"#b3261e\" stroke=\"#ffffff\" \
                 stroke-width=\"3\" paint-order=\"stroke\">{}</text>",
                dropped(vertex.dropped)
            );
        }
    }
    let _ = writeln!(
        out,
        "</g>\n<g transform=\"translate({MARGIN} {:.0})\" text-anchor=\"start\">\n{}</g>\n</svg>",
        height - LEGEND,
        legend.0
    );
    out
}

fn dropped(packets: u64) -> String {
    if packets > 0 { format!("{packets} dropped") } else { String::new() }
}

/// The colours that occur, and how wide they stand side by side.
fn legend(drawing: &Drawing) -> (String, f64) {
    let (mut out, mut x) = (String::new(), 0.0);
    for (role, name) in Role::ALL {
        if drawing.vertices.iter().any(|vertex| vertex.role == role) {
            let _ = writeln!(
                out,
                "<rect x=\"{x:.0}\" y=\"4\" width=\"14\" height=\"14\" rx=\"3\" fill=\"{}\" stroke=\"#8a96a8\"/>\n\
                 <text x=\"{:.0}\" y=\"15\" font-size=\"11\" fill=\"#4a5567\">{name}</text>",
                fill(role),
                x + 20.0
            );
            x += 40.0 + name.len() as f64 * SMALL_LETTER;
        }
    }
    (out, x + 2.0 * MARGIN)
}

/// A curve through the points, upright at each, that leaves and enters boxes at their edges.
fn path(route: &[(f64, f64)]) -> String {
    let [(first_x, first_y), .., (last_x, last_y)] = route else {
        return loop_path(route.first().copied().unwrap_or_default());
    };
    let half = BOX_HEIGHT / 2.0;
    let down = if last_y > first_y { 1.0 } else { -1.0 };
    let mut points = vec![(*first_x, first_y + down * half)];
    points.extend(route.get(1..route.len() - 1).unwrap_or_default());
    points.push((*last_x, last_y - down * half));
    let mut d = format!("M{:.1} {:.1}", points[0].0, points[0].1);
    for pair in points.windows(2) {
        let ((x1, y1), (x2, y2)) = (pair[0], pair[1]);
        let bend = (y2 - y1) / 2.0;
        let _ = write!(d, "C{x1:.1} {:.1} {x2:.1} {:.1} {x2:.1} {y2:.1}", y1 + bend, y2 - bend);
    }
    d
}

/// An edge from a node to itself.
fn loop_path((x, y): (f64, f64)) -> String {
    let top = y - BOX_HEIGHT / 2.0;
    format!(
        "M{:.1} {top:.1}C{:.1} {:.1} {:.1} {:.1} {:.1} {top:.1}",
        x - 10.0,
        x - 16.0,
        top - 18.0,
        x + 16.0,
        top - 18.0,
        x + 10.0
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawing::{Edge, Vertex};

    #[test]
    fn the_picture_shows_every_node_and_edge_and_escapes_text() {
        let vertex = |name: &str, note: &str, role, dropped| Vertex { name: name.into(), note: note.into(), role, dropped };
        let vertices =
            vec![vertex("pg-input", "3 packets", Role::Input, 0), vertex("a<&>", "", Role::Ip4, 7), vertex("tx", "", Role::End, 0)];
        let edge = |from, to, packets| Edge { from, to, packets };
        let edges = vec![edge(0, 1, 3), edge(1, 2, 0), edge(0, 2, 1_000_000), edge(1, 1, 1)];
        let picture = svg(&Drawing { vertices, edges }, "a & b");
        // Three names, a note, the drops, and three colours in the legend.
        assert_eq!((picture.matches("<text").count(), picture.matches("marker-end").count()), (8, 4));
        assert!(picture.contains("a&lt;&amp;&gt;") && picture.contains("<title>a &amp; b</title>"), "{picture}");
        assert!(picture.contains(">7 dropped<") && !picture.contains(">0 dropped<"), "{picture}");
        assert!(picture.contains("stroke-width=\"4.0\"") && picture.contains("stroke-width=\"0.8\""), "{picture}");
        assert_eq!(picture.matches("<g").count(), picture.matches("</g>").count());
        assert!(!picture.contains("NaN") && !picture.contains("inf"), "{picture}");
    }

    #[test]
    fn an_empty_graph_is_an_empty_picture() {
        let picture = svg(&Drawing::default(), "");
        assert!(picture.starts_with("<svg") && picture.ends_with("</svg>\n") && !picture.contains("inf"), "{picture}");
    }
}
