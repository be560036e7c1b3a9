// One job alone: what it does at each share of the GPU.

import { chart } from "./chart.js";
import { facts, html, link, notice, select, table, tag, address, field } from "./elements.js";
import { FLAGS } from "./flags.js";
import { content, run, setTitle } from "./frame.js";
import { mean, moment, number, share, withUnit } from "./numbers.js";
import { besideAndCopies } from "./job_together.js";
import { get, part, ServiceError } from "./service.js";
import { jobTones } from "./tones.js";

const SHARES = [0, 20, 40, 60, 80, 100];

const LATENCIES = [
  ["latency_p50_ms", "Latency, median"],
  ["latency_p99_ms", "Latency, 99th percentile"],
];

const COUNTERS = [
  ["sm_active_percent", "SMs busy", "% of time"],
  ["sm_occupancy_percent", "SM occupancy", "% of resident warps"],
  ["dram_active_percent", "Memory interface busy", "% of time"],
  ["tensor_active_percent", "Tensor pipes busy", "% of time"],
  ["fp32_active_percent", "FP32 pipe busy", "% of time"],
  ["fp64_active_percent", "FP64 pipe busy", "% of time"],
  ["sm_clock_mhz", "SM clock", "MHz"],
  ["pcie_rx_mib_per_s", "PCIe, host to GPU", "MiB/s"],
];

run(async (query) => {
  const name = query.get("name");
  if (!name) {
    content.append(notice("", ["Which job? Choose one from the list of ", link("jobs", "/jobs")]));
    return;
  }
  setTitle(name);
  content.append(html("h1", {}, name));
  const wanted = query.get("gpu");
  const profile = await get(address(`/v1/profiles/${part(name)}`, { gpu_model: wanted }));
  const models = profile.gpu_models;
  const gpu = models.includes(wanted) ? wanted : models[0];
  const points = profile.points
    .filter((point) => point.gpu_model === gpu)
    .sort((p, q) => p.share_percent - q.share_percent);
  if (models.length > 1) {
    const go = (model) => location.assign(address("/job", { name, gpu: model }));
    content.append(html("div", { class: "fields" }, field("GPU model", select(models.map((m) => [m, m]), gpu, go))));
  }
  const parts = html("div", { id: "parts", "aria-busy": "true" });
  const together = html("div", { id: "together", "aria-busy": "true" });
  content.append(
    summary(points, gpu, profile.source),
    together,
    flagged(points),
    html("h2", {}, "At each share of the GPU"),
    html("p", { class: "quiet-text" }, "Marks are measured windows, with their standard errors; the line goes through their means."),
    ...charts(points),
    html("h2", {}, "What the power goes to"),
    parts,
    html("h2", {}, "Points"),
    pointTable(points),
  );
  await Promise.all([fill(parts, powerParts(name, gpu).then((made) => [made])), fill(together, besideAndCopies(name, gpu))]);
});

async function fill(place, coming) {
  place.replaceChildren(...(await coming));
  place.removeAttribute("aria-busy");
}

function powerParts(name, gpu) {
  return get(address(`/v1/profiles/${part(name)}/components`, { gpu_model: gpu })).then(partTable, (error) => {
    if (!(error instanceof ServiceError)) throw error;
    return notice("", `What the power goes to is not known: ${error.message}`);
  });
}

// As `advisor power components` says it.
function partTable({ floor_w: floor, floor_is_measured: isMeasured, shares }) {
  const watts = (value) => (value === null ? "not known" : number(Math.round(value)));
  const columns = [
    { name: "Share", cell: (row) => `${number(row.share_percent)}\u00a0%` },
    { name: "Power, W", number: true, cell: (row) => watts(row.power_w) },
    { name: "Left, W", number: true, cell: (row) => watts(row.headroom_w) },
    { name: "Memory as read, W", number: true, cell: (row) => watts(row.memory_w) },
  ];
  const basis = isMeasured ? "measured" : "that of the empty GPU and of contexts";
  const said = `Floor, with jobs open and none at work: ${watts(floor)} W, ${basis}. Nothing finer agrees with work of one kind.`;
  return html("div", {}, html("p", { class: "quiet-text" }, said), table("What the power goes to", columns, shares));
}

function summary(points, gpu, source) {
  const whole = points.filter((point) => point.share_percent === 100);
  const unit = points[0]?.rate_unit ?? "steps";
  const alone = (key) => mean(whole.map((point) => point[key]));
  const idle = mean(points.map((point) => point.idle_power_w));
  const offered = points.find((point) => Number.isFinite(point.offered_rate))?.offered_rate;
  const memory = Math.max(...points.map((point) => point.memory_used_mib ?? 0));
  return facts([
    ["GPU model", gpu, points[0]?.units_total && `${points[0].units_total} ${gpu.startsWith("AMD") ? "CUs" : "SMs"}`],
    ["Rate alone", withUnit(alone("rate"), `${unit}/s`), "on the whole GPU"],
    ["Power alone", withUnit(alone("power_w"), "W"), idle && `${number(idle)} W when idle`],
    ...(offered === undefined ? [] : [["Demand", withUnit(offered, `${unit}/s`), "requests that arrive"]]),
    ["Memory", memory ? withUnit(memory, "MiB") : null],
    ["Measured", moment(points.at(-1)?.started_at), `${points.length} points`],
    ["Source", source, source === "bundled" ? "came with advisor, random input" : "measured here"],
  ]);
}

