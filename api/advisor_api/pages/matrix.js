// Every job beside every other one: how much of the GPU's time or of the energy a pair saves.
// One cell can be reached by Tab; arrow keys go from there.

import { address, field, html, link, notice, select } from "./elements.js";
import { content, run } from "./frame.js";
import { askGains, gpuModels, saved, setAddress } from "./gains.js";
import { mean, number, percent } from "./numbers.js";
import { get } from "./service.js";

const MEASURES = { time: "GPU time saved", energy: "Energy saved" };

// Lower ends of the steps of colour, and what is said of them.
const STEPS = [-Infinity, 0, 0.1, 0.2, 0.3, 0.4];
const STEP_WORDS = ["less than 0", "0 to 10 %", "10 to 20 %", "20 to 30 %", "30 to 40 %", "over 40 %"];

const MARKS = { share: "share", "your call": "call", "do not share": "apart", null: "apart" };
const VERDICTS = { null: "a limit would be broken" };

run(async (query) => {
  content.append(html("h1", {}, "Which pairs gain"));
  const { jobs } = await get("/v1/jobs");
  const models = gpuModels(jobs);
  if (models.length === 0) {
    content.append(notice("", "No job has a profile yet. On the GPU: advisor profile JOB"));
    return;
  }
  const wanted = query.get("gpu");
  const gpu = models.includes(wanted) ? wanted : models[0];
  const waits = notice("", `All pairs of the jobs on the ${gpu} are being worked out. The first time this takes some seconds.`);
  content.append(waits);
  const found = await askGains({ gpu_model: gpu });
  waits.remove();
  draw(found, models, { gpu, measure: query.get("measure") === "energy" ? "energy" : "time", order: "group" });
});

function draw(found, models, state) {
  const at = new Map(found.pairs.flatMap((one) => [[`${one.a} ${one.b}`, one], [`${one.b} ${one.a}`, one]]));
  const said = html("p", { id: "said", class: "hint", role: "status" }, "Point at a cell, or go to it with the arrow keys.");
  const place = html("div", {});
  const show = () => place.replaceChildren(grid(found, at, state, said), legend());
  const set = (key) => (value) => {
    state[key] = value;
    show();
  };
  const counts = ["share", "your call"].map((verdict) => found.pairs.filter((one) => one.verdict === verdict).length);
  const dark = found.pairs.filter((one) => one.verdict === "share" && one.time >= STEPS.at(-1));
  const large = groups(found).get(LARGE);
  const without = dark.filter(({ a, b }) => !large.includes(a) && !large.includes(b)).length;
  content.append(
    html("p", { class: "headline" }, `${matchMedia("(prefers-color-scheme: dark)").matches ? "Light" : "Dark"}: half of the GPU hours. ${number(dark.length)} of ${number(found.pairs.length)} pairs save ${percent(mean(dark.map((one) => one.time)))} of them on average; in ${number(without)} of these, each job needs at most half of the GPU.`),
    html("p", { class: "quiet-text" }, `On the ${found.gpu_model}, ${number(counts[0])} pairs should share a GPU, and ${number(counts[1])} are a question of prices. Against each job alone on a GPU; a cell opens the pair.`),
    found.left_out ? notice("", `${found.left_out} more jobs are left out: those measured here come first.`) : "",
    html(
      "div",
      { class: "fields" },
      models.length > 1 ? field("GPU model", select(models.map((m) => [m, m]), state.gpu, (gpu) => location.assign(address("/matrix", { gpu })))) : null,
      field("Colour by", select(Object.entries(MEASURES), state.measure, set("measure"))),
      field("Order", select([["group", "Servers, small, large"], ["gain", "Most gain first"], ["name", "Name"]], state.order, set("order"))),
    ),
    said,
    place,
  );
  show();
}

