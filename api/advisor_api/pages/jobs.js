// All jobs of a GPU model, a line each: how much of a GPU it needs, what it draws, and with which job
// it does best.

import { address, field, html, link, notice, select, table, tag } from "./elements.js";
import { FLAGS, WRONG } from "./flags.js";
import { content, explain, run } from "./frame.js";
import { askGains, fillsText, gpuModels, partnersOf, saved, setLink } from "./gains.js";
import { number, withUnit } from "./numbers.js";
import { get } from "./service.js";
import { shareLine } from "./share_line.js";

const KINDS = {
  measured: ["All measured", (row) => row.gpu_model !== null],
  room: ["Those that leave room", (row) => row.curve?.size],
  fills: ["Those that fill the GPU", (row) => row.curve && !row.curve.size],
  own: ["Measured here", (row) => row.source === "stored"],
  never: ["Not measured", (row) => row.gpu_model === null],
};

// Most first, but for names and for how much of a card is needed.
const ORDERS = {
  name: ["Name", (p, q) => p.job.localeCompare(q.job)],
  need: ["Part of a GPU that is enough", (p, q) => need(p) - need(q)],
  gain: ["Gain beside its best partner", (p, q) => (q.best?.time ?? -1) - (p.best?.time ?? -1)],
  power: ["Watts", (p, q) => (q.curve?.power_w ?? -1) - (p.curve?.power_w ?? -1)],
};

const count = html("span", { class: "hint", role: "status", id: "count" });
const shown = html("div", { id: "list" });

run(async (query) => {
  content.append(html("h1", {}, "Jobs"));
  const { jobs } = await get("/v1/jobs");
  if (jobs.length === 0) {
    content.append(notice("", "There is no job yet. Measure one on the GPU: advisor profile --name NAME -- COMMAND"));
    return;
  }
  const models = gpuModels(jobs);
  const wanted = query.get("gpu");
  const state = { jobs, gpu: models.includes(wanted) ? wanted : models[0], words: "", kind: "measured", order: "name", curves: null, pairs: null };
  const set = (key) => (value) => {
    state[key] = value;
    show(state);
  };
  const filter = html("input", { type: "search", id: "filter", placeholder: "Name, flag or tag", oninput: ({ target }) => set("words")(target.value) });
  const choices = (known) => Object.entries(known).map(([key, [text]]) => [key, text]);
  content.append(
    html("p", { class: "quiet-text" }, "Each was measured alone at several shares of a GPU. See all of them beside each other in the ", link("matrix", "/matrix", { gpu: state.gpu }), "."),
    html(
      "div",
      { class: "fields" },
      field("Filter", filter),
      models.length > 1 ? field("GPU model", select(models.map((m) => [m, m]), state.gpu, (gpu) => location.assign(address("/jobs", { gpu })))) : null,
      field("Show", select(choices(KINDS), "measured", set("kind"))),
      field("Sort by", select(choices(ORDERS), "name", set("order"))),
    ),
    count,
    shown,
  );
  show(state);
  await learn(state);
});

// Curves come at once with the pairs of one job; all pairs take seconds the first time.
async function learn(state) {
  const measured = state.jobs.filter((row) => row.gpu_model === state.gpu && row.shares.length > 1);
  if (measured.length === 0) return;
  try {
    for (const beside of [measured[0].job, null]) {
      const found = await askGains({ gpu_model: state.gpu, beside });
      state.curves = new Map(found.jobs.map((one) => [one.job, one]));
      state.pairs = beside ? null : found.pairs;
      show(state);
    }
  } catch (error) {
    shown.before(explain(error));
  }
}

function show(state) {
  const own = state.jobs.filter((row) => row.gpu_model === state.gpu || row.gpu_model === null).map((row) => ({
    ...row,
    curve: row.gpu_model && state.curves?.get(row.job),
    best: row.gpu_model && state.pairs && partnersOf(row.job, state.pairs)[0],
  }));
  const words = state.words.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = own
    .filter(KINDS[state.kind][1])
    .filter((row) => words.every((word) => searched(row).includes(word)))
    .sort(ORDERS[state.order][1]);
  const waits = state.pairs ? "" : ". The best partners are being worked out.";
  const never = own.filter((row) => row.gpu_model === null).length;
  count.textContent = `${rows.length} of ${own.length}${never ? `, of which ${never} were never measured` : ""}${waits}`;
  shown.replaceChildren(rows.length ? list(rows, state) : notice("", "No job matches. Clear the filter to see all."));
}

function need({ curve }) {
  return curve ? (curve.size?.share_percent ?? 101) : 102;
}

function searched(row) {
  return [row.job, ...row.flags, row.source, row.launchable && "launchable"].join(" ").toLowerCase();
}

function list(rows, { gpu }) {
  const columns = [
    { name: "Job", cell: (row) => name(row, gpu) },
    { name: "Of a GPU", cell: like },
    { name: "Speed over its share", cell: ({ curve }) => curve && shareLine(curve) },
    { name: "Alone", number: true, cell: ({ curve }) => curve && withUnit(curve.power_w, "W") },
    { name: "Rate", number: true, cell: ({ curve }) => curve && [number(curve.rate), " ", html("small", {}, `${curve.rate_unit}/s`)] },
    { name: "Best beside", cell: ({ job, best }) => best && setLink(best.partner, [job, best.partner], gpu) },
    { name: "GPU time", number: true, cell: ({ best }) => best && saved(best.time) },
    { name: "Energy", number: true, cell: ({ best }) => best && saved(best.energy) },
    { name: "Notes", cell: notes },
  ];
  return table("Jobs", columns, rows, { stacked: true });
}

function name(row, gpu) {
  return row.gpu_model === null ? row.job : link(row.job, "/job", { name: row.job, gpu });
}

function like({ curve, gpu_model: model, shares }) {
  if (model === null) return "not measured";
  if (curve) return fillsText(curve);
  return shares.length > 1 ? "" : "too few shares were measured";
}

function said(flag) {
  return FLAGS[flag] ? `${flag}: ${FLAGS[flag]}` : flag;
}

function notes({ source, flags }) {
  return [
    source === "stored" ? tag("own", "good", "Measured here") : null,
    // Most say how well a window is known; only wrong results are a reason to look there first.
    flags.length ? tag(flags.length === 1 ? "1 flag" : `${flags.length} flags`, flags.some((flag) => WRONG.includes(flag)) ? "warn" : "", flags.map(said).join("\n")) : null,
  ];
}
