// How much of the best measured split the model's choices reach, job by job.

import { html, svg, table, tag } from "./elements.js";
import { number } from "./numbers.js";

// What the evaluation of a model is judged by.
const JUDGED = "energy-efficiency";

const WIDTH = 320;

export function jobFractions(jobs) {
  const rows = jobs
    .filter(({ bars }) => bars[JUDGED])
    .map((job) => ({ ...job, bar: job.bars[JUDGED] }))
    .sort((p, q) => q.bar.fraction_percent - p.bar.fraction_percent);
  const least = Math.min(...rows.flatMap(({ bar }) => [bar.fraction_percent, bar.equal_percent]));
  const from = Math.max(0, Math.floor(least / 10) * 10);
  // Halves may beat the best split, as they need not keep every limit.
  const to = Math.max(100, ...rows.map(({ bar }) => Math.ceil(bar.equal_percent / 10) * 10));
  const columns = [
    { name: "Job", cell: (r) => [r.job, " ", r.launch_bound ? tag("launch-bound", "", "It keeps the GPU waiting when it is alone") : null] },
    { name: "GPU model", cell: (r) => r.gpu_model },
    { name: "Of the best split, %", number: true, cell: (r) => number(r.bar.fraction_percent) },
    { name: "50/50, %", number: true, cell: (r) => number(r.bar.equal_percent) },
    { name: `${from} to ${to} %`, cell: (r) => marks(r.bar, from, to) },
    { name: "Its speed is off by, %", number: true, cell: (r) => (r.own ? number(r.own.mean_percent) : "") },
    { name: "Power is off by, %", number: true, cell: (r) => (r.power ? number(r.power.mean_percent) : "") },
  ];
  return [
    html("p", { class: "quiet-text" }, "Work per joule at the split that the model chose (full mark) and at 50/50 (hollow mark), where the best of the measured splits is 100 %; mean of all pairs with the job."),
    table("Job by job", columns, rows, { stacked: true }),
  ];
}

function marks(bar, from, to) {
  const x = (value) => 6 + ((value - from) / (to - from)) * (WIDTH - 12);
  return svg(
    "svg",
    { class: "dumbbell", height: 16, viewBox: `0 0 ${WIDTH} 16`, "aria-hidden": "true" },
    svg("line", { class: "grid", x1: 6, x2: WIDTH - 6, y1: 8, y2: 8 }),
    svg("line", { class: "whisker tone-c", x1: x(bar.equal_percent), x2: x(bar.fraction_percent), y1: 8, y2: 8 }),
    svg("circle", { class: "measured tone-c", cx: x(bar.equal_percent), cy: 8, r: 4 }),
    svg("circle", { class: "fill tone-c", cx: x(bar.fraction_percent), cy: 8, r: 4.5 }),
  );
}
