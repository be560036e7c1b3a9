// Numbers as people read them. A value that is not there is a dash, never 0.

export const NONE = "–";

// Keeps a number and its unit on one line.
const SPACE = "\u00a0";

const formats = new Map();

function format(digits) {
  if (!formats.has(digits)) {
    formats.set(digits, new Intl.NumberFormat("en", { maximumSignificantDigits: digits }));
  }
  return formats.get(digits);
}

function there(value) {
  return typeof value === "number" && Number.isFinite(value);
}

// Three digits, but no digit before the point is rounded away.
export function number(value, digits = 3) {
  if (!there(value)) return NONE;
  const whole = Math.abs(value) >= 1 ? Math.floor(Math.log10(Math.abs(value))) + 1 : 0;
  return format(Math.max(digits, whole)).format(value);
}

const LONG_UNIT = 5;

export function withUnit(value, unit, digits = 3) {
  if (!there(value)) return NONE;
  // A long unit may stand in a line of its own, whole: a slash would part it from its last letter.
  return number(value, digits) + (unit.length > LONG_UNIT ? ` ${unit.replaceAll("/", "/\u2060")}` : SPACE + unit);
}

// A part of 1 in percent.
export function percent(part) {
  return there(part) ? `${number(100 * part, Math.abs(part) < 0.1 ? 2 : 3)}${SPACE}%` : NONE;
}

// A percentage that is one already, such as a share.
export function share(value) {
  return there(value) ? `${Number(value.toFixed(1))}${SPACE}%` : NONE;
}

// Low and high end of an interval; empty where it is a single value.
export function range({ low, high }, scale = 1, digits = 3) {
  if (!there(low) || !there(high) || low === high) return "";
  return `${number(scale * low, digits)} to ${number(scale * high, digits)}`;
}

// How much more or less than another value, with its sign.
export function change(value, base) {
  if (!there(value) || !there(base) || base === 0) return NONE;
  const part = 100 * (value / base - 1);
  const text = number(Math.abs(part), 2);
  if (Number(text) === 0 || Math.abs(part) < 0.05) return "same";
  return `${part > 0 ? "+" : "−"}${text}${SPACE}%`;
}

// A moment, in the reader's time zone.
export function moment(text) {
  const date = new Date(text ?? "");
  if (Number.isNaN(date.getTime())) return NONE;
  const part = (value) => String(value).padStart(2, "0");
  const day = `${date.getFullYear()}-${part(date.getMonth() + 1)}-${part(date.getDate())}`;
  return `${day} ${part(date.getHours())}:${part(date.getMinutes())}`;
}

// The time of day, with its date where it is not the day of `now`.
export function clock(text, now) {
  const [day, time] = moment(text).split(" ");
  return time && moment(now).startsWith(day) ? time : moment(text);
}

// In the words of the command line, duration_text of advisor/formats/moments.py.
export function duration(seconds) {
  if (!there(seconds)) return NONE;
  if (seconds < 0) return `−${duration(-seconds)}`;
  if (seconds < 60) return `${number(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  if (minutes < 48 * 60) return two(minutes, 60, "h", "min");
  return two(Math.round(seconds / 3600), 24, "d", "h");
}

function two(count, each, large, small) {
  const rest = count % each;
  return `${Math.floor(count / each)} ${large}${rest ? ` ${rest} ${small}` : ""}`;
}

// Joules as people pay for them.
export function energy(joules) {
  if (!there(joules)) return NONE;
  const wh = joules / 3600;
  return Math.abs(wh) < 1000 ? withUnit(wh, "Wh") : withUnit(wh / 1000, "kWh");
}

export function mean(values) {
  const kept = values.filter(there);
  return kept.length ? kept.reduce((sum, value) => sum + value, 0) / kept.length : null;
}
