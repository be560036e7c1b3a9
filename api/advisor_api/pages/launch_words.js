// Words for launches.

import { tag } from "./elements.js";
import { number, percent } from "./numbers.js";

const KINDS = { running: "good", finished: "good", failed: "bad", hung: "bad", "taken-down": "bad" };

export function stateTag(launch) {
  return tag(stateText(launch), launch.silent_s == null ? (KINDS[launch.state] ?? "") : "bad");
}

// The state, with its age where the supervisor is silent.
export function stateText({ state, silent_s }) {
  return silent_s == null ? state : `${state}, not heard of for ${silent_s} s`;
}

export function outcomeTag({ outcome }) {
  return tag(outcome, KINDS[outcome] ?? "");
}

export function over({ state }) {
  return ["finished", "stopped", "failed"].includes(state);
}

// Over the last seconds; of what is over, the mean of the time together.
export function speedOf(job) {
  return job.relative_speed ?? job.mean_speed;
}

// On one host no job is faster than alone (beyond 14 % of noise): a higher speed is another host's.
export function ratedSpeed(job) {
  return speedOf(job) > 1.136 ? `${number(speedOf(job))}x its profile` : percent(speedOf(job));
}

export function powerOf(launch) {
  return over(launch) ? launch.mean_power_w : launch.power_w;
}

export function savedOf(launch) {
  return over(launch) ? launch.mean_energy_saved : launch.energy_saved;
}

// Names of the jobs, copies counted.
export function countedNames({ jobs }) {
  const counts = new Map();
  for (const { job } of jobs) counts.set(job, (counts.get(job) ?? 0) + 1);
  return [...counts].map(([job, count]) => (count > 1 ? `${count} × ${job}` : job)).join(", ");
}

const WITHOUT_SPLIT = { uncapped: "no limits", "time-sliced": "time-sliced" };

export function splitName({ sharing, jobs }) {
  if (sharing !== "limited" && !jobs.some((job) => job.below_normal)) return WITHOUT_SPLIT[sharing] ?? sharing;
  return jobs.map((job) => `${number(job.share_percent)}${job.below_normal ? ":low" : ""}`).join("/");
}
