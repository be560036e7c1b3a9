// Elements of HTML and SVG. Text goes in as text, never as markup: names of jobs and messages come
// from elsewhere.

const SVG = "http://www.w3.org/2000/svg";

// An element with attributes and children; handlers are attributes that start with "on". A value
// of null, undefined or false leaves the attribute out.
export function html(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

// The same for SVG.
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

// A number and its unit stay on one line, but not in what is copied.
const UNIT = /(\d) (?=(%|W|k?Wh|k?J|ms|s|min|h|d|SMs?|MiB|GiB|points?|GPUs?)(?![\w/]))/g;

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  const kept = children.flat(Infinity).filter((child) => child !== null && child !== undefined);
  const whole = (child) => (typeof child === "string" && !/code|pre|textarea/i.test(element.tagName) ? child.replace(UNIT, "$1\u00a0") : child);
  element.append(...kept.map(whole));
  return element;
}

// A label with its control.
export function field(text, control, hint) {
  control.id ||= `field-${text.toLowerCase().match(/[a-z0-9]+/g).join("-")}`;
  return html("div", { class: "field" }, html("label", { for: control.id }, text), control, hint ?? null);
}

// A choice; options are [value, text].
export function select(options, chosen, onchange) {
  const made = options.map(([value, text]) =>
    html("option", { value, selected: value === chosen }, text),
  );
  return html("select", { onchange: (event) => onchange(event.target.value) }, made);
}

// A table that scrolls in itself. Columns are {name, cell, number?}; cell makes a cell's content of
// a row. The first column heads its row. `rowClass` names the class of a row.
export function table(caption, columns, rows, { stacked = false, rowClass = () => null } = {}) {
  const cell = (row) => (column, i) =>
    html(
      i === 0 ? "th" : "td",
      { scope: i === 0 ? "row" : null, class: column.number ? "number" : null, "data-label": i === 0 ? null : column.name },
      column.cell(row) ?? "",
    );
  const heads = columns.map((column) =>
    // One without a name heads nothing.
    html(column.name ? "th" : "td", { scope: column.name ? "col" : null, class: column.number ? "number" : null }, column.name),
  );
  const made = html(
    "table",
    { class: stacked ? "stacked" : null, "aria-label": caption },
    html("thead", {}, html("tr", {}, heads)),
    html("tbody", {}, rows.map((row) => html("tr", { class: rowClass(row) }, columns.map(cell(row))))),
  );
  // A region that scrolls must be reached by keyboard.
  return html("div", { class: "wide", tabindex: "0", role: "region", "aria-label": caption }, made);
}

// Facts as small blocks; each is [name, value, remark?].
export function facts(items) {
  const known = items.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return html(
    "dl",
    { class: "facts" },
    known.map(([name, value, remark]) =>
      html("div", {}, html("dt", {}, name), html("dd", {}, value, remark ? html("small", {}, remark) : null)),
    ),
  );
}

export function notice(kind, ...lines) {
  const role = kind === "failed" ? "alert" : "status";
  return html("div", { class: `notice ${kind}`, role }, lines.map((line) => html("p", {}, line)));
}

export function sentences(lines) {
  return html("ul", { class: "plain" }, lines.map((line) => html("li", {}, line)));
}

export function tag(text, kind = "", meaning = null) {
  return html("span", { class: `tag ${kind}`, title: meaning }, text);
}

export function link(text, path, query = {}) {
  return html("a", { href: address(path, query) }, text);
}

// A path with a query; empty values are left out.
export function address(path, query) {
  const kept = Object.entries(query).filter(([, v]) => v !== null && v !== undefined && v !== "");
  return kept.length ? `${path}?${new URLSearchParams(kept)}` : path;
}
