// A small drawing of values over equal steps of time; what it says stands beside it as text.

import { svg } from "./elements.js";

const WIDTH = 240;
const HEIGHT = 48;
const EDGE = 3;

// Lines are [{tone, values}]; null is a gap. The values lie between `low` and `high`, or what they
// reach of it with a tenth around them: what hardly moves is not drawn as if it did.
export function sparkline(label, lines, { low = null, high = null, ranges = [] } = {}) {
  const known = lines.flatMap(({ values }) => values).filter(Number.isFinite);
  const all = known.concat(ranges.flatMap((range) => [range.low, range.high]));
  if (!all.length) return svg("svg", { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, "aria-hidden": "true" });
  const from = low ?? 0.9 * Math.min(...all);
  const to = high ?? 1.1 * Math.max(...all, 1e-9);
  const y = (value) => EDGE + (HEIGHT - 2 * EDGE) * (1 - (value - from) / (to - from || 1));
  const count = Math.max(2, ...lines.map(({ values }) => values.length));
  const x = (n) => (n * WIDTH) / (count - 1);
  return svg(
    "svg",
    { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    ranges.map(({ tone, low: least, high: most }) =>
      svg("rect", { class: `band tone-${tone}`, x: 0, width: WIDTH, y: y(most), height: Math.max(1, y(least) - y(most)) }),
    ),
    lines.flatMap(({ tone, values }) =>
      pieces(values).map((piece) =>
        svg("polyline", { class: `line tone-${tone}`, points: piece.map(([n, value]) => `${x(n).toFixed(1)},${y(value).toFixed(1)}`).join(" ") }),
      ),
    ),
  );
}

// Runs of values without a gap, each as [place, value].
function pieces(values) {
  const found = [[]];
  values.forEach((value, n) => {
    if (Number.isFinite(value)) found.at(-1).push([n, value]);
    else if (found.at(-1).length) found.push([]);
  });
  return found.filter((piece) => piece.length).map((piece) => (piece.length > 1 ? piece : [piece[0], [piece[0][0] + 0.5, piece[0][1]]]));
}
