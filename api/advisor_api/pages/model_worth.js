// What a model's choices are worth, in large.

import { html } from "./elements.js";
import { FIGURES, savedOverHalves } from "./model_figures.js";
import { percent } from "./numbers.js";
import { get, part } from "./service.js";

// The tiles, and the evaluation by job where the model carries one; else null.
export async function worth(name, { files, figures }) {
  const jobs = "evaluation.json" in files ? (await get(`/v1/models/${part(name)}/evaluation`)).jobs : null;
  const saved = jobs && savedOverHalves(jobs);
  const shown = FIGURES.filter(([key]) => key in figures).map(([key, title, say, remark]) => [title, say(figures[key]), remark]);
  if (saved !== null) shown.unshift([`Its splits take ${saved < 0 ? "more" : "less"} energy`, percent(Math.abs(saved)), "than half of the GPU for each"]);
  const tiles = html("dl", { class: "tiles", id: "worth" }, shown.map(([title, value, remark]) => html("div", {}, html("dt", {}, title), html("dd", {}, value, html("small", {}, remark)))));
  return { tiles, jobs };
}
