//! As a picture.

use std::fmt::Write as _;

use super::{
    Drawing,
    dot::fill,
    layout::{BOX_HEIGHT, layout},
};

const MARGIN: f64 = 16.0;
/// Width of a letter of each line; the fonts of readers differ, so there is some room.
const LETTER: f64 = 7.4;
const SMALL_LETTER: f64 = 6.2;

/// The drawing as an SVG picture.
pub fn svg(drawing: &Drawing, title: &str) -> String {
    let widths: Vec<f64> = drawing
        .vertices
        .iter()
        .map(|vertex| {
            let (name, note) = (vertex.name.chars().count() as f64 * LETTER, vertex.note.chars().count() as f64 * SMALL_LETTER);
            (name.max(note) + 20.0).max(64.0)
        })
        .collect();
    let layout = layout(drawing, &widths);
    let (width, height) = (layout.width + 2.0 * MARGIN, layout.height + 2.0 * MARGIN);
    let mut out = String::new();
    let _ = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" height=\"{height:.0}\" \
         font-family=\"Helvetica, Arial, sans-serif\" text-anchor=\"middle\">\n<title>{}</title>\n\
         <defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\">\
         <path d=\"M0 0L8 4L0 8z\" fill=\"#5b6778\"/></marker></defs>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <g transform=\"translate({MARGIN} {MARGIN})\">\n<g fill=\"none\" stroke=\"#5b6778\" stroke-width=\"1.3\">\n",
        escaped(title)
    );
    for route in &layout.routes {
        let _ = writeln!(out, "<path d=\"{}\" marker-end=\"url(#tip)\"/>", path(route));
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
    }
    out.push_str("</g>\n</svg>\n");
    out
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
    use crate::drawing::{Role, Vertex};

    #[test]
    fn the_picture_shows_every_node_and_edge_and_escapes_text() {
        let vertex = |name: &str, note: &str, role| Vertex { name: name.into(), note: note.into(), role };
        let vertices =
            vec![vertex("pg-input", "3 packets", Role::Input), vertex("a<&>", "", Role::Inner), vertex("tx", "", Role::End)];
        let picture = svg(&Drawing { vertices, edges: vec![(0, 1), (1, 2), (0, 2), (1, 1)] }, "a & b");
        assert_eq!((picture.matches("<text").count(), picture.matches("marker-end").count()), (4, 4));
        assert!(picture.contains("a&lt;&amp;&gt;") && picture.contains("<title>a &amp; b</title>"), "{picture}");
        assert_eq!(picture.matches("<g").count(), picture.matches("</g>").count());
        assert!(!picture.contains("NaN") && !picture.contains("inf"), "{picture}");
    }

    #[test]
    fn an_empty_graph_is_an_empty_picture() {
        let picture = svg(&Drawing::default(), "");
        assert!(picture.starts_with("<svg") && picture.ends_with("</svg>\n") && !picture.contains("inf"), "{picture}");
    }
}
