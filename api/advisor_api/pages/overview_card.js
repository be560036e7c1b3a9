// One GPU: its jobs with their shares and speeds, its power, and since when.

import { html, link, svg, tag } from "./elements.js";
import { drawable, powerStrip, powerText, span, speedStrip, speedText } from "./launch_strips.js";
import { ratedSpeed, splitName, stateText } from "./launch_words.js";
import { duration, energy, number, percent, withUnit } from "./numbers.js";

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
    state.replaceChildren(held ? stateTag(held) : tag("free"));
    body.replaceChildren(power(now), ...(held ? busy(now, held) : [html("p", { class: "quiet-text" }, "No launch holds it.")]));
    more.textContent = held ? since(held, at) : "";
  };
  return { element, update };
}

// What a card is drawn anew for.
export function shape(gpu, launch) {
  return [gpu.gpu_uuid, gpu.launch_id, launch?.jobs.map((job) => job.job)].join();
}

function stateTag(launch) {
  const good = launch.state === "running" && launch.silent_s === null;
  return tag(stateText(launch), good ? "good" : launch.silent_s === null ? "" : "bad");
}

function since(launch, at) {
  if (!launch.started_at) return "";
  const started = new Date(launch.started_at);
  const time = started.toLocaleTimeString("en", { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  const { ledger } = launch;
  const gain = ledger ? ledger.alone_j - ledger.energy_j : null;
  const saved = gain === null ? "" : gain < 0 ? `, ${energy(-gain)} more than alone so far` : `, ${energy(gain)} saved so far`;
  return ` since ${time} (${duration((Date.parse(at) - started) / 1000)})${saved}`;
}

// Watts beside the limit, as a bar and as text.
function power({ power_w, power_limit_w }) {
  const text = power_w === null ? "power not read" : `${withUnit(power_w, "W")}${power_limit_w ? ` of ${withUnit(power_limit_w, "W")}` : ""}`;
  const part = power_w !== null && power_limit_w ? Math.min(1, power_w / power_limit_w) : 0;
  return html("div", { class: "meter-row" }, html("span", { class: "meter-name" }, "Power"), meter(part, "power"), html("span", { class: "meter-text" }, text));
}

function meter(part, tone, mark = null) {
  return svg(
    "svg",
    { class: "meter", viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect", { class: "track", width: 100, height: 8, rx: 1.5 }),
    svg("rect", { class: `tone-fill-${tone}`, width: 100 * part, height: 8, rx: 1.5 }),
    mark === null ? null : svg("line", { class: "mark", x1: 100 * mark, x2: 100 * mark, y1: 0, y2: 8 }),
  );
}

function busy(gpu, launch) {
  const parts = [shares(gpu, launch), jobs(launch)];
  return drawable(launch.history) ? [...parts, strips(launch, launch.history)] : parts;
}

// The SMs as a bar: side by side where the shares fit, one below the other where they overlap.
function shares({ units_total }, launch) {
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
    return svg("rect", { class: `tone-fill-${n}${over ? " gone" : ""}`, x, width: Math.max(0, share - 0.4), y: fits ? 0 : n * height, height: height - (fits ? 0 : 1) });
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

function jobs(launch) {
  return html("ul", { class: "seats" }, launch.jobs.map((job, n) => seat(launch, job, n)));
}

function seat(launch, job, n) {
  const speed = job.relative_speed ?? job.mean_speed;
  const expected = launch.forecast?.jobs[n];
  const predicted = expected && !job.joined_at ? expected.rate.value / expected.solo_rate : null;
  const most = Math.max(1, speed ?? 0, predicted ?? 0);
  const limit = launch.sharing === "limited" && job.share_percent < 100 ? `${number(job.share_percent)} %${job.units_granted === null ? "" : `, ${job.units_granted} SMs`}` : "no limit";
  const facts = [limit, job.below_normal ? "below normal priority" : null, job.outcome === "running" ? null : job.outcome, promise(job)].filter(Boolean);
  return html(
    "li",
    {},
    html("span", { class: "seat-name" }, svg("svg", { class: "key", viewBox: "0 0 10 10", "aria-hidden": "true" }, svg("rect", { class: `tone-fill-${n}`, width: 10, height: 10, rx: 2 })), job.job),
    html("span", { class: "seat-facts" }, facts.flatMap((fact, i) => (i ? [" · ", fact] : [fact]))),
    meter((speed ?? 0) / most, n, predicted === null ? null : predicted / most),
    html("span", { class: "meter-text" }, speed === null ? "no speed yet" : `${ratedSpeed(job)} speed`, predicted === null ? null : html("small", {}, ` ${percent(predicted)} predicted`)),
  );
}

function promise({ latency_p99_ms, mean_p99_ms, max_p99_ms }) {
  const p99 = latency_p99_ms ?? mean_p99_ms;
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
