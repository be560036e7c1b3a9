// A queue of jobs on several GPUs, planned by the service or pasted as a plan, and drawn over time.

import { address, field, html, notice, select, sentences, table } from "./elements.js";
import { content, explain, run } from "./frame.js";
import { BUNDLED_MODEL, gpuModels, saved } from "./gains.js";
import { gantt } from "./gantt.js";
import { duration, number, percent, share } from "./numbers.js";
import { get, post } from "./service.js";
import { jobTones, key } from "./tones.js";

const EXAMPLE = "bert-infer-b2:6\nmobilenet-train-b2:6\nbert-train-b2:4\nresnet50-train-b2:4\nvit-train:4";
const UNITS_S = { s: 1, m: 60, min: 60, h: 3600, d: 86400 };
const LINE = /^([^:*\s]+)(?:[:*](\d+))?(?:\s+(\d+(?:\.\d+)?)(s|m|min|h|d))?$/;
const WORTH = { yes: "Sharing pays.", barely: "Sharing barely pays.", no: "Sharing does not pay: every job runs alone." };

const results = html("div", { id: "results" });

run(async (query) => {
  const { jobs } = await get("/v1/jobs");
  const models = gpuModels(jobs);
  const wanted = query.get("gpu");
  const state = { gpu: models.includes(wanted) ? wanted : (models[0] ?? BUNDLED_MODEL) };
  const lines = html("textarea", { rows: 6, id: "queue", spellcheck: "false", "aria-describedby": "queue-hint" }, (query.get("jobs") ?? EXAMPLE.replaceAll("\n", ",")).replaceAll(",", "\n"));
  const gpus = html("input", { type: "number", id: "gpus", min: 1, max: 1000, value: query.get("gpus") ?? 4, required: true });
  const objective = select([["energy-efficiency", "Least energy"], ["throughput", "Done soonest"], ["fewest-cards", "Fewest GPUs, all at once"]], query.get("objective") ?? "energy-efficiency", () => {});
  const plan = html("textarea", { rows: 3, id: "plan", spellcheck: "false", placeholder: "{\"gpu_model\": ...}" });
  const ask = (event) => {
    event?.preventDefault();
    return answer(() => planned({ lines: lines.value, gpus: Number(gpus.value), gpu: state.gpu, objective: objective.value }));
  };
  const pasted = (event) => {
    event.preventDefault();
    return answer(async () => readPlan(plan.value));
  };
  content.append(
    html("h1", {}, "Queue"),
    html("p", { class: "quiet-text" }, "Which jobs share a GPU, when and where, until all jobs are done: as ", html("code", {}, "advisor place"), " plans it."),
    html(
      "form",
      { onsubmit: ask },
      html(
        "div",
        { class: "columns" },
        html("div", {}, field("Jobs, one kind a line", lines), html("p", { class: "hint", id: "queue-hint" }, "NAME, NAME:40 for forty, NAME:40 3h where each takes 3 hours alone; servers only where all run at once")),
        html(
          "div",
          { class: "fields" },
          field("GPUs", gpus),
          models.length > 1 ? field("GPU model", select(models.map((m) => [m, m]), state.gpu, (gpu) => (state.gpu = gpu))) : "",
          field("Plan for", objective),
          html("button", { class: "main", id: "place" }, "Plan it"),
        ),
      ),
    ),
    html("details", {}, html("summary", {}, "Or draw a plan that was made before"), html("form", { onsubmit: pasted }, field("What advisor place --json printed", plan), html("div", { class: "row" }, html("button", { id: "draw" }, "Draw it")))),
    results,
  );
  if (query.has("jobs")) await ask();
});

async function answer(make) {
  results.setAttribute("aria-busy", "true");
  results.replaceChildren(notice("", "The queue is being planned; of many kinds of jobs that takes seconds."));
  try {
    results.replaceChildren(...show(await make()));
  } catch (error) {
    results.replaceChildren(error instanceof Said ? notice("failed", error.message) : explain(error));
  }
  results.removeAttribute("aria-busy");
}