// What was wrong with some of the windows, explained where it stands.
function flagged(points) {
  const flags = [...new Set(points.flatMap((point) => point.flags))].sort();
  const count = (flag) => points.filter((point) => point.flags.includes(flag)).length;
  const lines = flags.map((flag) =>
    html("li", {}, tag(flag, "warn"), `${FLAGS[flag] ?? "not known here"} (${count(flag)} of ${points.length} points)`),
  );
  return flags.length ? html("div", {}, html("h2", {}, "Flags"), html("ul", { class: "plain" }, lines)) : "";
}

function charts(points) {
  const alone = mean(points.filter((p) => p.share_percent === 100).map((p) => p.rate));
  const unit = points[0]?.rate_unit ?? "steps";
  const limit = points.find((point) => point.power_limit_w)?.power_limit_w;
  const nearLimit = limit && points.some((point) => point.power_w > 0.8 * limit);
  const tone = jobTones([points[0]?.job])(points[0]?.job);
  const main = [
    draw(points, "Rate", `${unit}/s`, (p) => p.rate, { tone, error: (p) => p.rate_stderr }),
    draw(points, "Relative speed", "% of alone on the whole GPU", (p) => alone && (100 * p.rate) / alone, {
      tone,
      error: (p) => p.rate_stderr && alone && (100 * p.rate_stderr) / alone,
    }),
    draw(points, "Power", "W", (p) => p.power_w, {
      tone: "power",
      error: (p) => p.power_stderr_w,
      limit: nearLimit ? { y: limit, label: `limit ${number(limit)} W` } : null,
    }),
    draw(points, "Work per joule", `${unit} per J`, (p) => p.power_w && p.rate / p.power_w, { tone: "power" }),
    ...latencies(points).map(([key, title]) => draw(points, title, "ms", (p) => p[key], { tone })),
  ];
  const { shown, idle, missing } = counters(points);
  const drawn = shown.map(([key, title, of]) => draw(points, title, of, (p) => p[key], { tone: "power" }));
  const rest = [idle.length ? `Always 0: ${idle.join(", ")}. ` : "", missing.length ? `Not measured: ${missing.join(", ")}.` : ""];
  return [
    html("div", { class: "charts large" }, main),
    html("details", {}, html("summary", {}, `Hardware counters (${drawn.length} charts)`), html("p", { class: "quiet-text" }, rest), html("div", { class: "charts" }, drawn)),
  ];
}

// Only a server has some.
function latencies(points) {
  return LATENCIES.filter(([key]) => points.some((point) => Number.isFinite(point[key])));
}

// What has something to show; the others are named.
function counters(points) {
  const values = (key) => points.map((p) => p[key]).filter(Number.isFinite);
  const named = (found) => found.map(([, title]) => title);
  return {
    shown: COUNTERS.filter(([key]) => values(key).some((value) => value !== 0)),
    idle: named(COUNTERS.filter(([key]) => values(key).length && values(key).every((value) => value === 0))),
    missing: named(COUNTERS.filter(([key]) => values(key).length === 0)),
  };
}

function draw(points, title, unit, pick, { tone, error, limit = null }) {
  const known = points.filter((point) => Number.isFinite(pick(point)));
  const shares = [...new Set(known.map((point) => point.share_percent))];
  const at = (wanted) => known.filter((point) => point.share_percent === wanted);
  const line = shares.map((x) => ({ x, y: mean(at(x).map(pick)) }));
  const errors = known.flatMap((p) =>
    error?.(p) ? [{ x: p.share_percent, tone, low: pick(p) - error(p), high: pick(p) + error(p) }] : [],
  );
  return chart({
    title,
    unit,
    x: { label: "share of the GPU, %", domain: [0, 100], ticks: SHARES },
    series: [{ tone, name: "", points: line, dots: false }],
    measured: known.map((point) => ({ x: point.share_percent, y: pick(point), tone })),
    errors,
    limit,
  }).figure;
}

function pointTable(points) {
  const unit = points[0]?.rate_unit ?? "steps";
  const error = (value) => (value === null || value === undefined ? null : [" ", html("small", {}, `± ${number(value, 2)}`)]);
  const columns = [
    { name: "Share", cell: (p) => share(p.share_percent) },
    { name: "Units", number: true, cell: (p) => p.units_granted ?? "" },
    { name: `Rate, ${unit}/s`, number: true, cell: (p) => [number(p.rate), error(p.rate_stderr)] },
    { name: "Power, W", number: true, cell: (p) => [number(p.power_w), error(p.power_stderr_w)] },
    ...latencies(points).map(([key, title]) => ({ name: `${title}, ms`, number: true, cell: (p) => number(p[key]) })),
    ...COUNTERS.slice(0, 4).map(([key, title]) => ({ name: title, number: true, cell: (p) => number(p[key]) })),
    { name: "Clock, MHz", number: true, cell: (p) => number(p.sm_clock_mhz) },
    { name: "Window, s", number: true, cell: (p) => number(p.window_s) },
    { name: "Flags", cell: (p) => p.flags.map((flag) => tag(flag, "warn", FLAGS[flag])) },
  ];
  return table("Points", columns, points);
}
