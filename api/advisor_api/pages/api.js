// What can be asked over HTTP, as this service describes itself.

import { html, table } from "./elements.js";
import { content, run } from "./frame.js";
import { get } from "./service.js";

const OBJECTS = "#/components/schemas/";

run(async () => {
  const contract = await get("/v1/openapi.json");
  const asked = Object.entries(contract.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method, operation })),
  );
  const tags = [...new Set(asked.map(({ operation }) => operation.tags[0]))];
  content.append(
    html("h1", {}, "HTTP API"),
    html(
      "p",
      { class: "quiet-text" },
      "Examples are what a service has answered, with its lists cut. For programs: ",
      html("a", { href: "/v1/openapi.json" }, "OpenAPI"),
      `, version ${contract.info.version}.`,
    ),
    ...tags.flatMap((name) => [html("h2", {}, title(name)), ...asked.filter(({ operation }) => operation.tags[0] === name).map((one) => route(contract, one))]),
    html("h2", {}, "Objects"),
    ...Object.entries(contract.components.schemas).map(([name, schema]) => object(name, schema)),
  );
  window.addEventListener("hashchange", openNamed);
  openNamed();
});

// What a link leads to is closed at first.
function openNamed() {
  const named = document.getElementById(location.hash.slice(1));
  if (named instanceof HTMLDetailsElement) {
    named.open = true;
    named.scrollIntoView();
  }
}

function route(contract, { path, method, operation }) {
  const body = operation.requestBody?.content["application/json"];
  return html(
    "details",
    { id: operation.operationId },
    html("summary", {}, html("code", {}, `${method.toUpperCase()} ${path}`), ` ${operation.summary}`),
    html("p", {}, operation.description),
    html("p", {}, needs(operation.security)),
    operation.parameters ? fields("Parameters", operation.parameters) : null,
    body ? html("p", {}, "Body: ", kind(body.schema)) : null,
    body?.example ? shown("Request", body.example) : null,
    Object.entries(operation.responses).map(([status, given]) => answer(contract, status, given)),
  );
}

function answer(contract, status, given) {
  const found = given.$ref ? contract.components.responses[given.$ref.split("/").at(-1)] : given;
  const said = found.content?.["application/json"];
  const line = html("p", {}, html("b", {}, status), ` ${found.description}. `, said ? kind(said.schema) : null);
  // Errors look alike: their form is shown once, among the objects.
  return [line, said?.example && !given.$ref ? shown(`Answer ${status}`, said.example) : null];
}

function shown(name, example) {
  return html("pre", { tabindex: "0", "aria-label": name }, JSON.stringify(example, null, 1));
}

function needs(security) {
  if (!security) return "Needs no token.";
  return security.some((one) => !Object.keys(one).length)
    ? "Needs a token if the service requires one for reading."
    : "Needs a token.";
}

function object(name, schema) {
  const required = new Set(schema.required ?? []);
  const found = Object.entries(schema.properties ?? {}).map(([key, of]) => ({
    name: key,
    schema: of,
    required: required.has(key),
    description: of.description,
  }));
  return html(
    "details",
    { id: `object-${name}` },
    html("summary", {}, html("code", {}, name)),
    html("p", {}, schema.description ?? ""),
    found.length ? fields(name, found) : html("p", {}, kind({ ...schema, description: undefined })),
  );
}

function fields(caption, rows) {
  const columns = [
    { name: "Name", cell: (row) => html("code", {}, row.name) },
    { name: "Type", cell: (row) => html("span", {}, kind(row.schema)) },
    { name: "Needed", cell: (row) => (row.required ? "yes" : "") },
    { name: "Meaning", cell: (row) => row.description ?? "" },
  ];
  return table(caption, columns, rows, { stacked: true });
}

// A type in words, with links to the objects in it.
function kind(schema) {
  if (schema.$ref) {
    const name = schema.$ref.slice(OBJECTS.length);
    return [html("a", { href: `#object-${name}` }, name)];
  }
  // Every answer is what it is, and has its number.
  if (schema.allOf) return kind(schema.allOf[0]);
  const several = schema.anyOf ?? schema.oneOf;
  if (several) return several.flatMap((one, i) => [i ? " or " : "", ...kind(one)]);
  if (schema.enum) return [schema.enum.map((one) => JSON.stringify(one)).join(", ")];
  if ("const" in schema) return [JSON.stringify(schema.const)];
  if (schema.type === "array") return ["list of ", ...(schema.items ? kind(schema.items) : ["anything"])];
  return [schema.type ?? "anything"];
}

function title(name) {
  return name[0].toUpperCase() + name.slice(1);
}
