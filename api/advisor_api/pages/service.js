// Questions to the service that these pages came from.

const KEY = "advisor.token";

export class ServiceError extends Error {
  constructor(status, code, message, requestId = null) {
    super(message);
    Object.assign(this, { status, code, requestId });
  }

  // Another token, or one at all, could help.
  get wantsToken() {
    return this.status === 401 || (this.status === 403 && this.code !== "launching-off");
  }
}

// The token is kept until the tab is closed, and leaves it in the Authorization header only.
export function token() {
  return sessionStorage.getItem(KEY);
}

export function keepToken(value) {
  if (value) sessionStorage.setItem(KEY, value);
  else sessionStorage.removeItem(KEY);
}

export function get(path, signal) {
  return ask("GET", path, undefined, signal);
}

export function post(path, body, signal) {
  return ask("POST", path, body, signal);
}

export function remove(path) {
  return ask("DELETE", path);
}

// A name as one part of a path.
export function part(name) {
  return encodeURIComponent(name);
}

// By path: answers with an ETag, by which the service says that they have not changed.
const kept = new Map();

async function ask(method, path, body, signal) {
  const headers = { Accept: "application/json" };
  const had = method === "GET" ? kept.get(path) : null;
  if (had) headers["If-None-Match"] = had.tag;
  if (token()) headers.Authorization = `Bearer ${token()}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, { method, headers, signal, body: JSON.stringify(body), credentials: "omit", cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServiceError(0, "no-answer", "The service does not answer. Is advisor serve running?");
  }
  if (had && response.status === 304) return had.answer;
  const answer = await response.json().catch(() => null);
  const tag = response.headers.get("ETag");
  if (response.ok && tag) kept.set(path, { tag, answer });
  if (response.ok) return answer;
  throw refused(response, answer);
}

function refused(response, answer) {
  const { code, message, request_id: requestId } = answer?.error ?? {};
  const told = message ?? `The service answered ${response.status} without saying why.`;
  return new ServiceError(response.status, code ?? "unknown", told, requestId);
}
