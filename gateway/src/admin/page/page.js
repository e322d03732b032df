"use strict";
// Asks the admin listener every other second and draws what it says. Nothing is fetched from anywhere else.

const EVERY_MS = 2000;
const KEPT = 300;
// The shortest time that a plot spans, in looks.
const FEWEST = 30;
const ROLES = ["prefill", "decode", "both"];
const STAGES = [
  ["read", "reading"], ["queue", "waiting for a pair"], ["lease", "lease"], ["prefill_queue", "waiting for prefill"],
  ["prefill", "prefill"], ["transfer", "transfer"], ["first_token", "first token"], ["decode", "decode"], ["end", "end"],
];
const byId = (id) => document.getElementById(id);
let answered = null;
const sheet = { times: [], ttft: [], itl: [], goodput: [], tokens: [], last: null };

function element(tag, text, classes) {
  const made = document.createElement(tag);
  if (text !== undefined && text !== null) made.textContent = text;
  if (classes) made.className = classes;
  return made;
}

class Refused extends Error {}

async function ask(path, kind = "json") {
  const key = sessionStorage.getItem("key");
  const headers = key ? { authorization: `Bearer ${key}` } : {};
  const reply = await fetch(path, { headers, cache: "no-store", signal: AbortSignal.timeout(5000) });
  if (reply.status === 401 || reply.status === 403) {
    const body = await reply.json().catch(() => ({}));
    throw new Refused(body.error ? body.error.message : "The admin key is needed.");
  }
  if (!reply.ok) throw new Error(`${path}: ${reply.status}`);
  return reply[kind]();
}

// ------------------------------------------------------------------ figures

// Samples of one metric: [{labels, value}].
function samples(text, name) {
  const found = [];
  for (const line of text.split("\n")) {
    if (!line.startsWith(name)) continue;
    const match = /^([a-z_:A-Z0-9]+)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (!match || match[1] !== name) continue;
    const labels = {};
    for (const pair of (match[2] || "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) labels[pair[1]] = pair[2];
    found.push({ labels, value: Number(match[3]) });
  }
  return found;
}

const total = (text, name) => samples(text, name).reduce((sum, sample) => sum + sample.value, 0);

// Cumulative counts by upper bound, summed over all other labels.
function histogram(text, name) {
  const bounds = new Map();
  for (const { labels, value } of samples(text, `${name}_bucket`)) {
    const bound = labels.le === "+Inf" ? Infinity : Number(labels.le);
    bounds.set(bound, (bounds.get(bound) || 0) + value);
  }
  return bounds;
}

function between(before, after) {
  const bounds = [...after.keys()].sort((a, b) => a - b);
  return bounds.map((bound) => [bound, after.get(bound) - (before.get(bound) || 0)]);
}

// As Prometheus' histogram_quantile: linear within a bucket. Null where nothing was counted.
function quantile(counts, q) {
  const all = counts.length ? counts[counts.length - 1][1] : 0;
  if (!(all > 0)) return null;
  let low = 0, below = 0;
  for (const [bound, count] of counts) {
    if (count >= q * all) {
      if (bound === Infinity) return low;
      return low + (bound - low) * (count === below ? 1 : (q * all - below) / (count - below));
    }
    [low, below] = [bound, count];
  }
  return low;
}

function note(text, now) {
  const figures = {
    now,
    ttft: histogram(text, "tandem_time_to_first_token_seconds"),
    itl: histogram(text, "tandem_inter_token_latency_seconds"),
    tokens: total(text, "tandem_generation_tokens_total"),
  };
  const last = sheet.last;
  sheet.last = figures;
  const choice = byId("slo");
  if (!choice.options.length) {
    for (const bound of figures.ttft.keys()) {
      if (bound !== Infinity) choice.append(new Option(seconds(bound), bound, bound === 1, bound === 1));
    }
  }
  if (!last) return;
  const ttft = between(last.ttft, figures.ttft);
  const itl = between(last.itl, figures.itl);
  const all = ttft.length ? ttft[ttft.length - 1][1] : 0;
  const within = ttft.find(([bound]) => bound === Number(choice.value));
  const row = {
    times: now,
    ttft: [quantile(ttft, 0.5), quantile(ttft, 0.99)],
    itl: [quantile(itl, 0.5), quantile(itl, 0.99)],
    goodput: [all > 0 && within ? within[1] / all : null],
    tokens: [Math.max(0, figures.tokens - last.tokens) / ((now - last.now) / 1000)],
  };
  for (const [name, value] of Object.entries(row)) {
    sheet[name].push(value);
    if (sheet[name].length > KEPT) sheet[name].shift();
  }
}

// ------------------------------------------------------------------ drawing

function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  if (value < 0.001) return `${Math.round(value * 1e6)} µs`;
  if (value < 1) return `${+(value * 1000).toPrecision(3)} ms`;
  if (value < 120) return `${+value.toPrecision(3)} s`;
  return `${Math.round(value / 60)} min`;
}
const count = (value) => (value >= 1e6 ? `${(value / 1e6).toFixed(1)} M` : value >= 1e4 ? `${(value / 1e3).toFixed(1)} k` : `${Math.round(value)}`);
const rate = (value) => (value === null || value === undefined ? "–" : value < 10 ? `${+value.toPrecision(2)}` : count(value));
const share = (value) => (value === null || value === undefined ? "–" : `${Math.round(value * 100)} %`);
const bytes = (value) => (value >= 1e9 ? `${(value / 1e9).toFixed(1)} GB` : value ? `${(value / 1e6).toFixed(1)} MB` : "0 MB");

function svg(tag, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text) made.textContent = text;
  return made;
}

