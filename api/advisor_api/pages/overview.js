// The first page: each GPU with its jobs, the savings of sharing, and ended launches.

import { html, link, table } from "./elements.js";
import { content, run } from "./frame.js";
import { drawable, speedStrip } from "./launch_strips.js";
import { countedNames, powerOf, savedOf, ratedSpeed, stateTag, verdictTag } from "./launch_words.js";
import { clock, duration, energy, percent, withUnit } from "./numbers.js";
import { card, shape } from "./overview_card.js";
import { nothing, saved } from "./overview_saved.js";
import { poll } from "./poll.js";
import { get } from "./service.js";

const EVERY_MS = 2000;

run(async () => {
  const asOf = html("small", {});
  const totals = html("section", { "aria-label": "Saved" });
  const [cards, rests] = [html("div", { class: "gpus" }), html("div", {})];
  const ended = html("section", { hidden: true });
  const empty = html("div", {});
  content.append(html("h1", {}, "Overview ", asOf), empty, totals, cards, rests, ended);
  const drawCards = keeper(cards);
  let [last, shown] = ["", null];
  poll(totals, async () => {
    const seen = await get("/v1/overview");
    const now = new Date().toISOString();
    asOf.textContent = `as of ${clock(seen === shown ? now : seen.at, now)}`;
    if (seen === shown) return true; // nothing has changed
    shown = seen;
    empty.replaceChildren(...(seen.gpus.length || seen.ended.length ? [] : [nothing()]));
    const [tiles, basis] = saved(seen);
    totals.replaceChildren(tiles);
    rests.replaceChildren(basis);
    drawCards(seen);
    const those = JSON.stringify(seen.ended);
    if (those !== last) drawEnded(ended, seen);
    last = those;
    return true;
  }, EVERY_MS);
});

// Draws the cards anew only where others are there; else their numbers change in place.
function keeper(place) {
  let drawn = "";
  let made = [];
  return ({ at, gpus, running }) => {
    const launches = new Map(running.map((one) => [one.launch_id, one]));
    // Each stays where it is when launches come and go.
    const found = gpus.map((gpu) => [gpu, launches.get(gpu.launch_id) ?? null]);
    const now = JSON.stringify(found.map(([gpu, one]) => shape(gpu, one)));
    if (now !== drawn) {
      made = found.map(([gpu, one]) => card(gpu, one));
      place.replaceChildren(...made.map((one) => one.element));
    }
    drawn = now;
    made.forEach((one, n) => one.update(...found[n], at));
  };
}

function drawEnded(place, { ended, at }) {
  place.hidden = ended.length === 0;
  // A reader with the focus on a link stays there.
  const focused = place.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  place.replaceChildren(html("h2", {}, "Ended ", link("all launches", "/launches")), list(ended, at));
  if (focused) place.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
}

function list(ended, at) {
  const columns = [
    { name: "Launch", cell: (l) => [link(clock(l.started_at, at), "/launch", { id: l.launch_id }), " ", l.state === "failed" ? stateTag(l) : verdictTag(l)] },
    { name: "Jobs", cell: (l) => countedNames(l) },
    { name: "Speeds", cell: (o) => (drawable(o.history) ? speedStrip(o, o.history) : "") },
    { name: "Observed (predicted)", cell: (l) => speeds(l) },
    { name: "Power", number: true, cell: (l) => beside(withUnit(powerOf(l), "W"), l.forecast && withUnit(l.forecast.power_w.value, "W")) },
    { name: "Energy saved", number: true, cell: (l) => beside(percent(savedOf(l)), l.forecast?.energy_saved && percent(l.forecast.energy_saved.value)) },
    { name: "In all", number: true, cell: (l) => (l.ledger ? gain(l.ledger.alone_j - l.ledger.energy_j) : "") },
    { name: "Lasted", number: true, cell: (l) => duration(l.overlap_s + l.rest_s) },
  ];
  return table("Ended launches", columns, ended, { stacked: true });
}

function speeds(launch) {
  const told = launch.jobs.map((job, n) => {
    const expected = launch.forecast?.jobs[n];
    return beside(ratedSpeed(job), expected && !job.joined_at ? percent(expected.rate.value / expected.solo_rate) : null);
  });
  return told.flatMap((one, n) => (n ? [", ", one] : [one]));
}

function gain(joules) {
  return html("span", { class: joules < 0 ? "bad" : null }, energy(joules));
}

function beside(observed, predicted) {
  return html("span", {}, observed, predicted ? html("small", {}, ` (${predicted})`) : null);
}
