// The speed of a job over its share, small enough for a row: its numbers are its label.

import { svg } from "./elements.js";
import { percent } from "./numbers.js";
import { jobTones } from "./tones.js";

const WIDTH = 96;
const HEIGHT = 26;
const EDGE = 3;

// Of a curve of /v1/gains.
export function shareLine({ job, shares, speeds }) {
  const points = shares.map((share, i) => [share, speeds[i]]);
  const said = points.map(([share, speed]) => `${percent(speed)} at ${share}\u00a0%`).join(", ");
  const x = (value) => EDGE + ((WIDTH - 2 * EDGE) * value) / 100;
  const y = (value) => HEIGHT - EDGE - (HEIGHT - 2 * EDGE) * Math.min(value, 1);
  const tone = `tone-${jobTones([job])(job)}`;
  const [last] = points.slice(-1);
  return svg(
    "svg",
    { class: "share-line", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT, role: "img", "aria-label": `Speed of ${job} over its share: ${said}` },
    svg("line", { class: "axis", x1: x(0), x2: x(100), y1: y(0), y2: y(0) }),
    svg("polyline", { class: `line ${tone}`, points: points.map(([a, b]) => `${x(a)},${y(b)}`).join(" ") }),
    last ? svg("circle", { class: `fill ${tone}`, cx: x(last[0]), cy: y(last[1]), r: 2.5 }) : null,
  );
}
