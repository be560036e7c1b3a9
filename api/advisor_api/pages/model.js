// One model: what it was made from, how good it is, and how good it was in launches.

import { facts, html, link, notice, table, tag } from "./elements.js";
import { content, explain, run, setTitle } from "./frame.js";
import { changes, words } from "./model_figures.js";
import { jobFractions } from "./model_jobs.js";
import { observed } from "./model_observed.js";
import { worth } from "./model_worth.js";
import { moment, number } from "./numbers.js";
import { get, part } from "./service.js";

run(async (query) => {
  const name = query.get("version");
  if (!name) {
    content.append(notice("", ["Which model? Choose one from the list of ", link("models", "/models")]));
    return;
  }
  setTitle(`Model ${name}`);
  const title = html("h1", {}, `Model ${name} `);
  content.append(title);
  const { manifest, champion, history } = await get(`/v1/models/${part(name)}`);
  if (champion) title.append(tag("champion", "good", "The model in use"));
  const { tiles, jobs } = await worth(name, manifest);
  content.append(
    html("p", { class: "quiet-text" }, "Measured on jobs that it had never seen: each job was left out of training in turn."),
    tiles,
    html("h2", {}, "Job by job"),
    ...(jobs ? jobFractions(jobs) : [notice("", "This model carries no evaluation by job. On the command line: advisor evaluate")]),
  );
  await section("Predicted against observed in launches", () => observed((one) => one.model_version === manifest.version));
  content.append(html("h2", {}, "What it was made from"), summary(manifest), html("details", {}, html("summary", {}, "All figures"), figures(manifest.figures)));
  content.append(html("h2", {}, "History"), history.length ? changes(history) : notice("", "This model was never promoted or replaced."));
});

// A part that may fail alone: the rest of the page stays.
async function section(title, make) {
  content.append(html("h2", {}, title));
  try {
    content.append(...(await make()));
  } catch (error) {
    content.append(explain(error));
  }
}

function summary({ version, learner, created_at: made, gpu_models: gpus, heads, dataset }) {
  return facts([
    ["Version", version],
    ["Made", moment(made)],
    ["Learner", learner],
    ["Predicts", heads.map(({ name, unit }) => (unit === "1" ? name : `${name}, ${unit}`)).join("; ")],
    ["GPU models", gpus.join(", "), `${dataset.cards} cards`],
    ["Pairs", number(dataset.pairs), `${number(dataset.pair_points)} points`],
    ["Jobs", number(dataset.jobs.length)],
  ]);
}

function figures(values) {
  const columns = [{ name: "Figure", cell: ([key]) => words(key) }, { name: "%", number: true, cell: ([, value]) => number(value) }];
  return table("Figures", columns, Object.entries(values));
}