async function planned({ lines, gpus, gpu, objective }) {
  const texts = lines.split("\n").flatMap((line) => line.replace(/#.*/, "").trim().split(/\s+(?=\S+[:*]\d)/)).filter(Boolean);
  history.replaceState(null, "", address("/queue", { jobs: texts.join(","), gpus, gpu, objective: objective === "energy-efficiency" ? null : objective }));
  return post("/v1/placements", { jobs: texts.map((text) => entry(text, objective)), gpus, gpu_model: gpu, objective });
}

function entry(text, objective) { // what all runs at once has no end
  const found = LINE.exec(text);
  if (!found) throw new Said(`"${text}" is no line of a queue. Write NAME, NAME:40 or NAME:40 3h.`);
  const [, job, count, time, unit] = found;
  return { job, count: Number(count ?? 1), work_s: objective === "fewest-cards" ? null : time ? Number(time) * UNITS_S[unit] : UNITS_S.h };
}

function readPlan(text) {
  let found = null;
  try {
    found = JSON.parse(text);
  } catch {} // Said below, as of anything else that is no plan.
  if (Array.isArray(found?.sets) && !found.queue) {
    throw new Said("These jobs run together from now on: no times are planned that could be drawn. advisor place --pairs --schedule tells who, and where.");
  }
  if (!Array.isArray(found?.sets) || !Array.isArray(found.queue.schedule)) {
    throw new Said("This is no plan. Paste the whole of what advisor place --json prints.");
  }
  return found;
}

// Jobs that all run at once, as one row for each GPU.
function together({ sets, cards, queued, seated, energy_saved: energy, gpu_time_saved: time, gpus: [pool] }) {
  const names = new Set(sets.flatMap(({ jobs }) => jobs.map(({ job }) => job)));
  const tone = jobTones([...names]);
  const mates = ({ jobs }) => [...names].map((job) => jobs.filter((one) => one.job === job)).filter((own) => own.length);
  const columns = [
    { name: "GPU", cell: (one) => `GPU ${one.gpus.join(", ")}` },
    { name: "Jobs, speed", cell: (one) => mates(one).map(([own, ...more]) => [html("span", { class: "whole" }, key(tone(own.job)), more.length ? `${more.length + 1} × ` : "", own.job, html("small", {}, ` ${percent(own.speed)}`)), "  "]) },
    { name: "Energy", number: true, cell: (one) => saved(one.energy_saved) },
    { name: "GPU time", number: true, cell: (one) => saved(one.gpu_time_saved) },
  ];
  return [
    html("p", { class: "headline", id: "headline" }, `${seated === queued ? queued : `${seated} of ${queued}`} jobs on ${cards} × ${pool.gpu_model}, all at once: ${saved(energy)} energy, ${saved(time)} GPU time than a GPU for each.`),
    table("Jobs of each GPU", columns, sets, { stacked: true }),
  ];
}

function show(answer) {
  const { queue: plan, gpus: [pool], sets, queued, warnings } = answer;
  if (!plan) return together(answer);
  const pairs = sets.reduce((sum, one) => sum + (one.jobs.length > 1 ? one.count : 0), 0);
  const apart = plan.baselines.find((one) => one.name === "one after the other");
  const tiles = [
    ["Done in", duration(plan.makespan_s), apart && `${duration(apart.makespan_s)} one after the other`],
    ["Energy", `${number(plan.energy_j / 3.6e6)}\u00a0kWh`, apart && saved(apart.energy_saved)],
    ["GPU hours", number(plan.gpu_time_s / 3600), apart && saved(apart.gpu_time_saved)],
    ["Slowest job", percent(plan.slowest_speed), plan.slowest_job],
  ];
  const drawn = gantt({ ...plan, gpus: pool.gpus });
  return [
    html("p", { class: "headline", id: "headline" }, `${queued} jobs on ${pool.gpus} × ${pool.gpu_model}: ${WORTH[plan.worth]} ${pairs} pairs share a GPU.`),
    html("dl", { class: "tiles" }, tiles.map(([name, value, remark]) => html("div", {}, html("dt", {}, name), html("dd", {}, value, remark ? html("small", {}, remark) : null)))),
    html("p", { class: "quiet-text" }, "Predicted. Each row is a GPU; two jobs above each other share it. Colours are jobs."),
    drawn.element,
    html("h2", {}, "Against simpler ways"),
    baselines(plan),
    html("details", {}, html("summary", {}, `All ${plan.schedule.length} jobs as a table`), schedule(plan, drawn.shown)),
    warnings.length ? html("details", {}, html("summary", {}, `What may be wrong with it (${warnings.length})`), sentences(warnings)) : "",
  ];
}

function baselines(plan) {
  const columns = [
    { name: "Way", cell: (one) => one.name },
    { name: "Done in", number: true, cell: (one) => duration(one.makespan_s) },
    { name: "Energy", number: true, cell: (one) => `${number(one.energy_j / 3.6e6)}\u00a0kWh` },
    { name: "This plan takes", number: true, cell: (one) => `${saved(one.energy_saved)} energy` },
    { name: "GPU time", number: true, cell: (one) => saved(one.gpu_time_saved) },
    { name: "Slowest job", number: true, cell: (one) => `${one.slowest_job}, ${percent(one.slowest_speed)}` },
  ];
  return table("Against simpler ways", columns, plan.baselines, { stacked: true });
}

function schedule(plan, shown) {
  const columns = [
    { name: "Job", cell: (run) => `${run.job} (${run.number})` },
    { name: "GPU", number: true, cell: (run) => run.gpu },
    { name: "Starts after", number: true, cell: (run) => duration(run.start_s) },
    { name: "Ends after", number: true, cell: (run) => duration(run.end_s) },
    { name: "Share", number: true, cell: (run) => (run.share_percent === 100 ? "whole" : share(run.share_percent)) },
    { name: "Speed", number: true, cell: (run) => percent(run.speed) },
    { name: "Beside", number: true, cell: (run) => run.beside ?? "" },
  ];
  const made = table("All jobs", columns, plan.schedule.slice(0, shown), { stacked: true });
  const left = plan.schedule.length - shown;
  return left > 0 ? html("div", {}, made, html("p", { class: "hint" }, `And ${left} more: advisor place --json has all.`)) : made;
}

// Text that the page cannot read.
class Said extends Error {}