// One plot; lines are told apart by dashes and by a label at their end, not by colour.
function plot(title, rows, names, show, most) {
  const [width, height, left, right, bottom] = [360, 144, 56, 40, 16];
  const span = Math.max(FEWEST, rows.length);
  const figure = element("figure");
  figure.append(element("figcaption", title));
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
  const values = rows.flat().filter((value) => value !== null);
  const top = most || Math.max(...values, 0) * 1.1 || 1;
  const y = (value) => height - bottom - (Math.min(value, top) / top) * (height - bottom - 8);
  const x = (index) => left + ((index + span - rows.length) / (span - 1)) * (width - left - right);
  for (const share of [0, 0.5, 1]) {
    drawing.append(svg("path", { class: "grid", d: `M${left} ${y(top * share)}H${width - right}` }));
    drawing.append(svg("text", { x: left - 4, y: y(top * share) + 4, "text-anchor": "end" }, show(top * share)));
  }
  drawing.append(svg("text", { x: left, y: height - 3 }, `${seconds((span * EVERY_MS) / 1000)} ago`));
  drawing.append(svg("text", { x: width - right, y: height - 3, "text-anchor": "end" }, "now"));
  const said = [];
  names.forEach((name, line) => {
    let path = "", pen = false, last = null;
    rows.forEach((row, index) => {
      const value = row[line];
      if (value === null) return;
      path += `${pen ? "L" : "M"}${x(index).toFixed(1)} ${y(value).toFixed(1)}`;
      pen = true;
      last = value;
    });
    const style = line ? "second" : "first";
    if (last !== null) {
      const latest = rows.findLastIndex((row) => row[line] !== null);
      drawing.append(svg("path", { class: style, d: path }),
        svg("circle", { class: style, cx: x(latest), cy: y(last), r: 2.5 }),
        svg("text", { x: width - right + 5, y: y(last) + (line ? -2 : 8) }, name));
    }
    said.push(`${name} ${show(last)}`);
  });
  if (!values.length) drawing.append(svg("text", { x: (left + width - right) / 2, y: y(top / 4), "text-anchor": "middle" }, "nothing yet"));
  drawing.prepend(svg("title", {}, `${title}: latest ${said.join(", ")}`));
  figure.append(drawing, element("div", said.join(" · "), "note"));
  return figure;
}

// Roles are said because a narrow page shows rows as blocks, each cell with its column's name before it.
function fill(table, rows) {
  const names = [...byId(table).tHead.rows[0].cells].map((head) => head.textContent);
  const body = byId(table).tBodies[0];
  body.replaceChildren(...rows.map((cells) => {
    const row = element("tr");
    row.setAttribute("role", "row");
    cells.forEach((given, column) => {
      const cell = given instanceof Node ? given : element("td", given);
      cell.setAttribute("role", "cell");
      cell.dataset.name = names[column];
      row.append(cell);
    });
    return row;
  }));
  if (!rows.length) {
    const cell = element("td", "none", "none");
    cell.colSpan = names.length;
    const row = element("tr");
    row.append(cell);
    body.append(row);
  }
}
const number = (value) => element("td", value === null || value === undefined ? "–" : count(value), "n");

