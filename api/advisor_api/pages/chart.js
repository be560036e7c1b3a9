// A line chart in SVG: values over a number, with ranges, measured points, and labels beside the
// lines. It is drawn at the width that it has, so that its text stays readable on a phone.
//
// spec: title, unit, alt, x {label, domain, ticks}, slots [{key, label}], fromZero,
//   series [{name, tone, square, points [{x, y, low, high, key}], apart [the same, off the line], slots {key: {y, low, high}}, dots, line}],
//   measured [{x | slot, y, tone, square}], errors [{x, low, high, tone}], best {x | slot}, limit {y, label},
//   now {x | slot, key},
//   nowText (value => text), onpick (spot => ...)

import { html, svg } from "./elements.js";
import { place } from "./layout.js";

// The figure; `now` moves what marks the chosen place, `show` draws other values.
export function chart(spec) {
  const plot = html("div", { class: spec.onpick ? "plot movable" : "plot" });
  const title = html("h3", {}, spec.title, " ", spec.unit ? html("small", {}, spec.unit) : null);
  const figure = html("figure", {}, title, plot);
  if (spec.caption) figure.append(html("figcaption", {}, spec.caption));
  const state = { spec, layout: null, front: null };
  new ResizeObserver(([entry]) => {
    const width = Math.floor(entry.contentRect.width);
    if (width > 0 && width !== state.layout?.width) draw(state, plot, width);
  }).observe(plot);
  return {
    figure,
    now: (spot) => {
      state.spec.now = spot;
      drawNow(state);
    },
    show: (values) => {
      Object.assign(state.spec, values);
      if (state.layout) draw(state, plot, state.layout.width);
    },
  };
}

