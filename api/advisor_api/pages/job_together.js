// A job beside others, and beside copies of itself.

import { facts, html, link, notice, table, tag } from "./elements.js";
import { askGains, partnersOf, saved, setLink } from "./gains.js";
import { number, percent, withUnit } from "./numbers.js";
import { post, ServiceError } from "./service.js";
import { SHARING_WORDS } from "./set_view.js";

const MOST_PARTNERS = 10;

// Two parts of the page; each may be refused by itself, and says why then.
export async function besideAndCopies(job, gpu) {
  const refused = (title) => (error) => {
    if (!(error instanceof ServiceError)) throw error;
    return [html("h2", {}, title), notice("", error.message)];
  };
  const beside = askGains({ gpu_model: gpu, beside: job });
  const copies = post("/v1/recommendations", { jobs: [{ job }], gpu_model: gpu });
  const parts = await Promise.all([
    beside.then((found) => partners(job, gpu, found), refused("Beside other jobs")),
    copies.then(copiesOf, refused("Copies of it on one GPU")),
  ]);
  return parts.flat();
}

function partners(job, gpu, found) {
  const best = partnersOf(job, found.pairs).slice(0, MOST_PARTNERS);
  const own = found.jobs.find((one) => one.job === job);
  const columns = [
    { name: "Partner", cell: (p) => setLink(p.partner, [job, p.partner], gpu) },
    { name: "Answer", cell: (p) => tag(p.verdict, p.verdict === "share" ? "good" : "") },
    { name: "Split", cell: (p) => p.split },
    { name: "GPU time", number: true, cell: (p) => saved(p.time) },
    { name: "Energy", number: true, cell: (p) => saved(p.energy) },
    { name: "Its speed", number: true, cell: (p) => percent(Math.min(p.speeds[0], 1)) },
    { name: "Partner's speed", number: true, cell: (p) => percent(Math.min(p.speeds[1], 1)) },
  ];
  return [
    html("h2", {}, "Beside other jobs"),
    html(
      "p",
      { class: "quiet-text" },
      own?.size ? `Alone it keeps ${percent(Math.min(own.size.speed, 1))} of its speed at ${own.size.share_percent}\u00a0% of the GPU. ` : "Alone it fills the GPU. ",
      best.length ? `The ${best.length} best of ${found.jobs.length} jobs to share a GPU with, against each alone on a GPU. ` : "",
      link("All of them in the matrix", "/matrix", { gpu }),
    ),
    best.length ? table("Best partners", columns, best, { stacked: true }) : notice("", "There is no job that it should share a GPU with."),
  ];
}

function copiesOf({ choice, jobs: [{ rate_unit: unit }], replicas: found }) {
  const shown = found.copies;
  const best = shown[found.best - 1];
  return [
    html("h2", {}, "Copies of it on one GPU"),
    facts([
      ["Copies to run", number(found.best), choice ? (SHARING_WORDS[choice.sharing] ?? `at ${choice.split}`) : ""],
      ["Rate of all", choice ? `${number(best.rate.value / shown[0].rate.value)} times` : null, "that of one"],
      ["Energy", choice ? saved(best.energy_saved.value) : null, "for the same work, freed GPUs off"],
    ]),
    html("p", {}, `${found.ended_by ? `Ended by ${found.ended_by}: ` : ""}${found.why}.`),
    table("Copies", columns(found, unit), shown, { stacked: true, rowClass: (one) => (one.number === found.best ? "chosen" : null) }),
  ];
}

function columns({ best }, unit) {
  return [
    { name: "Copies", cell: (one) => number(one.number) },
    { name: `${unit}/s`, number: true, cell: (one) => number(one.rate.value) },
    { name: "Each, % of alone", number: true, cell: (one) => number(100 * Math.min(one.speed.value, 1)) },
    { name: "At worst", number: true, cell: (one) => number(100 * Math.min(one.speed.low, 1)) },
    { name: "p99, ms", number: true, cell: (one) => one.latency_p99_ms && number(one.latency_p99_ms.value) },
    { name: "Power", number: true, cell: (one) => withUnit(one.power_w.value, "W") },
    { name: "J each", number: true, cell: (one) => number(one.joules.value) },
    { name: "Notes", cell: (one) => [one.number > best ? tag("too many", "warn") : null, one.measured?.at_choice ? tag("measured", "good") : null] },
  ];
}
