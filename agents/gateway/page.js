"use strict";
// What the pipelines of a gateway do, drawn anew each second. Whatever comes from them is set as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "g", "rect", "path", "text", "title"]);
const MINUTES = 5;
const AGAIN_MS = 2000;
const QUIET_SECONDS = 3; // after which a line of a chart is broken
const BEFORE_SECONDS = 30; // its outcome, from when a query is searched: an id need not say when it was sent
const [WIDTH, HEIGHT, GAP] = [172, 104, 44];
const byId = (id) => document.getElementById(id);
const narrow = matchMedia("(max-width: 700px)");
const histories = new Map(); // by pipeline: its last minutes
let token = "";
let connected = new AbortController();
let tokenGiven = () => {};

function make(tag, attributes = {}, ...children) {
  const element = SVG_TAGS.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// Bring the children in line with the items, by key: what stays is not moved, so it keeps the focus.
function reconcile(parent, items, key, create, update = () => {}) {
  const known = new Map([...parent.children].map((child) => [child.key, child]));
  const wanted = new Set(items.map(key));
  for (const [name, child] of known) if (!wanted.has(name)) child.remove();
  let next = parent.firstElementChild;
  for (const item of items) {
    let child = known.get(key(item));
    if (!child) {
      child = create(item);
      child.key = key(item);
    }
    if (child === next) next = next.nextElementSibling;
    else parent.insertBefore(child, next);
    update(child, item);
  }
}

// Rows of texts; with `act`, the first cell is a button.
function fill(table, items, key, cells, act) {
  const row = (item) => {
    const made = make("tr", {}, ...cells(item).map(() => make("td")));
    if (act) {
      const button = make("button", { type: "button", title: "What became of it?" });
      button.addEventListener("click", () => act(item));
      made.firstChild.append(button);
    }
    return made;
  };
  reconcile(table.tBodies[0], items, key, row, (made, item) =>
    cells(item).forEach((text, n) => write(act && n === 0 ? made.cells[0].firstChild : made.cells[n], text)));
  table.hidden = items.length === 0;
}

function table(...heads) {
  return make("table", {}, make("thead", {}, make("tr", {}, ...heads.map((head) => make("th", {}, head)))), make("tbody"));
}

const show = (value, digits = 1) =>
  value === null || value === undefined ? "–" : value >= 100 ? Math.round(value).toString() : value.toFixed(digits).replace(/\.0$/, "");
const ms = (seconds) => (seconds === null || seconds === undefined ? "–" : `${show(seconds * 1000)} ms`);
const ratio = (ready, wanted) => (ready === wanted ? `${ready}` : `${ready}/${wanted}`);

// The graph: stages by how far they are from the roots, then the gate.

function layers(graph) {
  const depth = {};
  const depthOf = (stage) => (depth[stage] ??= Math.max(-1, ...graph[stage].map(depthOf)) + 1);
  const found = [];
  for (const stage of Object.keys(graph)) (found[depthOf(stage)] ??= []).push(stage);
  return found;
}

function drawGraph(box, pipeline) {
  const { graph, stages } = pipeline;
  const followed = new Set(Object.values(graph).flat());
  const whole = { ...graph, gate: Object.keys(graph).filter((stage) => !followed.has(stage)) };
  const rows = layers(whole);
  const most = Math.max(...rows.map((row) => row.length));
  const down = narrow.matches;
  const at = {};
  rows.forEach((row, n) => row.forEach((stage, m) => {
    const [along, across] = [n, m + (most - row.length) / 2];
    at[stage] = down
      ? [across * (WIDTH + 12) + 1, along * (HEIGHT + GAP / 2) + 1] : [along * (WIDTH + GAP) + 1, across * (HEIGHT + 14) + 1];
  }));
  const [wide, high] = [0, 1].map((n) => Math.max(...Object.values(at).map((place) => place[n])) + (n ? HEIGHT : WIDTH) + 1);
  const edges = Object.entries(whole).flatMap(([stage, after]) => after.map((before) => {
    const [[x, y], [u, v]] = [at[before], at[stage]];
    const [from, to] = down ? [[x + WIDTH / 2, y + HEIGHT], [u + WIDTH / 2, v]] : [[x + WIDTH, y + HEIGHT / 2], [u, v + HEIGHT / 2]];
    const bend = down ? `${from[0]},${(from[1] + to[1]) / 2} ${to[0]},${(from[1] + to[1]) / 2}`
      : `${(from[0] + to[0]) / 2},${from[1]} ${(from[0] + to[0]) / 2},${to[1]}`;
    return make("path", { d: `M${from} C${bend} ${to}` });
  }));
  const nodes = Object.entries(at).map(([stage, [x, y]]) => node(stage, stages?.[stage], x, y));
  box.replaceChildren(make("svg", { width: wide, height: high, role: "img", "aria-label": described(at, stages) }, ...edges, ...nodes));
}

function lines(stage, known) {
  if (!known) return ["no process here"];
  const limit = known.queue_limit ? `/${known.queue_limit}` : "";
  if (stage === "gate") return [`${show(known.rate)}/s`, `holds ${known.queue}`, `median ${ms(known.latency)}`];
  return [
    `${show(known.rate)}/s, ${known.wanted ? `${ratio(known.workers, known.wanted)} workers` : `${known.processes} processes`}`,
    `queue ${known.queue}${limit}`,
    `batch ${show(known.batch)}, ${ms(known.latency)}`,
    `drops ${show(known.drops)}/s (${known.dropped})`,
  ];
}

function node(stage, known, x, y) {
  const short = stage.length > 20 ? `${stage.slice(0, 19)}…` : stage;
  const alarm = known && (known.drops > 0 || known.workers < known.wanted) ? " alarm" : "";
  return make("g", { class: known ? `stage${alarm}` : "stage away" },
    make("title", {}, stage),
    make("rect", { x, y, width: WIDTH, height: HEIGHT, rx: 8 }),
    make("text", { x: x + 10, y: y + 21, class: "name" }, short),
    ...lines(stage, known).map((text, n) => make("text", { x: x + 10, y: y + 41 + 18 * n, class: n ? "small" : "" }, text)));
}

const described = (at, stages) =>
  Object.keys(at).map((stage) => `${stage}: ${lines(stage, stages?.[stage]).join(", ")}`).join("; ");

// Charts of the last minutes.

function drawChart(figure, points, keys, scale, unit, limit) {
  const known = points.flatMap((point) => keys.map((key) => point[key])).filter((value) => value !== null && value !== undefined);
  const top = Math.max(...known, limit ?? 0, 1e-9) * 1.1;
  const end = points.at(-1)?.at ?? 0;
  const x = (point) => (300 * (1 - (end - point.at) / (60 * MINUTES))).toFixed(1);
  const y = (value) => (90 * (1 - value / top)).toFixed(1);
  const path = (key) => {
    let before = null;
    return points.map((point) => {
      if (point[key] === null || point[key] === undefined) return "";
      const move = before === null || point.at - before > QUIET_SECONDS ? "M" : "L";
      before = point.at;
      return `${move}${x(point)},${y(point[key])}`;
    }).join("");
  };
  const drawn = keys.map((key, n) => make("path", { d: path(key), class: n ? "second" : "first" }));
  if (limit) drawn.push(make("path", { d: `M0,${y(limit)}H300`, class: "limit" }));
  figure.querySelector("svg").replaceChildren(...drawn);
  write(figure.querySelector(".scale"), `; ${limit ? `the dashes are the SLO of ${ms(limit)}, ` : ""}the top is ${show(top * scale)}${unit}, the left ${MINUTES} minutes ago`);
}

function chart(label, ...keys) {
  const texts = keys.map((_, n) => make("span", { class: n ? "key-second" : "key-first" }));
  return make("figure", {},
    make("svg", { class: "chart", viewBox: "0 0 300 90", preserveAspectRatio: "none", role: "img", "aria-label": label }),
    make("figcaption", {}, ...texts, make("span", { class: "scale" })));
}

// A pipeline: made once, then brought up to date.

function section(name) {
  const parts = {
    sub: make("p", { class: "sub" }),
    troubles: make("ul", { class: "troubles" }),
    graph: make("div", { class: "graph scroll", tabindex: 0, role: "group", "aria-label": `stages of ${name}` }),
    goodput: chart(`good answers a second of ${name}`, "goodput"),
    latency: chart(`latency of ${name}`, "median", "p99"),
    outcomes: table("outcome", "reason", "count"),
    sizes: table("stage", "workers", "ordered by", "version"),
    recent: table("query", "time", "outcome", "stage", "text"),
  };
  const id = make("input", { required: "", "aria-label": `request id of a query to ${name}`, placeholder: "request id" });
  const form = make("form", {}, id, " ", make("button", {}, "What became of it?"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    inspect(name, id.value.trim(), null);
  });
  const block = (title, wide, ...inner) => make("div", wide ? { class: "wide" } : {}, make("h3", {}, title), ...inner);
  const scroll = (inner) => make("div", { class: "scroll" }, inner);
  const recent = make("div", { class: "scroll tall", tabindex: 0, role: "group", "aria-label": `last drops and failures of ${name}` }, parts.recent);
  const made = make("section", {}, make("h2", {}, name), parts.sub, parts.troubles, parts.graph,
    make("div", { class: "blocks" }, parts.goodput, parts.latency,
      block("Outcomes", false, scroll(parts.outcomes)), block("Sizes and versions", false, scroll(parts.sizes)),
      block("Last drops and failures", true, form, recent)));
  made.parts = parts;
  return made;
}

function troubles(pipeline) {
  const said = pipeline.kafka ? [pipeline.kafka] : [];
  if (pipeline.unanswered_seconds >= 3) said.push(`nothing was answered for ${Math.round(pipeline.unanswered_seconds)} s while queries wait`);
  for (const place of pipeline.flapping ?? []) said.push(`${place} keeps dying and is restarted each time`);
  for (const [name, process] of Object.entries(pipeline.processes ?? {}))
    if (!["running", "standby"].includes(process.state)) said.push(`${name}: ${process.state}`);
  if (pipeline.unseen?.length) said.push(`of other machines, or gone: ${pipeline.unseen.join(", ")}`);
  return said;
}

function sizes(pipeline) {
  const named = (versions) => Object.entries(versions).map(([version, count]) => `${version || "none"} (${count})`).join(", ");
  const stages = Object.keys(pipeline.graph).map((stage) => [stage, pipeline.stages?.[stage]]).filter(([, known]) => known)
    .map(([stage, known]) => [stage, ratio(known.workers, known.wanted), known.orders.join("; ") || "the file", named(known.versions)]);
  const members = Object.values(pipeline.states ?? {})
    .map((row) => [row.name, row.role, "", `epoch ${row.epoch}, version ${row.version}, durable ${row.durable}`]);
  const variants = (pipeline.variants ?? []).map((row) => [`${row.stage}: ${row.variant}`, ratio(row.ready, row.wanted), "", row.state]);
  return [...stages, ...members, ...variants];
}

function update(made, [name, pipeline]) {
  const { parts } = made;
  const learners = pipeline.learners?.length ? `learners: ${pipeline.learners.join(", ")}` : "";
  const about = [pipeline.learns_for ? `learns for ${pipeline.learns_for}` : "", pipeline.policies ?? "", learners];
  write(parts.sub, about.filter(Boolean).join("; "));
  reconcile(parts.troubles, troubles(pipeline), (text) => text, (text) => make("li", {}, text));
  drawGraph(parts.graph, pipeline);
  const since = Date.now() / 1000 - 60 * MINUTES - 10;
  const points = [...(histories.get(name) ?? []), ...pipeline.history].filter((point) => point.at > since);
  histories.set(name, points);
  const last = points.at(-1) ?? {};
  drawChart(parts.goodput, points, ["goodput"], 1, "/s");
  write(parts.goodput.querySelector(".key-first"), `${show(last.goodput)} good answers/s`);
  drawChart(parts.latency, points, ["latency", "latency_p99"], 1000, " ms", pipeline.slo);
  write(parts.latency.querySelector(".key-first"), `median ${ms(last.latency)}`);
  write(parts.latency.querySelector(".key-second"), `, p99 ${ms(last.latency_p99)}`);
  const counts = Object.entries(pipeline.outcomes ?? {}).flatMap(([kind, reasons]) =>
    Object.entries(reasons).map(([reason, count]) => [kind, reason, count.toString()]));
  fill(parts.outcomes, counts, ([kind, reason]) => `${kind}/${reason}`, (row) => row);
  fill(parts.sizes, sizes(pipeline), ([stage]) => stage, (row) => row);
  fill(parts.recent, pipeline.recent ?? [], (each) => `${each.at}/${each.request_id}`, (each) => [
    each.request_id, new Date(each.at * 1000).toLocaleTimeString(), `${each.kind}: ${each.reason}`, each.stage, each.text,
  ], (each) => inspect(name, each.request_id, each.at - BEFORE_SECONDS));
}

// One query.

async function inspect(name, id, at) {
  const [text, stages, all] = [byId("query-text"), byId("query-stages"), byId("query-all")];
  write(byId("query-id"), id);
  write(text, "searching");
  stages.hidden = all.hidden = true;
  if (!byId("query").open) byId("query").showModal();
  try {
    const path = `v1/pipelines/${encodeURIComponent(name)}/queries/${encodeURIComponent(id)}`;
    const answer = await fetch(at === null ? path : `${path}?at=${at}`, { headers: headers(), cache: "no-store" });
    const told = await answer.json();
    if (byId("query-id").textContent !== id) return;
    write(text, told.error ?? told.text);
    const cells = ["arrived_ms", "queued_ms", "waited_ms", "executed_ms", "batch"];
    fill(stages, told.stages ?? [], (row) => row.stage, (row) =>
      [row.stage, ...cells.map((key) => show(row[key])), [row.model, row.version].filter(Boolean).join(" ")]);
    write(all.querySelector("pre"), JSON.stringify(told, null, 2));
    all.hidden = !answer.ok;
  } catch (error) {
    write(text, `it could not be asked: ${error.message}`);
  }
}

// The stream. `fetch` and not EventSource, which sends no token.

const headers = () => (token ? { Authorization: `Bearer ${token}` } : {});

async function follow() {
  connected = new AbortController();
  const answer = await fetch("v1/status/stream", { headers: headers(), cache: "no-store", signal: connected.signal });
  if (answer.status === 401 || answer.status === 403) return askForToken();
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  byId("access").hidden = true;
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ;) {
    const { done, value } = await reader.read();
    if (done) throw new Error("the gateway ended the stream");
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) showAll(JSON.parse(event.slice("data: ".length)));
  }
}

function showAll(told) {
  write(byId("connection"), `as of ${new Date(told.at * 1000).toLocaleTimeString()}`);
  byId("pipelines").classList.remove("stale");
  reconcile(byId("pipelines"), Object.entries(told.pipelines), ([name]) => name, ([name]) => section(name), update);
}

async function askForToken() {
  write(byId("connection"), "a token is needed");
  write(byId("refused"), token ? "this one was refused" : "");
  byId("access").hidden = false;
  byId("token").focus();
  byId("pipelines").replaceChildren();
  await new Promise((resolve) => { tokenGiven = resolve; });
}

byId("access").addEventListener("submit", (event) => {
  event.preventDefault();
  token = byId("token").value;
  byId("token").value = "";
  connected.abort();
  tokenGiven();
});
byId("close").addEventListener("click", () => byId("query").close());

(async () => {
  for (;;) {
    try {
      await follow();
    } catch (error) {
      write(byId("connection"), `not connected (${error.message}); trying again`);
      byId("pipelines").classList.add("stale");
      await new Promise((resolve) => { setTimeout(resolve, AGAIN_MS); });
    }
  }
})();
