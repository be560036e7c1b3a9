// What the power of a GPU goes to: a stacked bar for each share or split, and its watts as text.

import { html, notice, svg, table } from "./elements.js";
import { number } from "./numbers.js";
import { ServiceError } from "./service.js";

// What each part stands for, from the left end of a bar.
export const PARTS = {
  floor: "a context on an idle GPU at full clock, and leakage",
  tensor: "tensor cores",
  fp32: "FP32 pipes",
  integer: "integer pipes",
  warps: "SMs that hold warps, and all other pipes",
  fabric: "what is awake while kernels run, such as L2",
  memory: "moving bytes to and from HBM",
};

const MARKS = { measured: "", estimated: "~", extrapolated: "?" };

// The length of a bar in units of its own; the page stretches it.
const LENGTH = 1000;
const HEIGHT = 20;

// Whole watts: no part is known more exactly.
function w(value) {
  return number(Math.round(value) || 0);
}

// Of one job alone, as `advisor power components JOB` says it.
export function partsOfJob(found) {
  const rows = found.shares.map((one) => ({ name: `${number(one.share_percent)}\u00a0%`, power: one.power }));
  return html("div", { class: "parts" }, explained(found), partTable("Share", rows));
}

// Of two jobs together, as `advisor power components A B --splits` says it; `show` tells of a split.
export function partsOfPair(found) {
  const rows = found.splits.map((one) => ({ name: one.split, power: one.power, split: one }));
  const said = html("p", { id: "jostling" });
  const made = partTable("Split", rows);
  const lines = [...made.querySelectorAll("tbody tr")];
  return {
    element: html("div", { class: "parts" }, explained(found), made, said),
    show: ({ split, sharing }) => {
      const at = rows.findIndex((row) => row.name === split);
      lines.forEach((line, i) => line.classList.toggle("chosen", i === at));
      said.textContent = at < 0 ? missing(split, sharing) : whole(rows[at].split);
    },
  };
}

// What stands where nothing is known: nothing is drawn, and the service's words say why.
export function unknownParts(error) {
  if (!(error instanceof ServiceError)) throw error;
  return notice("", `What the power goes to is not known: ${error.message}`);
}

function missing(split, sharing) {
  if (sharing === "exclusive") return "One after the other each job draws what it draws alone: its own page has the parts.";
  return `Of ${split} it is not known what the power goes to; the splits above are those of the default steps, and those measured.`;
}

// Headroom and who lowers the clock.
function whole({ power, jostling }) {
  const left = power.headroom_w;
  const sentence = jostling[0].toUpperCase() + jostling.slice(1);
  return `${sentence}. ${left === null ? "How much is left to the power limit is not known" : leftText(left)}.`;
}

function leftText(left) {
  return left < 0 ? `The power is ${w(-left)} W above the limit` : `${w(left)} W are left to the limit`;
}

function explained({ weights, power_limit_w: limit }) {
  const ends = limit === null ? "The power limit is not known." : `The frame of a bar ends at the power limit of ${w(limit)} W.`;
  return [
    html(
      "p",
      { class: "quiet-text" },
      `A card has one sensor for its power and, some, one for the memory: watts without a mark are measured. ~ is estimated by weights fitted to ${weights.windows} windows of ${weights.jobs} jobs alone; ? is extrapolated, these had nothing like it. All are W, the small numbers 5 to 95 %. The parts are not identified: by the same weights totals of work of one kind are off by 13 % (H100) and 19 % (H200). ${ends}`,
    ),
    html(
      "ul",
      { class: "legend" },
      Object.entries(PARTS).map(([name, meaning]) =>
        html("li", {}, svg("svg", { class: "key", viewBox: "0 0 1 1", "aria-hidden": "true" }, svg("rect", { class: `part-${name}`, width: 1, height: 1 })), html("strong", {}, name), ` ${meaning}`),
      ),
    ),
  ];
}

function partTable(first, rows) {
  const most = Math.max(...rows.map(({ power }) => power.power_w + Math.max(power.headroom_w ?? 0, 0)));
  const columns = [
    { name: first, cell: (row) => row.name },
    { name: "Parts", cell: ({ name, power }) => bar(name, power, most) },
    { name: "Power, W", number: true, cell: ({ power }) => `${MARKS[power.power_basis]}${w(power.power_w)}` },
    { name: "Left, W", number: true, cell: ({ power }) => (power.headroom_w === null ? "not known" : w(power.headroom_w)) },
    ...Object.keys(PARTS).map((part) => ({ name: part, number: true, cell: ({ power }) => watts(part, power) })),
    ...(rows.some(({ power }) => power.unlike.length) ? [{ name: "Unlike all that was fitted", cell: ({ power }) => power.unlike.join(", ") }] : []),
  ];
  return table("What the power goes to", columns, rows, { stacked: true });
}

function watts(part, power) {
  const { value, low, high } = power.components_w[part];
  const mark = MARKS[part === "memory" ? power.memory_basis : power.others_basis];
  return [`${mark}${w(value)}`, html("br"), html("small", {}, `${w(low)} to ${w(high)}`)];
}

function bar(name, power, most) {
  const wide = (value) => (LENGTH * value) / most;
  let from = 0;
  const pieces = Object.keys(PARTS).map((part) => {
    const x = from;
    from += wide(power.components_w[part].value);
    return svg("rect", { class: `part-${part}`, x, y: 0, width: from - x, height: HEIGHT });
  });
  const end = power.headroom_w === null ? from : Math.max(wide(power.power_w + power.headroom_w), from);
  const label = `${name}: ${w(power.power_w)} W in parts; the numbers stand beside it`;
  return svg(
    "svg",
    { class: "stack", viewBox: `0 0 ${LENGTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    svg("rect", { class: "left", x: 0, y: 0, width: end, height: HEIGHT }),
    pieces,
  );
}
