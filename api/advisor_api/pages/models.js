// The models of this server, which one is used, and since when.

import { html, link, notice, table, tag } from "./elements.js";
import { content, run } from "./frame.js";
import { changes, FIGURES } from "./model_figures.js";
import { observed } from "./model_observed.js";
import { worth } from "./model_worth.js";
import { moment } from "./numbers.js";
import { get, part } from "./service.js";

run(async () => {
  content.append(html("h1", {}, "Models"));
  const [{ models, history }, made] = await Promise.all([get("/v1/models"), observed(() => true)]);
  content.append(
    html("p", { class: "quiet-text" }, "A model predicts what two jobs do together, from what each does alone. The one in use is called the champion. The numbers are of jobs that it had never seen."),
    ...(await champion(models)),
    html("h2", {}, "Predicted against observed in launches"),
    ...made,
    html("h2", {}, "All models"),
    list(models),
    html("h2", {}, "History"),
    history.length
      ? changes(history)
      : notice("", "Nothing was promoted: the model that came with advisor is used."),
  );
});

// The one in use, and what its choices are worth.
async function champion(models) {
  const used = models.find((one) => one.champion);
  if (!used || used.error) return [];
  const { manifest } = await get(`/v1/models/${part(used.model)}`);
  const { tiles } = await worth(used.model, manifest);
  return [html("h2", {}, "In use: ", link(used.model, "/model", { version: used.model })), tiles];
}

function list(models) {
  const columns = [
    { name: "Model", cell: (m) => [link(m.model, "/model", { version: m.model }), " ", badges(m)] },
    { name: "Made", cell: (m) => (m.created_at ? moment(m.created_at) : "") },
    { name: "GPU models", cell: (m) => m.gpu_models.join(", ") },
    { name: "Pairs", number: true, cell: (m) => m.pairs ?? "" },
    ...FIGURES.map(([key, title, say]) => ({ name: title, number: true, cell: ({ figures }) => (key in figures ? say(figures[key]) : "") })),
  ];
  return table("Models", columns, models, { stacked: true, rowClass: (m) => (m.champion ? "chosen" : null) });
}

function badges(model) {
  return [model.champion ? tag("champion", "good", "The model in use") : null, model.error ? tag("damaged", "bad", model.error) : null];
}