function grid(found, at, state, said) {
  const parts = [...(state.order === "group" ? groups(found) : [["", found.jobs.map((one) => one.job)]])].map(([text, own]) => [text, ordered(own, at, state)]).filter(([, own]) => own.length);
  const names = parts.flatMap(([, own]) => own);
  const first = new Set(parts.map(([, own]) => own[0]));
  const start = (name) => (first.has(name) ? "first" : null);
  const rows = names.map((a) => names.map((b) => cell(at.get(`${a} ${b}`), a, b, state)));
  rows[0][0].tabIndex = 0;
  const table = html(
    "table",
    { class: "matrix", role: "grid", "aria-label": `${MEASURES[state.measure]} of each pair` },
    html(
      "thead",
      {},
      parts.length > 1 ? html("tr", {}, html("td", {}), parts.map(([text, own]) => html("th", { scope: "colgroup", colspan: own.length, class: "first group" }, text))) : "",
      html("tr", {}, html("td", {}), names.map((name) => html("th", { scope: "col", class: start(name) }, html("span", {}, name)))),
    ),
    html("tbody", {}, names.map((name, i) => html("tr", { class: start(name) }, html("th", { scope: "row" }, link(name, "/job", { name, gpu: state.gpu })), rows[i].map((made, n) => html("td", { class: start(names[n]) }, made))))),
  );
  const tell = ({ target }) => {
    const made = target.closest?.("a.cell");
    if (made) said.textContent = made.getAttribute("aria-label");
  };
  table.addEventListener("pointerover", tell);
  table.addEventListener("focusin", tell);
  table.addEventListener("keydown", (event) => move(event, rows));
  return html("div", { class: "wide", role: "region", "aria-label": "Matrix of jobs", tabindex: "0" }, table);
}

const [SERVERS, SMALL, LARGE] = ["Servers", "Small: half of the GPU is enough", "Fill over half of the GPU"];

// Names of jobs by what they are like.
function groups({ jobs }) {
  const of = ({ size }) => (size?.latency_p99_ms ? SERVERS : size?.share_percent <= 50 ? SMALL : LARGE);
  return new Map([SERVERS, SMALL, LARGE].map((group) => [group, jobs.filter((one) => of(one) === group).map((one) => one.job)]));
}

// By the mean of what all pairs of a job gain, so that those that share well stand together.
function ordered(names, at, { order, measure }) {
  if (order === "name") return names;
  const all = [...new Set([...at.values()].map((one) => one.a))];
  const gain = (a) => all.reduce((sum, b) => sum + (at.get(`${a} ${b}`)[measure] ?? 0), 0);
  const gains = new Map(names.map((name) => [name, gain(name)]));
  return names.sort((p, q) => gains.get(q) - gains.get(p));
}

function cell(pair, a, b, { measure, gpu }) {
  const part = pair[measure];
  const step = STEPS.findLastIndex((least) => (part ?? -1) >= least);
  return html(
    "a",
    { class: `cell ${MARKS[pair.verdict]} step-${step}`, href: setAddress([a, b], gpu), tabindex: "-1", "aria-label": words(pair, a, b) },
    html("span", {}),
  );
}

function words({ verdict, split, time, energy }, a, b) {
  const answer = `${a} and ${b}: ${VERDICTS[verdict] ?? verdict}`;
  return split === null ? answer : `${answer}, ${split}: ${saved(time)} GPU time, ${saved(energy)} energy`;
}

const ARROWS = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };

function move(event, rows) {
  const step = ARROWS[event.key];
  const row = rows.findIndex((cells) => cells.includes(event.target));
  if (!step || row < 0) return;
  const next = rows[row + step[0]]?.[rows[row].indexOf(event.target) + step[1]];
  if (!next) return;
  event.preventDefault();
  event.target.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

function legend() {
  const key = (look, text) => html("li", {}, html("span", { class: `cell ${look}`, "aria-hidden": "true" }, html("span", {})), ` ${text}`);
  return html("ul", { class: "legend" }, [
    ...STEP_WORDS.map((text, i) => key(`share step-${i}`, text)),
    key("call step-3", "small: your call, by prices"),
    key("apart", "empty: better apart"),
  ]);
}
