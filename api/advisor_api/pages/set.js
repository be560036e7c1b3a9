// Two to seven jobs on one GPU, and their shares moved by hand: one question to the service holds
// every way that it looked at, so nothing is asked while they move.

import { address, html, notice, sentences } from "./elements.js";
import { content, explain, run, setTitle } from "./frame.js";
import { percent } from "./numbers.js";
import { get, part, post } from "./service.js";
import { charts } from "./set_charts.js";
import { questionForm } from "./set_form.js";
import { frontier } from "./set_frontier.js";
import { answer, mover, tiles } from "./set_mover.js";
import { start } from "./set_start.js";
import { allOptions, objectives, readout } from "./set_tables.js";
import { measuredOptions, setView } from "./set_view.js";

const results = html("div", { id: "results" });
const live = html("p", { class: "quiet-text", role: "status", id: "answer-status" });
let asking = null;
let chosenName = null;

run(async (query) => {
  content.append(html("h1", {}, "Jobs on one GPU"));
  const { jobs } = await get("/v1/jobs");
  const profiled = jobs.filter((row) => row.gpu_model !== null);
  if (profiled.length === 0) {
    content.append(notice("", "No job has a profile yet. On the GPU: advisor profile JOB"));
    return;
  }
  const form = questionForm(profiled, query, (question) => ask(question, profiled));
  const named = (query.get("jobs") ?? "").split(/[+ ]/).filter(Boolean);
  const unknown = named.filter((name) => !profiled.some((row) => row.job === name));
  if (unknown.length > 0) {
    content.append(notice("", `There is no profile of ${unknown.join(" and ")}: advisor profile measures one on the GPU.`));
  }
  content.append(form.element, live, results);
  await ask(form.question, profiled);
});

async function ask(question, rows) {
  asking?.abort();
  asking = new AbortController();
  const { signal } = asking;
  history.replaceState(null, "", address("/set", question.query));
  setTitle(question.jobs.join(", "));
  results.setAttribute("aria-busy", "true");
  try {
    const [given, points] = await Promise.all([post("/v1/recommendations", question.body, signal), measuredPoints(question, signal)]);
    const view = { ...setView(given), request: question.body };
    view.measured = measuredOptions(points, given);
    show(view, rows);
    const by = given.model ? `, model ${given.model.version}` : ", by physics fitted to measured sets";
    live.textContent = `${given.gpu_model}${by}. Ranges are to hold ${percent(given.coverage)} of what is measured.`;
  } catch (error) {
    if (error.name === "AbortError") return;
    live.textContent = "";
    results.replaceChildren(explain(error));
  }
  results.removeAttribute("aria-busy");
}

let known = { path: null, points: null };

// The measured points of a set are asked for once, whatever else is changed.
async function measuredPoints({ jobs, gpu }, signal) {
  const path = address(`/v1/sets/${part(jobs.toSorted().join("+"))}/points`, { gpu_model: gpu });
  if (known.path !== path) known = { path, points: await get(path, signal) };
  return known.points;
}

function show(view, rows) {
  const choose = (option) => {
    chosenName = option.split;
    for (const tell of follow) tell(option);
  };
  const hand = mover(view, choose);
  const plane = frontier(view, choose);
  const [here, large, begin] = ["readout", "gain", "start"].map((id) => html("div", { id }));
  const follow = [
    hand.show,
    plane.show,
    (option) => here.replaceChildren(readout(view, option)),
    (option) => large.replaceChildren(tiles(view, option)),
    (option) => begin.replaceChildren(start(view, option, rows)),
  ];
  const more = view.isPair ? pairParts(view, choose, follow) : [];
  const { warnings } = view.given;
  results.replaceChildren(
    answer(view),
    warnings.length ? html("details", { class: "notes" }, html("summary", {}, `What may be wrong with it (${warnings.length})`), sentences(warnings)) : "",
    html("h2", {}, "Move the shares"),
    large,
    html("div", { class: "columns" }, html("div", {}, html("div", { class: "panel" }, hand.element), html("h3", {}, "Start it"), begin), here),
    folded(`All ${view.options.length} ways: what each saves, and what the slowest job pays`, html("p", { class: "quiet-text" }, plane.explained), plane.figure),
    ...more,
    folded("All numbers as a table", allOptions(view)),
  );
  choose(view.options.find((option) => option.split === chosenName) ?? view.way);
}

// What is known of two jobs alone.
function pairParts(view, choose, follow) {
  const drawn = charts(view, choose);
  follow.push(drawn.show);
  return [
    folded(`Four charts over the share of ${view.a}`, html("p", { class: "quiet-text" }, drawn.explained), drawn.element),
    folded("Why", sentences(view.given.reasons)),
    folded("What each objective would choose", objectives(view)),
  ];
}

function folded(title, ...parts) {
  return html("details", { class: "fold" }, html("summary", {}, title), parts);
}
