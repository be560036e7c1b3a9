// Jobs on GPUs over time: a row for each GPU, as wide as the page is.

import { html, svg } from "./elements.js";
import { linear, ticks } from "./scale.js";
import { duration, percent } from "./numbers.js";
import { jobTones, key } from "./tones.js";

// More rows or jobs than anybody reads; the table goes as far.
const MOST_GPUS = 40;
const MOST_JOBS = 1000;

const ROW = 30;
const GAP = 6;
const LEFT = 54;
const FOOT = 26;
const LETTER = 6.8;

// Longer plans are marked in hours.
const LONG_S = 7200;

export function gantt({ schedule, gpus, makespan_s: end }) {
  const runs = schedule.slice(0, MOST_JOBS).filter((run) => run.gpu < MOST_GPUS);
  const rows = Math.min(gpus, MOST_GPUS);
  const names = [...new Set(schedule.map((run) => run.job))];
  const tone = jobTones(names);
  const plot = html("div", { class: "gantt" });
  new ResizeObserver(([{ contentRect }]) => {
    const width = Math.floor(contentRect.width);
    if (width > 0) plot.replaceChildren(draw(runs, rows, end, tone, width));
  }).observe(plot);
  const left = gpus - rows;
  return {
    shown: MOST_JOBS,
    element: html(
      "figure",
      {},
      plot,
      html("ul", { class: "legend" }, names.slice(0, 24).map((job) => html("li", {}, key(tone(job)), job))),
      left > 0 ? html("figcaption", {}, `And ${left} more GPUs.`) : "",
    ),
  };
}

function draw(runs, rows, end, tone, width) {
  const x = linear([0, end], [LEFT, width - 8]);
  const height = rows * (ROW + GAP) + FOOT;
  const steps = hours(end);
  return svg(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `Jobs on ${rows} GPUs over ${duration(end)}. All of them stand in the table below.` },
    steps.map((at) => svg("line", { class: "grid", x1: x(at), x2: x(at), y1: 0, y2: height - FOOT })),
    steps.map((at, i) => svg("text", { x: x(at), y: height - 8, "text-anchor": anchor(i, x(at), width) }, at ? duration(at) : "0")),
    Array.from({ length: rows }, (_, gpu) => svg("text", { x: 0, y: gpu * (ROW + GAP) + ROW / 2 + 4 }, `GPU ${gpu}`)),
    runs.map((run) => bar(run, runs, x, tone)),
  );
}

// Whole at both ends.
function anchor(i, x, width) {
  if (i === 0) return "start";
  return x > width - 4 * LETTER ? "end" : "middle";
}

// About five round times.
function hours(end) {
  const unit = end > LONG_S ? 3600 : 60;
  return ticks(0, end / unit, 5).map((at) => at * unit).filter((at) => at <= end);
}

function bar(run, runs, x, tone) {
  const beside = run.beside !== null && runs.find((other) => other.number === run.beside);
  const below = beside && (beside.start_s < run.start_s || (beside.start_s === run.start_s && beside.number < run.number));
  const height = beside ? ROW / 2 : ROW;
  const y = run.gpu * (ROW + GAP) + (below ? ROW / 2 : 0);
  const wide = Math.max(1, x(run.end_s) - x(run.start_s) - 1);
  const fits = wide > LETTER * run.job.length + 8;
  const share = run.share_percent === 100 ? "the whole GPU" : `${run.share_percent} %`;
  return svg(
    "g",
    {},
    svg("rect", { class: `bar tone-${tone(run.job)}`, x: x(run.start_s), y, width: wide, height: height - 1, rx: 2 }, svg("title", {}, `${run.job} (${run.number}): ${share}, ${percent(run.speed)} of its speed, ${duration(run.start_s)} to ${duration(run.end_s)}`)),
    fits ? svg("text", { class: "on-bar", x: x(run.start_s) + 4, y: y + height / 2 + 3.5 }, run.job) : null,
  );
}