function draw(state, plot, width) {
  const { spec } = state;
  const layout = place(spec, width);
  const { height } = layout;
  state.layout = layout;
  state.front = svg("g");
  const attributes = { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": alt(spec) };
  const drawing = svg("svg", attributes, axes(spec, layout));
  for (const line of spec.series) drawing.append(...band(line, layout));
  drawing.append(...marks(spec, layout));
  for (const line of spec.series) drawing.append(...curve(line, layout));
  drawing.append(...(spec.errors ?? []).map((bar) => whisker(bar.tone, layout.x(bar.x), bar, layout)));
  drawing.append(...(spec.measured ?? []).map((spot) => measured(spot, layout)));
  drawing.append(...names(spec, layout), state.front);
  if (spec.onpick) drawing.addEventListener("pointerdown", (event) => drag(state, drawing, event));
  plot.replaceChildren(drawing);
  drawNow(state);
}

function alt(spec) {
  return `${spec.title}${spec.unit ? `, ${spec.unit}` : ""}, over ${spec.x.label}. ${spec.alt ?? "The numbers are in the table."}`;
}

function axes(spec, l) {
  const end = l.width - 14;
  const parts = l.levels.flatMap(({ level, text }, i) => [
    svg("line", { class: i ? "grid" : "axis", x1: l.left, x2: end, y1: l.y(level), y2: l.y(level) }),
    svg("text", { x: l.left - 6, y: l.y(level) + 4, "text-anchor": "end" }, text),
  ]);
  // The last one would touch the name of the first slot.
  const fits = (i) => !l.narrow || (i % 2 === 0 && !(l.slots.length && i === spec.x.ticks.length - 1));
  const shown = spec.x.ticks.filter((_, i) => fits(i));
  parts.push(...shown.map((tick) => svg("text", { x: l.x(tick), y: l.bottom + 16, "text-anchor": l.x(tick) > l.width - 24 ? "end" : "middle" }, spec.x.text?.(tick) ?? tick)));
  const under = l.narrow ? { x: l.left, "text-anchor": "start" } : { x: (l.left + l.right) / 2, "text-anchor": "middle" };
  parts.push(svg("text", { ...under, y: l.bottom + 37 }, spec.x.label));
  if (l.slots.length) {
    parts.push(svg("line", { class: "grid", x1: l.right, x2: l.right, y1: l.top, y2: l.bottom }));
  }
  // On a narrow chart the words do not fit side by side.
  const low = (i) => l.bottom + (l.narrow && i % 2 ? 30 : 16);
  return parts.concat(l.slots.map((s, i) => svg("text", { x: l.slot(s.key), y: low(i), "text-anchor": "middle" }, s.label)));
}

function band(line, l) {
  const known = line.points.filter((p) => p.low !== undefined && p.high !== undefined);
  if (known.length < 2) return [];
  const upper = known.map((p) => `${l.x(p.x)},${l.y(p.high)}`);
  const lower = known.map((p) => `${l.x(p.x)},${l.y(p.low)}`).reverse();
  return [svg("polygon", { class: `band tone-${line.tone}`, points: [...upper, ...lower].join(" ") })];
}

function curve(line, l) {
  const parts = [];
  if (line.line !== false && line.points.length > 1) {
    const points = line.points.map((p) => `${l.x(p.x)},${l.y(p.y)}`).join(" ");
    parts.push(svg("polyline", { class: `line tone-${line.tone}`, points }));
  }
  if (line.dots !== false && line.points.length <= 24) {
    parts.push(...line.points.map((p) => dot(line, l.x(p.x), l.y(p.y))));
  }
  for (const spot of line.apart ?? []) {
    if (spot.low !== undefined) parts.push(whisker(line.tone, l.x(spot.x), spot, l));
    parts.push(dot(line, l.x(spot.x), l.y(spot.y)));
  }
  for (const [key, value] of Object.entries(line.slots ?? {})) {
    const x = l.slot(key);
    if (value.low !== undefined && value.high !== value.low) parts.push(whisker(line.tone, x, value, l));
    parts.push(dot(line, x, l.y(value.y)));
  }
  return parts;
}

function whisker(tone, x, { low, high }, l) {
  return svg("line", { class: `whisker tone-${tone}`, x1: x, x2: x, y1: l.y(low), y2: l.y(high) });
}

// Not by colour alone: the first job has round marks, the second square ones.
function dot({ tone, square }, x, y) {
  const look = `dot fill halo tone-${tone}`;
  if (square) return svg("rect", { class: look, x: x - 3.5, y: y - 3.5, width: 7, height: 7 });
  return svg("circle", { class: look, cx: x, cy: y, r: 4 });
}

function measured(spot, l) {
  const [x, y] = [l.at(spot), l.y(spot.y)];
  const look = `measured tone-${spot.tone}`;
  if (spot.square) return svg("rect", { class: look, x: x - 4, y: y - 4, width: 8, height: 8 });
  return svg("circle", { class: look, cx: x, cy: y, r: 4.5 });
}

function marks(spec, l) {
  const parts = [];
  if (spec.limit) {
    const y = l.y(spec.limit.y);
    parts.push(svg("line", { class: "limit", x1: l.left, x2: l.width - 14, y1: y, y2: y }), svg("text", { x: l.left + 4, y: y - 4 }, spec.limit.label));
  }
  if (spec.best) {
    const x = l.at(spec.best);
    const anchor = x > l.width - 40 ? "end" : "middle";
    parts.push(
      svg("line", { class: "best", x1: x, x2: x, y1: l.top, y2: l.bottom }),
      svg("text", { class: "text-best", x, y: l.top - 8, "text-anchor": anchor }, "best"),
    );
  }
  return parts;
}

// Each line's name beside the line, on the side where the lines are farther apart; not at the very
// end, where the chosen split often is.
function names(spec, l) {
  const named = spec.series.filter((line) => line.name && line.points.length);
  if (!named.length) return [];
  const at = (line, part) => line.points[Math.round(part * (line.points.length - 1))];
  const gap = (part) => Math.abs(at(named[0], part).y - at(named.at(-1), part).y);
  const side = gap(0.15) >= gap(0.85) ? 0.15 : 0.85;
  const sorted = [...named].sort((p, q) => at(q, side).y - at(p, side).y);
  let last = -Infinity;
  return sorted.map((line, i) => {
    const { x, y } = at(line, side);
    const above = i === 0;
    // Below the line only where there is room above the axis.
    const height = above || l.y(y) > l.bottom - 26 ? -10 : 20;
    const left = l.x(x) < (l.left + l.right) / 2;
    const spot = { "text-anchor": left ? "start" : "end", x: l.x(x) + (left ? -4 : 4), y: Math.max(l.y(y) + height, l.top + 4, last + 14) };
    last = spot.y;
    return svg("text", { class: `label tone-${line.tone}`, ...spot }, line.name);
  });
}

function drawNow({ spec, layout: l, front }) {
  if (!l) return;
  front.replaceChildren();
  if (!spec.now) return;
  const x = l.at(spec.now);
  front.append(svg("line", { class: "now", x1: x, x2: x, y1: l.top, y2: l.bottom }));
  const left = x > l.width - 70;
  for (const line of spec.series) {
    const value = valueAt(line, spec.now);
    if (!value) continue;
    const y = l.y(value.y);
    const side = { x: x + (left ? -9 : 9), y: y + 4, "text-anchor": left ? "end" : "start" };
    front.append(
      svg("circle", { class: `now-dot tone-${line.tone}`, cx: x, cy: y, r: 5 }),
      svg("text", { class: "label text-now", ...side }, spec.nowText(value.y)),
    );
  }
}

function valueAt(line, spot) {
  if (spot.slot) return line.slots?.[spot.slot];
  return [...line.points, ...(line.apart ?? [])].find((p) => p.key === spot.key && p.x === spot.x);
}

function drag(state, drawing, event) {
  const pick = ({ clientX, clientY }) => {
    const { layout: l, spec } = state;
    const box = drawing.getBoundingClientRect();
    const x = clientX - box.left;
    const near = l.slots.find((s) => Math.abs(x - l.slot(s.key)) < 22);
    if (near) spec.onpick({ slot: near.key });
    else if (x < l.right) spec.onpick({ x: l.x.invert(x), y: l.valueAt(clientY - box.top) });
  };
  drawing.setPointerCapture(event.pointerId);
  drawing.addEventListener("pointermove", pick);
  const end = () => drawing.removeEventListener("pointermove", pick);
  drawing.addEventListener("pointerup", end, { once: true });
  drawing.addEventListener("pointercancel", end, { once: true });
  pick(event);
}
