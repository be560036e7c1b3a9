// One GPU: its jobs with their shares and speeds, its power, and since when.

import { html, link, svg, tag } from "./elements.js";
import { drawable, powerStrip, powerText, span, speedStrip, speedText } from "./launch_strips.js";
import { isSlow, rated, speedOf, splitName, stateTag, verdict, verdictTag } from "./launch_words.js";
import { duration, energy, mean, number, percent, withUnit } from "./numbers.js";
import { jobTones, key } from "./tones.js";

// Its links stay as they are while numbers change, so that focus does.
export function card(gpu, launch) {
  const state = html("span", {});
  const body = html("div", {});
  const title = html("h2", {}, gpu.gpu_model ?? "GPU", " ", html("small", {}, `${gpu.host} · ${gpu.gpu_uuid.replace("GPU-", "").slice(0, 8)}`));
  const foot = launch ? html("p", { class: "quiet-text" }, link(`Launch ${launch.launch_id}`, "/launch", { id: launch.launch_id })) : null;
  const more = html("span", {});
  foot?.append(more);
  const element = html("article", { class: launch ? "gpu" : "gpu free" }, html("div", { class: "gpu-head" }, title, state), body, foot);
  const update = (now, held, at) => {
    state.replaceChildren(...(held ? [verdictTag(held), stateTag(held)].filter(Boolean) : [tag("free")]));
    body.replaceChildren(power(now, held), ...(held ? busy(now, held) : [html("p", { class: "quiet-text" }, "No launch holds it.")]));
    more.textContent = held ? since(held, at) : "";
  };
  return { element, update };
}

// What a card is drawn anew for.
export function shape(gpu, launch) {
  return [gpu.gpu_uuid, gpu.launch_id, launch?.jobs.map((job) => job.job)].join();
}

