//! Where boxes and edges go.

use super::Drawing;

/// Sweeps over the layers; more change nothing on graphs of a router's size.
const SWEEPS: usize = 12;

/// Sizes in pixels.
pub(super) const BOX_HEIGHT: f64 = 40.0;
const LAYER_GAP: f64 = 34.0;
const BOX_GAP: f64 = 22.0;
/// Width of an edge's place in a layer that it only passes.
const LANE: f64 = 14.0;

/// A box, or a place where an edge passes.
#[derive(Debug, Clone)]
struct Item {
    layer: usize,
    width: f64,
    /// Centre.
    x: f64,
    above: Vec<usize>,
    below: Vec<usize>,
}

/// The finished layout; x and y are centres.
#[derive(Debug, Clone, Default)]
pub(super) struct Layout {
    /// Of each vertex: x, y, width.
    pub boxes: Vec<(f64, f64, f64)>,
    /// Of each edge: the points that it runs through, from box to box.
    pub routes: Vec<Vec<(f64, f64)>>,
    pub width: f64,
    pub height: f64,
}

/// Lays a drawing out, with boxes of the given widths.
pub(super) fn layout(drawing: &Drawing, widths: &[f64]) -> Layout {
    let backward = closing_edges(drawing);
    let layers = layers(drawing, &backward);
    let mut items: Vec<Item> = widths
        .iter()
        .zip(&layers)
        .map(|(width, layer)| Item { layer: *layer, width: *width, x: 0.0, above: Vec::new(), below: Vec::new() })
        .collect();
    let chains: Vec<Vec<usize>> =
        drawing.edges.iter().zip(&backward).map(|(edge, back)| chain(&mut items, edge.from, edge.to, *back)).collect();

    let depth = items.iter().map(|item| item.layer + 1).max().unwrap_or(0);
    let mut order: Vec<Vec<usize>> = vec![Vec::new(); depth];
    (0..items.len()).for_each(|item| order[items[item].layer].push(item));
    reduce_crossings(&mut items, &mut order);
    place(&mut items, &order);

    let left = items.iter().map(|item| item.x - item.width / 2.0).fold(f64::INFINITY, f64::min);
    let right = items.iter().map(|item| item.x + item.width / 2.0).fold(f64::NEG_INFINITY, f64::max);
    let y = |layer: usize| layer as f64 * (BOX_HEIGHT + LAYER_GAP) + BOX_HEIGHT / 2.0;
    let at = |item: usize| (items[item].x - left, y(items[item].layer));
    Layout {
        boxes: (0..widths.len()).map(|item| (at(item).0, at(item).1, widths[item])).collect(),
        routes: chains.iter().map(|chain| chain.iter().map(|item| at(*item)).collect()).collect(),
        width: if items.is_empty() { 0.0 } else { right - left },
        height: depth as f64 * (BOX_HEIGHT + LAYER_GAP) - if depth > 0 { LAYER_GAP } else { 0.0 },
    }
}

/// Which edges lead back to a node on the way that reached them.
fn closing_edges(drawing: &Drawing) -> Vec<bool> {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        Open,
        Done,
    }
    let mut leaving: Vec<Vec<(usize, usize)>> = vec![Vec::new(); drawing.vertices.len()];
    for (number, edge) in drawing.edges.iter().enumerate() {
        leaving[edge.from].push((number, edge.to));
    }
    let mut backward = vec![false; drawing.edges.len()];
    let mut marks = vec![Mark::New; drawing.vertices.len()];
    for start in 0..drawing.vertices.len() {
        if marks[start] != Mark::New {
            continue;
        }
        // The way from the start, each node with the place of its next edge.
        let mut way = vec![(start, 0)];
        marks[start] = Mark::Open;
        while let Some((node, next)) = way.last_mut() {
            let Some((edge, to)) = leaving[*node].get(*next).copied() else {
                marks[*node] = Mark::Done;
                way.pop();
                continue;
            };
            *next += 1;
            match marks[to] {
                Mark::Open => backward[edge] = true,
                Mark::New => {
                    marks[to] = Mark::Open;
                    way.push((to, 0));
                }
                Mark::Done => {}
            }
        }
    }
    backward
}

