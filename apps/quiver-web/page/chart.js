// A small chart of the last minute.

import { s, set } from "./dom.js";
import { KEPT } from "./rates.js";

const WIDTH = 120;
const HEIGHT = 26;

/** A chart of two lines, received and sent. */
export function sparkline(label) {
  const area = s("path", { class: "spark-area" });
  const lines = [s("path", { class: "spark-rx" }), s("path", { class: "spark-tx" })];
  const svg = s("svg", { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label, preserveAspectRatio: "none" },
    area, ...lines);
  const draw = (points) => {
    const most = Math.max(1, ...points.flat());
    const x = (at) => (WIDTH * (at + KEPT - points.length)) / (KEPT - 1);
    const y = (value) => HEIGHT - 2 - (value / most) * (HEIGHT - 4);
    lines.forEach((line, which) => {
      set(line, "d", points.map((point, at) => `${at ? "L" : "M"}${x(at).toFixed(1)} ${y(point[which]).toFixed(1)}`).join(""));
    });
    const rx = lines[0].getAttribute("d");
    set(area, "d", points.length > 1 ? `${rx}L${WIDTH} ${HEIGHT}L${x(0).toFixed(1)} ${HEIGHT}Z` : "");
  };
  return { svg, draw };
}
