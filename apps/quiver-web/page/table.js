// A table that stays quick with thousands of rows: one page of them is drawn, the rest is filtered and sorted as data.

import { h, set, setText } from "./dom.js";
import { whole } from "./format.js";

const PAGE = 50;

/**
 * A table. Columns: `{ key, title, text(row), value(row), class, make(row), update(cell, row) }`: `text` is what is shown and searched,
 * `value` what is sorted by; `make` fills a cell once, `update` at every change. `key(row)` tells rows apart.
 */
export class Table {
  constructor({ caption, columns, key, filter = "", sort = null, empty = "nothing to show" }) {
    Object.assign(this, { columns, key, empty });
    this.rows = [];
    this.page = 0;
    this.sort = sort ?? { key: columns[0].key, down: false };
    this.drawn = new Map();
    this.input = h("input", { type: "search", class: "filter", "aria-label": `Filter: ${caption}`, placeholder: "Filter  ( / )", value: filter, input: () => { this.page = 0; this.draw(); } });
    this.heads = columns.map((column) => {
      const button = column.plain ? column.title : h("button", { type: "button", class: "sort", click: () => this.sortBy(column.key) }, column.title);
      return h("th", { scope: "col", class: column.class }, button);
    });
    this.body = h("tbody");
    this.count = h("span", { class: "count", role: "status" });
    const step = (title, by) => h("button", { type: "button", "aria-label": title, click: () => { this.page += by; this.draw(); } }, by < 0 ? "‹" : "›");
    this.previous = step("Previous page", -1);
    this.next = step("Next page", 1);
    this.where = h("span", { class: "where" });
    const pager = h("div", { class: "pager" }, this.previous, this.where, this.next);
    this.pager = pager;
    this.tools = h("div", { class: "tools" }, this.input, this.count, pager);
    const table = h("table", {}, h("caption", { class: "hidden" }, caption), h("thead", {}, h("tr", {}, this.heads)), this.body);
    this.element = h("div", { class: "table" }, this.tools, h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, table));
  }

  sortBy(key) {
    this.sort = { key, down: this.sort.key === key ? !this.sort.down : this.columns.find((column) => column.key === key).class === "number" };
    this.draw();
  }

  update(rows) {
    this.rows = rows;
    this.draw();
  }

  /** The rows that the filter leaves, in order. */
  chosen() {
    const words = this.input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const textOf = (row) => this.columns.map((column) => (column.text ? column.text(row) : "")).join(" ").toLowerCase();
    const rows = words.length ? this.rows.filter((row) => { const text = textOf(row); return words.every((word) => text.includes(word)); }) : [...this.rows];
    const column = this.columns.find((one) => one.key === this.sort.key);
    const value = column.value ?? column.text;
    const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
    const sign = this.sort.down ? -1 : 1;
    return rows.sort((a, b) => sign * compare(value(a), value(b)) || compare(this.key(a), this.key(b)));
  }

  draw() {
    const rows = this.chosen();
    const pages = Math.max(1, Math.ceil(rows.length / PAGE));
    this.page = Math.min(Math.max(0, this.page), pages - 1);
    this.columns.forEach((column, at) => {
      const order = this.sort.key !== column.key ? "none" : this.sort.down ? "descending" : "ascending";
      if (!column.plain) set(this.heads[at], "aria-sort", order);
    });
    const all = rows.length === this.rows.length ? whole(rows.length) : `${whole(rows.length)} of ${whole(this.rows.length)}`;
    setText(this.count, `${all} ${rows.length === 1 && all === "1" ? "row" : "rows"}`);
    setText(this.where, `${this.page + 1} / ${pages}`);
    this.pager.hidden = pages < 2;
    this.previous.disabled = this.page === 0;
    this.next.disabled = this.page === pages - 1;
    const shown = rows.slice(this.page * PAGE, (this.page + 1) * PAGE);
    const drawn = new Map();
    const elements = shown.map((row) => {
      const key = this.key(row);
      const known = this.drawn.get(key) ?? this.make(row);
      drawn.set(key, known);
      this.columns.forEach((column, at) => {
        const cell = known.cells[at];
        if (column.update) column.update(cell, row);
        else if (!column.make) setText(cell, column.text(row));
      });
      return known.element;
    });
    this.drawn = drawn;
    if (!elements.length) elements.push(h("tr", {}, h("td", { class: "none", colspan: this.columns.length }, this.rows.length ? "no row matches the filter" : this.empty)));
    const same = elements.length === this.body.children.length && elements.every((element, at) => element === this.body.children[at]);
    if (!same) this.replace(elements);
  }

  /** Puts other rows into the body; the focus stays where it was. */
  replace(elements) {
    const focused = document.activeElement;
    this.body.replaceChildren(...elements);
    if (focused && focused !== document.activeElement && this.body.contains(focused)) focused.focus();
  }

  make(row) {
    const cells = this.columns.map((column, at) => {
      const cell = h(at === 0 ? "th" : "td", { class: column.class, scope: at === 0 ? "row" : undefined });
      if (column.make) cell.append(column.make(row));
      return cell;
    });
    return { element: h("tr", {}, cells), cells };
  }
}
