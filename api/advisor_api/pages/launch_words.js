// Words for launches.

import { tag } from "./elements.js";
import { number, percent, range, withUnit } from "./numbers.js";

const KINDS = { running: "good", finished: "good", failed: "bad", hung: "bad", "taken-down": "bad" };

export function stateTag(launch) {
  return tag(stateText(launch), launch.silent_s == null ? (KINDS[launch.state] ?? "") : "bad");
}

// The state, with its age where the supervisor is silent.
export function stateText({ state, silent_s }) {
  return silent_s == null ? state : `${state}, not heard of for ${silent_s} s`;
}

export function verdictTag(launch) {
  const found = verdict(launch);
  return found && tag(found.good ? "as predicted" : "missed", found.good ? "good" : "bad", [found.text, found.why].join(" "));
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

export function ratedSpeed(job) {
  return rated(speedOf(job));
}

// On one host no job is faster than alone (beyond 14 % of noise): a higher speed is another host's.
export function rated(speed) {
  return speed > 1.136 ? `${number(speed)}x its profile` : percent(speed);
}

// Whether a speed is below its range, by more than a reading alone could be off.
export function isSlow(speed, { rate, solo_rate: solo }) {
  return speed < (0.97 * rate.low) / solo;
}

// Whether a launch does as was predicted, in words: {good, text, why}; null: nothing can be said yet.
export function verdict({ forecast: f, jobs, power_limit_w: limit, mean_power_w, power_w, mean_energy_saved, energy_saved }) {
  const [watts, saved] = [mean_power_w ?? power_w, mean_energy_saved ?? energy_saved];
  const held = jobs.map((job, n) => ({ job: job.job, speed: job.mean_speed ?? job.relative_speed, expected: f?.jobs[n] }));
  if (!f?.energy_saved || jobs.length !== f.jobs.length || saved == null || held.some(({ speed }) => speed == null)) return null;
  const part = ({ speed, expected: { rate, solo_rate: solo } }) => (speed * solo) / rate.value;
  const worst = held.reduce((least, one) => (part(one) < part(least) ? one : least));
  const slow = held.some(({ speed, expected }) => isSlow(speed, expected));
  const both = `${percent(saved)} of the energy, ${range(f.energy_saved, 100)} % predicted`;
  if (!slow && saved >= f.energy_saved.low) return { good: true, text: `As predicted: no job is slower, and it saves ${both}.` };
  const predicted = percent(worst.expected.rate.value / worst.expected.solo_rate);
  const text = slow ? `Missed: ${worst.job} runs at ${percent(worst.speed)} of its speed, ${predicted} predicted.` : `Missed: it saves ${both}.`;
  return { good: false, text, why: why(worst.job, part(worst), watts, f.power_w, limit) };
}

// What the readings say about a miss.
function why(job, part, watts, expected, limit) {
  if (watts === null) return "Its power was not read, so the cause is not known.";
  if (limit && watts > 0.97 * limit) return `The GPU is at its power limit of ${withUnit(limit, "W")}, so its clock falls.`;
  if (watts > expected.high) return `It draws ${withUnit(watts, "W")}, at most ${withUnit(expected.high, "W")} predicted: together the jobs load the GPU more than alone.`;
  if (part > 0.95) return `It draws ${withUnit(watts, "W")}, ${withUnit(expected.value, "W")} predicted, at the speeds that were predicted.`;
  return `The GPU draws no more than predicted, so it is not short of power. Likely ${job} waits for its host, which is slower than that of its profile: advisor launch --alone measures it there first.`;
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