/// The layer of each vertex: one below the lowest that leads to it.
fn layers(drawing: &Drawing, backward: &[bool]) -> Vec<usize> {
    let forward = || drawing.edges.iter().zip(backward).filter(|(_, back)| !**back).map(|(edge, _)| (edge.from, edge.to));
    let mut waiting: Vec<usize> = vec![0; drawing.vertices.len()];
    forward().for_each(|(_, to)| waiting[to] += 1);
    let mut layers = vec![0; drawing.vertices.len()];
    let mut ready: Vec<usize> = (0..layers.len()).filter(|vertex| waiting[*vertex] == 0).collect();
    while let Some(vertex) = ready.pop() {
        for (_, to) in forward().filter(|(from, _)| *from == vertex) {
            layers[to] = layers[to].max(layers[vertex] + 1);
            waiting[to] -= 1;
            if waiting[to] == 0 {
                ready.push(to);
            }
        }
    }
    layers
}

/// The items that an edge runs through, in its own direction; new ones where it only passes a layer.
fn chain(items: &mut Vec<Item>, from: usize, to: usize, backward: bool) -> Vec<usize> {
    let (top, bottom) = if backward { (to, from) } else { (from, to) };
    let mut chain = vec![top];
    for layer in items[top].layer + 1..items[bottom].layer {
        items.push(Item { layer, width: LANE, x: 0.0, above: Vec::new(), below: Vec::new() });
        chain.push(items.len() - 1);
    }
    if top != bottom {
        chain.push(bottom);
    }
    for pair in chain.windows(2) {
        items[pair[0]].below.push(pair[1]);
        items[pair[1]].above.push(pair[0]);
    }
    if backward {
        chain.reverse();
    }
    chain
}

fn reduce_crossings(items: &mut [Item], order: &mut [Vec<usize>]) {
    let mut places = vec![0.0; items.len()];
    let remember = |places: &mut Vec<f64>, layer: &[usize]| {
        layer.iter().enumerate().for_each(|(place, item)| places[*item] = place as f64 - layer.len() as f64 / 2.0);
    };
    order.iter().for_each(|layer| remember(&mut places, layer));
    for sweep in 0..SWEEPS {
        let down = sweep % 2 == 0;
        let numbers: Vec<usize> = if down { (0..order.len()).collect() } else { (0..order.len()).rev().collect() };
        for number in numbers {
            let mean = |item: &usize| {
                let neighbours = if down { &items[*item].above } else { &items[*item].below };
                let sum: f64 = neighbours.iter().map(|neighbour| places[*neighbour]).sum();
                if neighbours.is_empty() { places[*item] } else { sum / neighbours.len() as f64 }
            };
            let mut keyed: Vec<(f64, usize)> = order[number].iter().map(|item| (mean(item), *item)).collect();
            keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
            order[number] = keyed.into_iter().map(|(_, item)| item).collect();
            remember(&mut places, &order[number]);
        }
    }
}

/// Gives each item its x: first side by side, then pulled towards its neighbours as far as the ones beside it allow.
fn place(items: &mut [Item], order: &[Vec<usize>]) {
    for layer in order {
        let mut x = 0.0;
        for item in layer {
            items[*item].x = x + items[*item].width / 2.0;
            x += items[*item].width + BOX_GAP;
        }
        layer.iter().for_each(|item| items[*item].x -= x / 2.0);
    }
    for sweep in 0..2 * SWEEPS {
        let down = sweep % 2 == 0;
        let layers: Vec<&Vec<usize>> = if down { order.iter().collect() } else { order.iter().rev().collect() };
        for layer in layers {
            let wish = |item: usize| {
                let Item { x, above, below, .. } = &items[item];
                let neighbours: Vec<usize> = above.iter().chain(below).copied().collect();
                let sum: f64 = neighbours.iter().map(|neighbour| items[*neighbour].x).sum();
                if neighbours.is_empty() { *x } else { sum / neighbours.len() as f64 }
            };
            let wishes: Vec<f64> = layer.iter().map(|item| wish(*item)).collect();
            settle(items, layer, &wishes);
        }
    }
}

