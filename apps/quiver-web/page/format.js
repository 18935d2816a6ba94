// Numbers as people read them.

const STEPS = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

/** A number in three or four digits: 12.3 k. */
export function short(value, unit = "") {
  if (!Number.isFinite(value)) return "–";
  for (const [step, letter] of STEPS) {
    if (Math.abs(value) >= step * 0.9995) return `${digits(value / step)} ${letter}${unit}`;
  }
  return unit ? `${digits(value)} ${unit}` : digits(value);
}

function digits(value) {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 100 || Number.isInteger(value)) return value.toFixed(0);
  return value.toFixed(size >= 10 ? 1 : 2);
}

/** A whole number with its thousands apart. */
export const whole = (value) => Number(value ?? 0).toLocaleString("en-US");

/** Bytes a second as bits a second. */
export const bits = (bytes) => short(bytes * 8, "b/s");

/** Packets a second. */
export const packets = (value) => short(value, "p/s");

/** A duration since a Unix time, or of seconds. */
export function duration(seconds) {
  if (!Number.isFinite(seconds) || seconds < 0) return "–";
  const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const at = parts.findIndex(([length]) => seconds >= length);
  if (at < 0) return "0 s";
  const [length, unit] = parts[at];
  const rest = parts[at + 1] && Math.floor((seconds % length) / parts[at + 1][0]);
  return `${Math.floor(seconds / length)} ${unit}${rest ? ` ${rest} ${parts[at + 1][1]}` : ""}`;
}

/** A point in time, of milliseconds. */
export const time = (milliseconds) => new Date(milliseconds).toISOString().replace("T", " ").slice(0, 19);