function since(launch, at) {
  if (!launch.started_at) return "";
  const started = new Date(launch.started_at);
  const time = started.toLocaleTimeString("en", { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  const { ledger } = launch;
  const gain = ledger ? ledger.alone_j - ledger.energy_j : null;
  const saved = gain === null ? "" : gain < 0 ? `, ${energy(-gain)} more than alone so far` : `, ${energy(gain)} saved so far`;
  return ` since ${time} (${duration(Math.max(0, Date.parse(at) - started) / 1000)})${saved}`;
}

// Watts beside the limit, as a bar and as text.
function power({ power_w: read, power_limit_w }, held) {
  const power_w = read ?? held?.power_w ?? null;
  const text = power_w === null ? (held ? "not read yet" : "power not read") : `${withUnit(power_w, "W")}${power_limit_w ? ` of ${withUnit(power_limit_w, "W")}` : ""}`;
  const part = power_w !== null && power_limit_w ? Math.min(1, power_w / power_limit_w) : 0;
  return html("div", { class: "meter-row" }, html("span", { class: "meter-name" }, "Power"), meter(part, "power"), html("span", { class: "meter-text" }, text));
}

function meter(part, tone, mark = null) {
  return svg(
    "svg",
    { class: "meter", viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect", { class: "track", width: 100, height: 8, rx: 1.5 }),
    svg("rect", { class: `fill tone-${tone}`, width: 100 * part, height: 8, rx: 1.5 }),
    mark === null ? null : svg("line", { class: "mark", x1: 100 * mark, x2: 100 * mark, y1: 0, y2: 8 }),
  );
}

function busy(gpu, launch) {
  const tone = jobTones(launch.jobs.map(({ job }) => job));
  const found = verdict(launch);
  const missed = found && !found.good ? html("p", {}, html("b", { class: "bad" }, found.text), ` ${found.why}`) : null;
  return [shares(gpu, launch, tone), jobs(launch, tone), missed, drawable(launch.history) && strips(launch, launch.history)].filter(Boolean);
}

// The SMs as a bar: side by side where the shares fit, one below the other where they overlap.
function shares({ units_total }, launch, tone) {
  const limited = launch.sharing === "limited";
  const list = launch.jobs.map((job) => (limited ? job.share_percent : 100));
  const fits = list.reduce((sum, share) => sum + share, 0) <= 100.5;
  const rows = fits ? 1 : list.length;
  const height = fits ? 18 : Math.max(3, 18 / rows);
  let left = 0;
  const bars = list.map((share, n) => {
    const x = fits ? left : 0;
    left += share;
    const over = launch.jobs[n].ended_at !== null;
    return svg("rect", { class: `fill tone-${tone(launch.jobs[n].job)}${over ? " gone" : ""}`, x, width: Math.max(0, share - 0.4), y: fits ? 0 : n * height, height: height - (fits ? 0 : 1) });
  });
  const units = launch.jobs.map((job) => job.units_granted);
  const used = fits && units_total && units.every((unit) => unit !== null) ? `${units.reduce((a, b) => a + b, 0)} of ${units_total} SMs` : "";
  const text = (launch.sharing === "limited" && used) || splitName(launch);
  return html(
    "div",
    { class: "meter-row" },
    html("span", { class: "meter-name" }, "SMs"),
    svg("svg", { class: "shares", viewBox: "0 0 100 18", preserveAspectRatio: "none", "aria-hidden": "true" }, svg("rect", { class: "track", width: 100, height: 18 }), bars),
    html("span", { class: "meter-text" }, text),
  );
}

function jobs(launch, tone) {
  const seats = new Map();
  launch.jobs.forEach((job, n) => {
    const same = [job.job, job.share_percent, job.below_normal, job.outcome].join();
    seats.set(same, [...(seats.get(same) ?? []), { ...job, expected: job.joined_at ? null : launch.forecast?.jobs[n] }]);
  });
  return html("ul", { class: "seats" }, [...seats.values()].map((copies) => seat(launch, copies, tone(copies[0].job))));
}

// Copies of a job that get the same, by their mean.
function seat(launch, copies, tone) {
  const [job] = copies;
  const speed = mean(copies.map(speedOf));
  const predicted = job.expected ? job.expected.rate.value / job.expected.solo_rate : null;
  const most = Math.max(1, speed ?? 0, predicted ?? 0);
  const limit = launch.sharing === "limited" && job.share_percent < 100 ? `${number(job.share_percent)} %${job.units_granted === null ? "" : `, ${job.units_granted} SMs`}` : "no limit";
  const slow = speed !== null && job.expected && isSlow(speed, job.expected);
  const facts = [limit, job.below_normal ? "below normal priority" : null, job.outcome === "running" ? null : job.outcome, promise(copies)].filter(Boolean);
  return html(
    "li",
    {},
    html("span", { class: "seat-name" }, key(tone), copies.length > 1 ? `${copies.length} × ${job.job}` : job.job),
    html("span", { class: "seat-facts" }, facts.flatMap((fact, i) => (i ? [" · ", fact] : [fact]))),
    meter((speed ?? 0) / most, tone, predicted === null ? null : predicted / most),
    html("span", { class: "meter-text" }, speed === null ? "no speed yet" : `${rated(speed)} speed`, predicted === null ? null : html("small", { class: slow ? "bad" : null }, ` ${slow ? "slow: " : ""}${percent(predicted)} predicted`)),
  );
}

// Of the copy that is latest.
function promise(copies) {
  const [{ max_p99_ms }] = copies;
  const known = copies.map(({ latency_p99_ms, mean_p99_ms }) => latency_p99_ms ?? mean_p99_ms).filter(Number.isFinite);
  const p99 = known.length ? Math.max(...known) : null;
  if (p99 === null) return max_p99_ms === null ? null : `p99 not known yet, ${number(max_p99_ms)} ms promised`;
  const text = `p99 ${withUnit(p99, "ms")}`;
  if (max_p99_ms === null) return text;
  return html("span", { class: p99 > max_p99_ms ? "bad" : "good" }, `${text} of ${number(max_p99_ms)} promised`);
}

function strips(launch, kept) {
  return html(
    "div",
    { class: "strips" },
    html("figure", {}, speedStrip(launch, kept), html("figcaption", {}, `speeds ${speedText(kept)}, ${span(kept)}`)),
    html("figure", {}, powerStrip(launch, kept), html("figcaption", {}, `power ${powerText(kept)}`)),
  );
}
