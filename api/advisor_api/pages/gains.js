// What pairs of jobs gain on a GPU model: the columns of /v1/gains, taken apart into pairs.

import { address, html } from "./elements.js";
import { percent } from "./numbers.js";
import { post } from "./service.js";

// Of several GPU models the one that the service takes where nothing else is said.
export const BUNDLED_MODEL = "NVIDIA H200";

// The answer, with its pairs as {a, b, verdict, split, time, energy, speeds}.
export async function askGains(question, signal) {
  const found = await post("/v1/gains", question, signal);
  return { ...found, pairs: names(found).map(([a, b], i) => pair(found, a, b, i)) };
}

function names({ beside, jobs }) {
  const all = jobs.map((one) => one.job);
  return beside ? all.map((job) => [beside, job]) : all.flatMap((a, i) => all.slice(i).map((b) => [a, b]));
}

function pair(found, a, b, i) {
  return { a, b, verdict: found.verdicts[i], split: found.splits[i], time: found.gpu_time_saved[i], energy: found.energy_saved[i], speeds: found.speeds[i] };
}

// The pairs of a job that are to share or could, seen from it: the other is `partner`. As the
// command line does: those that are to share first, then by the GPU hours saved.
export function partnersOf(job, pairs) {
  return pairs
    .filter((one) => (one.a === job || one.b === job) && one.split !== null)
    .map((one) => (one.a === job ? { ...one, partner: one.b } : { ...one, partner: one.a, speeds: one.speeds.toReversed() }))
    .sort((p, q) => (q.verdict === "share") - (p.verdict === "share") || q.time - p.time);
}

// GPU models of rows, that with most jobs measured here first, then the bundled one.
export function gpuModels(rows) {
  const models = [...new Set(rows.map((row) => row.gpu_model).filter(Boolean))];
  const own = (model) => rows.filter((row) => row.gpu_model === model && row.source === "stored").length;
  return models.sort((p, q) => own(q) - own(p) || (q === BUNDLED_MODEL) - (p === BUNDLED_MODEL));
}

// How much of a card a job needs, in words.
export function fillsText({ size }) {
  return size ? `${size.share_percent}\u00a0% is enough` : "fills it";
}

// Where jobs are seen together.
export function setAddress(jobs, gpu) {
  return address("/set", { jobs: jobs.join("+"), gpu });
}

export function setLink(text, jobs, gpu) {
  return html("a", { href: setAddress(jobs, gpu) }, text);
}

export function saved(part) {
  return `${percent(Math.abs(part))} ${part < 0 ? "more" : "less"}`;
}
