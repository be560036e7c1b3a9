// What is asked of the service about a pair.

import { field, html, select } from "./elements.js";
import { BUNDLED_MODEL } from "./gains.js";
import { DEFAULT_OBJECTIVE, OBJECTIVES } from "./pair_view.js";

// The form; `onchange` gets each new question.
export function questionForm(rows, query, onchange) {
  const names = [...new Set(rows.map((row) => row.job))];
  const state = start(names, query);
  const gpuField = html("div", {});
  const changed = () => {
    checkGpu(state, rows);
    drawGpu();
    onchange(question(state));
  };
  const set = (key) => (value) => {
    state[key] = value;
    changed();
  };
  const jobA = jobSelect(names, state.a, set("a"));
  const jobB = jobSelect(names, state.b, set("b"));
  const swap = () => {
    [state.a, state.b, state.minA, state.minB] = [state.b, state.a, state.minB, state.minA];
    [jobA.value, jobB.value, minA.value, minB.value] = [state.a, state.b, state.minA, state.minB];
    changed();
  };
  const minA = percentInput(state.minA, set("minA"));
  const minB = percentInput(state.minB, set("minB"));
  const drawGpu = () => {
    const models = common(rows, state.a, state.b);
    const choices = models.map((model) => [model, model]);
    gpuField.hidden = models.length < 2;
    gpuField.replaceChildren(
      ...(models.length > 1 ? [field("GPU model", select(choices, state.gpu, set("gpu")))] : []),
    );
  };
  checkGpu(state, rows);
  drawGpu();
  const limits = html(
    "div",
    { class: "fields" },
    gpuField,
    field(
      "Objective",
      select(Object.entries(OBJECTIVES).map(([key, { title }]) => [key, title]), state.objective, set("objective")),
    ),
    field("Steps of the split", select([["nine", "10 % (nine splits)"], ["fine", "two SMs"]], state.steps, set("steps"))),
    field("Minimum speed of the first job, %", minA),
    field("Minimum speed of the second job, %", minB),
    field("Power ceiling, W", numberInput(state.maxPower, { min: 1, max: 100000 }, set("maxPower"))),
  );
  const jobs = html(
    "div",
    { class: "fields jobs" },
    field("First job", jobA),
    html("button", { type: "button", onclick: swap, "aria-label": "Swap the two jobs" }, "⇄ Swap"),
    field("Second job", jobB),
  );
  const open = state.steps === "fine" || state.minA || state.minB || state.maxPower || state.objective !== DEFAULT_OBJECTIVE;
  const element = html(
    "form",
    { onsubmit: (event) => event.preventDefault() },
    jobs,
    html("details", { open }, html("summary", {}, "Objective, steps and limits"), limits),
  );
  return { element, question: question(state) };
}

function start(names, query) {
  const named = (key, otherwise) => (names.includes(query.get(key)) ? query.get(key) : otherwise);
  const objective = query.get("objective");
  return {
    a: named("a", names[0]),
    b: named("b", names[1] ?? names[0]),
    gpu: query.get("gpu"),
    objective: objective in OBJECTIVES ? objective : DEFAULT_OBJECTIVE,
    steps: query.get("steps") === "fine" ? "fine" : "nine",
    minA: query.get("min_a") ?? "",
    minB: query.get("min_b") ?? "",
    maxPower: query.get("max_power") ?? "",
  };
}

function jobSelect(names, chosen, onchange) {
  return select(names.map((name) => [name, name]), chosen, onchange);
}

function percentInput(value, set) {
  return numberInput(value, { min: 1, max: 100 }, set);
}

// A number or nothing; what the browser finds invalid is said by it, and not asked for.
function numberInput(value, bounds, set) {
  const onchange = ({ target }) => {
    if (target.reportValidity()) set(target.value);
  };
  return html("input", { type: "number", inputmode: "decimal", step: "any", placeholder: "none", value, ...bounds, onchange });
}

function common(rows, a, b) {
  const models = (job) => rows.filter((row) => row.job === job).map((row) => row.gpu_model);
  return models(a).filter((model) => models(b).includes(model));
}

function checkGpu(state, rows) {
  const models = common(rows, state.a, state.b);
  if (models.includes(state.gpu)) return;
  state.gpu = models.includes(BUNDLED_MODEL) ? BUNDLED_MODEL : (models[0] ?? null);
}

function question(state) {
  const { a, b, gpu, objective, steps, minA, minB, maxPower } = state;
  const wanted = (job, least) => ({ job, min_speed: least === "" ? null : Number(least) / 100 });
  const body = {
    // A job beside itself keeps one minimum speed, the last that was given.
    jobs: a === b ? [wanted(a, minB || minA), wanted(b, minB || minA)] : [wanted(a, minA), wanted(b, minB)],
    objective,
    gpu_model: gpu || null,
    max_power_w: maxPower === "" ? null : Number(maxPower),
    fine: steps === "fine",
  };
  const query = {
    a,
    b,
    gpu,
    objective: objective === DEFAULT_OBJECTIVE ? null : objective,
    steps: steps === "nine" ? null : steps,
    min_a: minA,
    min_b: minB,
    max_power: maxPower,
  };
  return { a, b, gpu, body, query };
}