function pages(worker) {
  const cell = element("td");
  const states = worker.pages;
  if (!states) { cell.textContent = "–"; return cell; }
  const moving = states.leased + states.exposed + states.ready;
  const held = states.draining + states.quarantined;
  const bar = element("div", null, "pages");
  for (const [name, value] of [["active", states.active], ["moving", moving], ["held", held], ["cached", states.cached]]) {
    const part = element("span", null, name);
    part.style.width = `${(100 * value) / states.total}%`;
    bar.append(part);
  }
  const told = `${count(states.total - states.free)} of ${count(states.total)}: ${count(states.active)} active, ` +
    `${count(moving)} on their way, ${count(held)} held back; ${count(states.cached)} of the free ones cached`;
  bar.title = told;
  cell.append(bar, element("span", told, "note"));
  return cell;
}

function workers(list) {
  fill("workers", list.map((worker) => {
    const fine = ["ready", "drained", "draining"].includes(worker.state);
    const figures = worker.figures;
    const transfers = figures
      ? `${count(figures.transfers_completed)} done, ${count(figures.transfers_failed)} failed, ${bytes(figures.bytes_pushed)} pushed`
      : "–";
    const provider = worker.provider ? `${worker.provider}${worker.software ? " (software)" : ""}` : "–";
    return [worker.id || worker.address, worker.role || "–", element("td", worker.state, fine ? "" : "bad"),
      number(worker.requests), number(worker.queued_prompt_tokens), pages(worker), transfers, provider];
  }));
}

// Workers of one role, and what they have and do together.
function pools(list) {
  const pools = Map.groupBy(list, (worker) => worker.role || "unknown");
  fill("pools", [...pools].map(([role, members]) => {
    const sum = (of) => members.reduce((all, worker) => all + (of(worker) || 0), 0);
    const state = (name) => sum((worker) => worker.pages && worker.pages[name]);
    const [total, free] = [state("total"), state("free")];
    return [role, `${members.filter((worker) => worker.state === "ready").length} of ${members.length}`,
      number(sum((worker) => worker.requests)), number(sum((worker) => worker.queued)),
      number(sum((worker) => worker.queued_prompt_tokens)),
      element("td", total ? `${share(1 - free / total)} of ${count(total)}` : "–", "n"),
      number(state("leased") + state("exposed") + state("ready"))];
  }));
}

function now(status, list, requests) {
  const latest = (name, line) => sheet[name].map((row) => row[line]).filter((v) => v !== null).pop();
  const ready = list.filter((worker) => worker.state === "ready").length;
  const facts = [
    ["workers ready", `${ready} of ${list.length}`],
    ["in flight", count(status.gateway.in_flight)],
    ["waiting", count(status.gateway.queued)],
    ["transfers in flight", count(requests.filter((request) => request.stage === "prefill" && request.prefill).length)],
    ["TTFT p50", seconds(latest("ttft", 0))],
    ["ITL p50", seconds(latest("itl", 0))],
    ["tokens/s", rate(latest("tokens", 0) || 0)],
  ];
  byId("now").replaceChildren(...facts.map(([name, value]) => {
    const pair = element("div");
    pair.append(element("dt", name), element("dd", value));
    return pair;
  }));
}

// What happened to one request that has ended; it does not change any more but for its scale.
function ended(request) {
  const details = element("details", null, "request");
  details.dataset.request = request.request;
  const summary = element("summary");
  const line = element("span", null, "line");
  const way = request.prefill ? `${request.prefill} → ${request.decode}` : request.decode || "no pair";
  line.append(element("b", request.outcome, request.failed ? "bad" : ""), element("span", way),
    element("span", `${count(request.prompt_tokens)} + ${count(request.tokens)} tokens`),
    element("span", `first token ${seconds(request.ttft_ms === null ? null : request.ttft_ms / 1000)}`),
    element("span", `all ${seconds(request.total_ms / 1000)}`), element("span", request.request_id, "note"));
  const track = element("div", null, "track");
  const told = element("ul");
  for (const [stage, name] of STAGES) {
    const ms = request.stages[stage];
    if (ms === undefined) continue;
    const span = element("div", null, `span ${stage}`);
    span.dataset.ms = ms;
    span.title = `${name}: ${seconds(ms / 1000)}`;
    track.append(span);
    told.append(element("li", span.title));
  }
  for (const step of request.steps) {
    const who = step.step === "asked" ? ` ${[step.prefill, step.decode].filter(Boolean).join(" → ")}` : "";
    told.append(element("li", `after ${step.after_ms} ms ${step.step}${who}${step.why ? `: ${step.why}` : ""}`));
  }
  summary.append(line, track);
  details.append(summary, told);
  return details;
}

