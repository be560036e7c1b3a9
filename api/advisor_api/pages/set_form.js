// The form of a request about two to seven jobs on one GPU.

import { field, html, select } from "./elements.js";
import { BUNDLED_MODEL } from "./gains.js";
import { DEFAULT_OBJECTIVE, OBJECTIVES } from "./set_view.js";

const FEWEST = 2;
const MOST = 7;

// The form; `onchange` gets each new question.
export function questionForm(rows, query, onchange) {
  const names = [...new Set(rows.map((row) => row.job))];
  const state = start(rows, names, query);
  const seats = html("div", { class: "seats-form" });
  const limits = html("div", { class: "fields" });
  const changed = () => {
    checkGpu(state, rows);
    draw();
    onchange(question(state));
  };
  const set = (key) => (value) => {
    state[key] = value;
    changed();
  };
  const draw = () => {
    const choices = names.map((name) => [name, name]);
    seats.replaceChildren(
      ...state.jobs.map((job, i) => seat(choices, state, i, changed)),
      state.jobs.length < MOST
        ? html("button", { type: "button", id: "add", onclick: () => set("jobs")([...state.jobs, state.jobs.at(-1)]) }, "+ Add a job")
        : "",
    );
    limits.replaceChildren(...limitFields(state, rows, set));
  };
  checkGpu(state, rows);
  draw();
  const open = state.steps === "fine" || Object.values(state.least).some(Boolean) || state.maxP99 || state.maxPower || state.objective !== DEFAULT_OBJECTIVE;
  const element = html(
    "form",
    { onsubmit: (event) => event.preventDefault() },
    seats,
    html("details", { open }, html("summary", {}, "Objective, steps and limits"), limits),
  );
  return { element, question: question(state) };
}

function seat(choices, state, i, changed) {
  const put = (job) => {
    state.jobs = state.jobs.with(i, job);
    changed();
  };
  const leave = () => {
    state.jobs = state.jobs.toSpliced(i, 1);
    changed();
  };
  const many = state.jobs.length > FEWEST;
  return html(
    "div",
    { class: "row" },
    field(`Job ${i + 1}`, select(choices, state.jobs[i], put)),
    many ? html("button", { type: "button", class: "quiet", onclick: leave, "aria-label": `Leave out job ${i + 1}` }, "×") : "",
  );
}

function limitFields(state, rows, set) {
  const models = common(rows, state.jobs);
  const isPair = state.jobs.length === FEWEST;
  const titles = Object.entries(OBJECTIVES).map(([key, { title }]) => [key, title]);
  return [
    models.length > 1 ? field("GPU model", select(models.map((model) => [model, model]), state.gpu, set("gpu"))) : "",
    field("Objective", select(titles, state.objective, set("objective"))),
    isPair ? field("Steps of the split", select([["nine", "10 % (nine splits)"], ["fine", "two SMs"]], state.steps, set("steps"))) : "",
    ...[...new Set(state.jobs)].map((job) => field(`Minimum speed of ${job}, %`, numberInput(state.least[job] ?? "", { min: 1, max: 100 }, (value) => set("least")({ ...state.least, [job]: value })))),
    field("Longest p99 of servers, ms", numberInput(state.maxP99, { min: 1, max: 100000 }, set("maxP99"))),
    field("Power ceiling, W", numberInput(state.maxPower, { min: 1, max: 100000 }, set("maxPower"))),
  ];
}

// What stands there before anybody has chosen: jobs that can be asked about together. With those that
// come with advisor it is the pair of the README.
function example(rows, names) {
  const known = ["bert-serve-10", "triad"];
  if (known.every((name) => names.includes(name)) && common(rows, known).length > 0) return known;
  const pairs = names.flatMap((a, i) => names.slice(i + 1).map((b) => [a, b]));
  return pairs.find((pair) => common(rows, pair).length > 0) ?? [names[0], names[0]];
}

function start(rows, names, query) {
  const objective = query.get("objective");
  const asked = (query.get("jobs") ?? "").split(/[+ ]/).filter((name) => names.includes(name)).slice(0, MOST);
  const others = asked.length > 0 ? names.filter((name) => common(rows, [asked[0], name]).length > 0) : example(rows, names);
  return {
    jobs: [...asked, ...others.slice(0, Math.max(0, FEWEST - asked.length))],
    gpu: query.get("gpu"),
    objective: objective in OBJECTIVES ? objective : DEFAULT_OBJECTIVE,
    steps: query.get("steps") === "fine" ? "fine" : "nine",
    // As min=a:60,b:40.
    least: Object.fromEntries((query.get("min") ?? "").split(",").filter(Boolean).map((text) => text.split(":"))),
    maxP99: query.get("max_p99") ?? "",
    maxPower: query.get("max_power") ?? "",
  };
}

// A number or nothing; what the browser finds invalid is said by it, and not asked for.
function numberInput(value, bounds, set) {
  const onchange = ({ target }) => {
    if (target.reportValidity()) set(target.value);
  };
  return html("input", { type: "number", inputmode: "decimal", step: "any", placeholder: "none", value, ...bounds, onchange });
}

// GPU models on which all of the jobs have a profile.
function common(rows, jobs) {
  const models = (job) => rows.filter((row) => row.job === job).map((row) => row.gpu_model);
  return jobs.map(models).reduce((all, own) => all.filter((model) => own.includes(model)));
}

function checkGpu(state, rows) {
  const models = common(rows, state.jobs);
  if (models.includes(state.gpu)) return;
  state.gpu = models.includes(BUNDLED_MODEL) ? BUNDLED_MODEL : (models[0] ?? null);
}

function question({ jobs, gpu, objective, steps, least, maxP99, maxPower }) {
  const isPair = jobs.length === FEWEST;
  const given = (text, scale = 1) => (text === "" ? null : Number(text) / scale);
  return {
    jobs,
    gpu,
    isPair,
    body: {
      jobs: jobs.map((job) => ({ job, min_speed: given(least[job] ?? "", 100) })),
      objective,
      gpu_model: gpu || null,
      max_p99_ms: given(maxP99),
      max_power_w: given(maxPower),
      words: true,
      every: true,
      fine: isPair && steps === "fine",
    },
    query: {
      jobs: jobs.join("+"),
      gpu,
      objective: objective === DEFAULT_OBJECTIVE ? null : objective,
      steps: steps === "nine" ? null : steps,
      min: jobs.filter((job, i) => least[job] && jobs.indexOf(job) === i).map((job) => `${job}:${least[job]}`).join(","),
      max_p99: maxP99,
      max_power: maxPower,
    },
  };
}
