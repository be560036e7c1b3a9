// The history of a launch as small drawings: its speeds, and its power beside what was predicted.

import { duration, number, percent } from "./numbers.js";
import { sparkline } from "./sparkline.js";
import { jobTones } from "./tones.js";

export function speedStrip(launch, kept) {
  const tone = jobTones(kept.jobs.map(({ job }) => job));
  const lines = kept.jobs.map(({ job, speeds }) => ({ tone: tone(job), values: speeds }));
  const last = kept.jobs.map((job) => `${job.job} ${percent(job.speeds.findLast(Number.isFinite))}`);
  return sparkline(`Speeds over ${span(kept)}, last ${last.join(", ")}`, lines);
}

export function speedText(kept) {
  return reach(kept.jobs.flatMap((job) => job.speeds), (speed) => number(100 * speed), "%") ?? "speeds not known";
}

export function powerStrip(launch, kept) {
  const expected = launch.forecast?.power_w;
  const ranges = expected ? [{ tone: "power", low: expected.low, high: expected.high }] : [];
  return sparkline(`Power over ${span(kept)}: ${powerText(kept)}`, [{ tone: "power", values: kept.power_w }], { ranges });
}

export function powerText(kept) {
  return reach(kept.power_w, (watts) => number(watts), "W") ?? "power not read";
}

function reach(values, text, unit) {
  const known = values.filter(Number.isFinite);
  if (!known.length) return null;
  const [low, high] = [Math.min(...known), Math.max(...known)].map(text);
  return low === high ? `${low} ${unit}` : `${low} to ${high} ${unit}`;
}

// Too short for a line: null.
export function drawable(kept) {
  return kept && kept.power_w.length > 1 ? kept : null;
}

export function span({ power_w: power, step_s: step }) {
  return duration(power.length * step);
}