// Those that are there stay, so that what somebody opened, selected or stands on is not lost.
function recent(list) {
  const host = byId("recent");
  const longest = Math.max(1, ...list.map((request) => request.total_ms));
  const there = new Map([...host.children].map((child) => [child.dataset.request, child]));
  list.forEach((request, place) => {
    const details = there.get(request.request) || ended(request);
    there.delete(request.request);
    if (host.children[place] !== details) host.insertBefore(details, host.children[place] || null);
    for (const span of details.querySelectorAll(".track .span")) span.style.width = `${(100 * span.dataset.ms) / longest}%`;
  });
  for (const gone of there.values()) gone.remove();
  if (!list.length) host.append(element("p", "none yet"));
}

function legend() {
  for (const [stage, name] of STAGES) {
    byId("legend").append(element("span", null, `key span ${stage}`), document.createTextNode(name));
  }
}

function flight(list) {
  fill("flight", list.slice(0, 50).map((request) => [
    request.request_id, request.stage, element("td", seconds(request.age_ms / 1000), "n"),
    number(request.prompt_tokens), number(request.tokens), request.prefill || "–", request.decode || "–", request.tenant,
  ]));
}

// ------------------------------------------------------------------ the loop

async function look() {
  // Alone and first: a key that is wrong is refused once.
  const status = await ask("tandem/status");
  const [requests, latest, policy, metrics] = await Promise.all([
    ask("admin/requests"), ask("admin/recent"), ask("admin/policy").catch(skip), ask("metrics", "text"),
  ]);
  note(metrics, Date.now());
  byId("model").textContent = status.model;
  const missing = status.workers.filter((worker) => worker.state !== "ready");
  byId("state").textContent = missing.length
    ? `${missing.length} of ${status.workers.length} workers not ready`
    : "all workers ready";
  status.workers.sort((a, b) => ROLES.indexOf(a.role) - ROLES.indexOf(b.role) || `${a.id}`.localeCompare(`${b.id}`, "en", { numeric: true }));
  now(status, status.workers, requests.requests);
  pools(status.workers);
  workers(status.workers);
  byId("plots").replaceChildren(
    plot("Time to first token", sheet.ttft, ["p50", "p99"], seconds),
    plot("Time between tokens (ITL)", sheet.itl, ["p50", "p99"], seconds),
    plot("Goodput", sheet.goodput, ["share"], share, 1),
    plot("Tokens per second", sheet.tokens, ["all"], rate));
  flight(requests.requests);
  recent(latest.requests);
  if (policy) {
    const text = JSON.stringify(policy.policy, null, 2);
    byId("hash").textContent = `configuration ${policy.hash}`;
    if (byId("policy").textContent !== text) byId("policy").textContent = text;
  }
}

// A gateway without a configuration file has no policy to show.
function skip(error) {
  if (error instanceof Refused) throw error;
  return null;
}

async function run() {
  try {
    await look();
    byId("login").hidden = true;
    byId("main").hidden = false;
    answered = new Date();
  } catch (error) {
    if (error instanceof Refused) {
      byId("login").hidden = false;
      byId("main").hidden = true;
      byId("state").textContent = "locked";
      byId("refused").textContent = sessionStorage.getItem("key") ? error.message : "";
      return;
    }
    const last = answered ? ` since ${answered.toLocaleTimeString()}; what stands below is from then` : "";
    byId("state").textContent = `no answer from the gateway${last} (${error.message})`;
  }
  setTimeout(run, EVERY_MS);
}

byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("key", byId("key").value);
  byId("key").value = "";
  run();
});
legend();
run();
