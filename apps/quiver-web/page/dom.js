// Elements are made here and nowhere else. Text of the router becomes text, never markup: names, tags and comments are written by others.

const SVG = "http://www.w3.org/2000/svg";

function build(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== undefined && child !== null && child !== false));
  return element;
}

/** An HTML element: a function among the attributes listens to the event of that name. */
export const h = (name, attributes, ...children) => build(document.createElement(name), attributes, children);

/** An SVG element. */
export const s = (name, attributes, ...children) => build(document.createElementNS(SVG, name), attributes, children);

/** Puts other children into an element. */
export const fill = (element, ...children) => { element.replaceChildren(); return build(element, {}, children); };

/** Changes a text only where it differs, so that nothing is drawn or read out again. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Sets an attribute only where it differs. */
export function set(element, name, value) {
  if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

/** A card with a heading. */
export const card = (title, ...children) => h("section", { class: "card" }, title && h("h2", {}, title), ...children);

/** A figure with its name. */
export function figure(name, help) {
  const value = h("dd", {}, "–");
  const element = h("div", { class: "figure", title: help }, h("dt", {}, name), value);
  return { element, set: (text) => setText(value, text) };
}

/** A message: something is missing, or an error. */
export const note = (text, kind = "") => h("p", { class: `note ${kind}`, role: kind === "bad" ? "alert" : undefined }, text);

/** A word in a coloured box. */
export const badge = (text, kind = "") => h("span", { class: `badge ${kind}` }, text);
