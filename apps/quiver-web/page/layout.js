// Where the nodes of a graph stand: in layers, each below those it gets packets from.

const GAP_X = 26;
const GAP_Y = 46;
export const BOX = { width: 172, height: 50 };

/** Edges without those that would close a circle, found depth first from the busiest nodes. */
function withoutCircles(names, next) {
  const state = new Map();
  const kept = [];
  const visit = (from) => {
    // By hand and not by calls: a path may be long.
    const stack = [[from, 0]];
    state.set(from, 1);
    while (stack.length) {
      const top = stack[stack.length - 1];
      const to = (next.get(top[0]) ?? [])[top[1]++];
      if (to === undefined) {
        state.set(top[0], 2);
        stack.pop();
      } else if (state.get(to) !== 1) {
        kept.push([top[0], to]);
        if (!state.has(to)) {
          state.set(to, 1);
          stack.push([to, 0]);
        }
      }
    }
  };
  names.forEach((name) => { if (!state.has(name)) visit(name); });
  return kept;
}

/** The layer of each node: one more than the deepest that sends to it. */
function layersOf(names, edges) {
  const layer = new Map(names.map((name) => [name, 0]));
  for (let round = 0; round < names.length; round++) {
    let moved = false;
    for (const [from, to] of edges) {
      if (layer.get(to) <= layer.get(from)) {
        layer.set(to, layer.get(from) + 1);
        moved = true;
      }
    }
    if (!moved) break;
  }
  return layer;
}

/**
 * Places nodes. `names` in order of importance, sources first; `edges` are pairs of names. Gives `{ width, height, at }`, where `at` maps a
 * name to the middle of its box.
 */
export function place(names, edges) {
  const known = new Set(names);
  const next = new Map();
  for (const [from, to] of edges) {
    if (from === to || !known.has(from) || !known.has(to)) continue;
    next.set(from, [...(next.get(from) ?? []), to]);
  }
  const forward = withoutCircles(names, next);
  const layer = layersOf(names, forward);
  // Sources without neighbours above stand right above what they feed.
  for (const name of names) {
    const below = forward.filter(([from]) => from === name).map(([, to]) => layer.get(to));
    if (below.length && !forward.some(([, to]) => to === name)) layer.set(name, Math.min(...below) - 1);
  }
  const rows = [];
  names.forEach((name) => (rows[layer.get(name)] ??= []).push(name));
  const filled = rows.filter(Boolean);
  order(filled, forward);
  return coordinates(filled, forward);
}

/** Puts the nodes of a layer in the order of their neighbours, a few times down and up. */
function order(rows, edges) {
  const position = new Map();
  const number = () => rows.forEach((row) => row.forEach((name, at) => position.set(name, at - (row.length - 1) / 2)));
  number();
  for (let round = 0; round < 8; round++) {
    const isDown = round % 2 === 0;
    for (const row of isDown ? rows : [...rows].reverse()) {
      const wish = new Map(row.map((name) => {
        const near = edges.filter(([from, to]) => (isDown ? to : from) === name).map(([from, to]) => position.get(isDown ? from : to));
        return [name, near.length ? near.reduce((sum, one) => sum + one, 0) / near.length : position.get(name)];
      }));
      row.sort((a, b) => wish.get(a) - wish.get(b));
      row.forEach((name, at) => position.set(name, at - (row.length - 1) / 2));
    }
  }
}

function coordinates(rows, edges) {
  const stepX = BOX.width + GAP_X;
  const x = new Map();
  rows.forEach((row) => row.forEach((name, at) => x.set(name, (at - (row.length - 1) / 2) * stepX)));
  // Each node moves towards its neighbours as far as the row lets it.
  for (let round = 0; round < 12; round++) {
    for (const row of round % 2 ? [...rows].reverse() : rows) {
      row.forEach((name, at) => {
        const near = edges.flatMap(([from, to]) => (from === name ? [x.get(to)] : to === name ? [x.get(from)] : []));
        if (!near.length) return;
        const wish = near.reduce((sum, one) => sum + one, 0) / near.length;
        const least = at > 0 ? x.get(row[at - 1]) + stepX : -Infinity;
        const most = at < row.length - 1 ? x.get(row[at + 1]) - stepX : Infinity;
        x.set(name, Math.min(Math.max(wish, least), Math.max(least, most)));
      });
    }
  }
  const left = Math.min(...x.values()) - BOX.width / 2;
  const right = Math.max(...x.values()) + BOX.width / 2;
  const at = new Map();
  rows.forEach((row, layer) => row.forEach((name) => {
    at.set(name, { x: x.get(name) - left, y: layer * (BOX.height + GAP_Y) + BOX.height / 2 });
  }));
  return { width: right - left, height: rows.length * (BOX.height + GAP_Y) - GAP_Y, at };
}
