// The models of this server, which one is used, and since when.

import { html, link, notice, table, tag } from "./elements.js";
import { content, run } from "./frame.js";
import { FIGURES } from "./model_figures.js";
import { changes } from "./model_history.js";
import { moment, number } from "./numbers.js";
import { get } from "./service.js";

run(async () => {
  content.append(html("h1", {}, "Models"));
  const { models, history } = await get("/v1/models");
  content.append(
    html("p", { class: "quiet-text" }, "A model predicts what two jobs do together. The champion is the one in use. The figures are of jobs that it had not seen."),
    list(models),
    html("h2", {}, "History"),
    history.length
      ? changes(history)
      : notice("", "Nothing was promoted: the model that came with advisor is used."),
  );
});

function list(models) {
  const columns = [
    { name: "Model", cell: (m) => [link(m.model, "/model", { version: m.model }), " ", badges(m)] },
    { name: "Version", cell: (m) => m.version ?? "" },
    { name: "Made", cell: (m) => (m.created_at ? moment(m.created_at) : "") },
    { name: "GPU models", cell: (m) => m.gpu_models.join(", ") },
    { name: "Pairs", number: true, cell: (m) => m.pairs ?? "" },
    ...FIGURES.map(([key, title]) => ({ name: title, number: true, cell: (m) => figure(m, key) })),
  ];
  return table("Models", columns, models, { stacked: true, rowClass: (m) => (m.champion ? "chosen" : null) });
}

function badges(model) {
  return [
    model.champion ? tag("champion", "good", "The model in use") : null,
    model.error ? tag("damaged", "bad", model.error) : null,
  ];
}

function figure({ figures }, key) {
  return key in figures ? number(figures[key]) : "";
}