/// Moves the items of a layer as near to their wishes as possible without changing their order: those that would overlap
/// form a group, which is put where its members want it on average.
fn settle(items: &mut [Item], layer: &[usize], wishes: &[f64]) {
    // First member, number of members, and sum of where each wants the group's first member to be.
    let mut groups: Vec<(usize, usize, f64)> = Vec::new();
    let mut offsets = vec![0.0; layer.len()];
    for place in 1..layer.len() {
        let apart = (items[layer[place - 1]].width + items[layer[place]].width) / 2.0 + BOX_GAP;
        offsets[place] = offsets[place - 1] + apart;
    }
    for place in 0..layer.len() {
        groups.push((place, 1, wishes[place] - offsets[place]));
        while let [.., (_, n, sum), (_, m, next)] = groups.as_slice()
            && sum / *n as f64 > next / *m as f64
        {
            let (n, m, sum) = (*n, *m, sum + next);
            groups.pop();
            if let Some(group) = groups.last_mut() {
                *group = (group.0, n + m, sum);
            }
        }
    }
    for (first, count, sum) in groups {
        for place in first..first + count {
            items[layer[place]].x = sum / count as f64 + offsets[place];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawing::{Edge, Role, Vertex};

    fn drawing(n: usize, edges: &[(usize, usize)]) -> Drawing {
        let vertex = |n: usize| Vertex { name: n.to_string(), note: String::new(), role: Role::Inner, dropped: 0 };
        let edges = edges.iter().map(|(from, to)| Edge { from: *from, to: *to, packets: 0 }).collect();
        Drawing { vertices: (0..n).map(vertex).collect(), edges }
    }

    fn check(drawing: &Drawing) -> Layout {
        let widths: Vec<f64> = (0..drawing.vertices.len()).map(|n| 40.0 + 13.0 * (n % 5) as f64).collect();
        let layout = layout(drawing, &widths);
        for (place, (x, y, width)) in layout.boxes.iter().enumerate() {
            assert!(*x - width / 2.0 >= -0.01 && *x + width / 2.0 <= layout.width + 0.01, "inside");
            for (other_x, other_y, other_width) in &layout.boxes[..place] {
                let apart = (x - other_x).abs() - (width + other_width) / 2.0;
                assert!(y != other_y || apart >= BOX_GAP - 0.01, "boxes overlap");
            }
        }
        for (Edge { from, to, .. }, route) in drawing.edges.iter().zip(&layout.routes) {
            let centre = |n: usize| (layout.boxes[n].0, layout.boxes[n].1);
            assert_eq!((route[0], *route.last().unwrap()), (centre(*from), centre(*to)));
        }
        layout
    }

    #[test]
    fn every_edge_leads_down_unless_it_closes_a_cycle() {
        let layout = check(&drawing(6, &[(0, 1), (1, 2), (0, 2), (2, 3), (3, 1), (2, 4), (5, 4)]));
        let y = |n: usize| layout.boxes[n].1;
        assert!(y(0) < y(1) && y(1) < y(2) && y(2) < y(3) && y(2) < y(4) && y(5) < y(4));
        // 0 -> 2 passes a layer, 3 -> 1 runs up over one.
        assert_eq!((layout.routes[2].len(), layout.routes[4].len()), (3, 3));
    }

    #[test]
    fn crossings_that_need_not_be_are_undone() {
        let layout = check(&drawing(4, &[(0, 3), (1, 2)]));
        let x = |n: usize| layout.boxes[n].0;
        assert_eq!(x(0) < x(1), x(3) < x(2));
    }

    #[test]
    fn a_straight_chain_is_drawn_straight() {
        let layout = check(&drawing(5, &[(0, 1), (1, 2), (2, 3), (3, 4)]));
        let x: Vec<_> = layout.boxes.iter().map(|place| place.0).collect();
        assert!(x.iter().all(|other| (other - x[0]).abs() < 1.0), "{x:?}");
    }

    #[test]
    fn odd_graphs_have_a_layout_too() {
        check(&drawing(0, &[]));
        check(&drawing(1, &[]));
        check(&drawing(1, &[(0, 0)]));
        check(&drawing(2, &[(0, 1), (1, 0), (0, 1)]));
        let mut edges = Vec::new();
        let mut random = 1_u32;
        for _ in 0..150 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            edges.push(((random >> 8) as usize % 40, (random >> 20) as usize % 40));
        }
        check(&drawing(40, &edges));
    }
}
