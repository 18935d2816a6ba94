// Counters once a second, while somebody looks; rates are what two readings differ by.

import { get } from "./api.js";

const INTERVAL = 1000;
/** Readings that a small chart shows. */
export const KEPT = 60;

const listeners = new Set();
let paused = false;
let timer = 0;
let last = null;
/** Rates of interfaces, newest last: name, then rx and tx bits a second. */
const history = new Map();

/** Columns of an interface's row. */
export const IF = { rxPackets: 1, rxBytes: 2, txPackets: 3, txBytes: 4, drops: 5, rxMiss: 6, rxError: 7, rxNoBuffer: 8, txError: 9, punt: 10 };

/** Calls a function with each reading; gives a function that ends it. */
export function listen(listener) {
  listeners.add(listener);
  if (last?.sample) listener(last.sample);
  return () => listeners.delete(listener);
}

export const isPaused = () => paused;

export function pause(value) {
  paused = value;
  schedule(0);
}

export const historyOf = (name) => history.get(name) ?? [];

function byName(rows) {
  const all = new Map();
  rows.forEach((row) => all.set(row[0], row));
  return all;
}

/** What a reading says, with the rates since the one before. */
class Sample {
  constructor(now, before) {
    this.now = now;
    this.seconds = before && before.started === now.started ? (now.now_ms - before.now_ms) / 1000 : 0;
    const old = this.seconds > 0 ? before : null;
    this.oldNodes = old ? byName(old.nodes) : new Map();
    this.oldInterfaces = old ? byName(old.interfaces) : new Map();
    this.oldDrops = new Map((old?.drops ?? []).map((row) => [`${row[0]}\n${row[1]}`, row[2]]));
    this.oldThreads = old?.threads ?? [];
  }

  /** A counter's rate; a router that was started anew counts from zero. */
  rate(row, old, column) {
    return this.seconds > 0 ? Math.max(0, row[column] - (old?.[column] ?? 0)) / this.seconds : 0;
  }

  node(row) {
    const old = this.oldNodes.get(row[0]);
    const delta = (column) => Math.max(0, row[column] - (old?.[column] ?? 0));
    const [calls, vectors, clocks] = old || this.seconds > 0 ? [delta(1), delta(2), delta(3)] : [row[1], row[2], row[3]];
    return { packetRate: this.rate(row, old, 2), clockRate: this.rate(row, old, 3), calls, vectors, clocks };
  }

  interface(row, column) {
    return this.rate(row, this.oldInterfaces.get(row[0]), column);
  }

  drop(row) {
    const old = this.oldDrops.get(`${row[0]}\n${row[1]}`) ?? 0;
    return this.seconds > 0 ? Math.max(0, row[2] - old) / this.seconds : 0;
  }
}

async function read() {
  let sample = null;
  let error = null;
  try {
    const now = await get("live");
    sample = new Sample(now, last?.now);
    last = { now, sample };
    if (sample.seconds > 0) {
      const seen = new Set();
      for (const row of now.interfaces) {
        seen.add(row[0]);
        const points = history.get(row[0]) ?? [];
        points.push([sample.interface(row, IF.rxBytes) * 8, sample.interface(row, IF.txBytes) * 8]);
        if (points.length > KEPT) points.shift();
        history.set(row[0], points);
      }
      for (const name of history.keys()) if (!seen.has(name)) history.delete(name);
    }
  } catch (caught) {
    error = caught;
  }
  document.dispatchEvent(new CustomEvent("quiver-state", { detail: error }));
  if (sample) listeners.forEach((listener) => listener(sample));
}

function schedule(delay) {
  clearTimeout(timer);
  if (paused || document.hidden) return;
  timer = setTimeout(async () => {
    await read();
    schedule(INTERVAL);
  }, delay);
}

/** Begins; nothing is read while the page is hidden. */
export function start() {
  document.addEventListener("visibilitychange", () => schedule(0));
  schedule(0);
}
