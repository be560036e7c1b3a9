// Two jobs, and the split between them moved by hand: one question to the service holds every
// split, so nothing is asked while it moves.

import { address, html, notice, sentences } from "./elements.js";
import { content, explain, run, setTitle } from "./frame.js";
import { environment } from "./pair_environment.js";
import { questionForm } from "./pair_form.js";
import { headline, mover } from "./pair_mover.js";
import { charts } from "./pair_charts.js";
import { percent } from "./numbers.js";
import { allOptions, objectives, readout, rules } from "./pair_tables.js";
import { measuredOptions, pairView } from "./pair_view.js";
import { partsOfPair, unknownParts } from "./power_parts.js";
import { get, part, post } from "./service.js";

const results = html("div", { id: "results" });
const live = html("p", { class: "quiet-text", role: "status", id: "answer-status" });
let asking = null;
let chosenName = null;

run(async (query) => {
  content.append(html("h1", {}, "Two jobs on one GPU"));
  const { jobs } = await get("/v1/jobs");
  const profiled = jobs.filter((row) => row.gpu_model !== null);
  if (profiled.length === 0) {
    content.append(notice("", "No job has a profile yet. On the GPU: advisor profile JOB"));
    return;
  }
  const form = questionForm(profiled, query, (question) => answer(question, profiled));
  const unknown = ["a", "b"].map((key) => query.get(key)).filter((name) => name && !profiled.some((row) => row.job === name));
  if (unknown.length > 0) {
    content.append(notice("", `There is no profile of ${unknown.join(" and ")}; another job stands in its place.`));
  }
  content.append(form.element, live, results);
  await answer(form.question, profiled);
});

async function answer(question, rows) {
  asking?.abort();
  asking = new AbortController();
  const { signal } = asking;
  history.replaceState(null, "", address("/pair", question.query));
  setTitle(`${question.a} and ${question.b}`);
  results.setAttribute("aria-busy", "true");
  try {
    const [given, points] = await Promise.all([
      post("/v1/recommendations", question.body, signal),
      measuredPoints(question, signal),
    ]);
    const shown = show(pairView(given, measuredOptions(points, given)), rows);
    live.textContent = `${given.gpu_model}, model ${given.model.version}. Ranges are to hold ${percent(given.coverage)} of what is measured.`;
    shown.showParts(await powerParts(question, given.gpu_model, signal).catch(refused));
  } catch (error) {
    if (error.name === "AbortError") return;
    live.textContent = "";
    results.replaceChildren(explain(error));
  }
  results.removeAttribute("aria-busy");
}

let known = { key: null, points: [] };

// The measured points of a pair are asked for once, whatever else is changed.
async function measuredPoints({ a, b, gpu }, signal) {
  const key = JSON.stringify([a, b, gpu]);
  if (known.key !== key) {
    const path = address(`/v1/pairs/${part(a)}/${part(b)}/points`, { gpu_model: gpu });
    const { stored, bundled } = await get(path, signal);
    known = { key, points: [...stored, ...bundled] };
  }
  return known.points;
}

// Like the points they are of the pair, whatever is asked of it.
let knownParts = { path: null, found: null };

async function powerParts({ a, b }, gpu, signal) {
  const path = address(`/v1/pairs/${part(a)}/${part(b)}/components`, { gpu_model: gpu });
  if (knownParts.path !== path) knownParts = { path, found: await get(path, signal) };
  return knownParts.found;
}

// A question that was given up is no answer.
function refused(error) {
  if (error.name === "AbortError") throw error;
  return error;
}

function show(view, rows) {
  const drawn = charts(view, (option) => choose(option));
  const hand = mover(view, (option) => choose(option));
  const here = html("div", { id: "readout" });
  const copy = html("div", {});
  const power = html("div", { id: "parts", "aria-busy": "true" });
  let bars = null;
  let chosen = null;
  function choose(option) {
    chosenName = option.split;
    chosen = option;
    bars?.show(option);
    hand.show(option);
    drawn.show(option);
    here.replaceChildren(readout(view, option));
    copy.replaceChildren(environment(view, option, rows));
  }
  const { given } = view;
  results.replaceChildren(
    headline(view),
    given.warnings.length ? notice("warning", ...given.warnings) : "",
    html(
      "div",
      { class: "columns" },
      html("div", {}, html("div", { class: "panel" }, hand.element), html("h2", {}, "What to set"), copy),
      here,
    ),
    html("h2", {}, "Over all splits"),
    html("p", { class: "quiet-text" }, drawn.explained),
    drawn.element,
    html("h2", {}, "What the power goes to"),
    power,
    html("h2", {}, "Why"),
    sentences(given.reasons),
    html("h2", {}, "What simple rules would do"),
    rules(view),
    html("h2", {}, "What each objective would choose"),
    objectives(view),
    html("details", {}, html("summary", {}, "All numbers as a table"), allOptions(view)),
  );
  choose(view.options.find((option) => option.split === chosenName) ?? view.way);
  return {
    showParts: (found) => {
      bars = found instanceof Error ? null : partsOfPair(found);
      bars?.show(chosen);
      power.replaceChildren(bars?.element ?? unknownParts(found));
      power.removeAttribute("aria-busy");
    },
  };
}
