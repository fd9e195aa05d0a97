// The dashboard: draws what the node reports. All words that come from the cluster are set as text.
"use strict";

const NONE = "–";
const byId = (id) => document.getElementById(id);

/** An element with a class, text and children. */
function make(tag, { cls, text, title } = {}, children = []) {
  const it = document.createElement(tag);
  if (cls) it.className = cls;
  if (text !== undefined) it.textContent = text;
  if (title) it.title = title;
  it.append(...children);
  return it;
}

function svg(tag, attributes) {
  const it = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) it.setAttribute(key, value);
  return it;
}

/** Sets the text if it has changed, so that readers of screens are not disturbed. */
function say(id, text) {
  const it = byId(id);
  if (it.textContent !== text) it.textContent = text;
}

// Numbers in words.

function count(value) {
  if (value === null || value === undefined) return NONE;
  if (value >= 1e6) return `${(value / 1e6).toFixed(2)}M`;
  if (value >= 1e4) return `${(value / 1e3).toFixed(1)}k`;
  return value >= 10 || Number.isInteger(value) ? value.toFixed(0) : value.toFixed(1);
}
const perSecond = (value) => (value === null || value === undefined ? NONE : `${count(value)}/s`);
function micros(us) {
  if (us === null || us === undefined) return NONE;
  if (us >= 1e6) return `${(us / 1e6).toFixed(1)} s`;
  return us >= 1e4 ? `${(us / 1e3).toFixed(0)} ms` : `${(us / 1e3).toFixed(us < 1e3 ? 2 : 1)} ms`;
}
function percent(share) {
  if (share === null || share === undefined) return NONE;
  return share > 0 && share < 0.01 ? "<1 %" : `${Math.round(share * 100)} %`;
}
function bytes(value) {
  if (value === null) return NONE;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; value >= 1024 && unit < 4; unit += 1) value /= 1024;
  return `${value >= 10 || unit === 0 ? value.toFixed(0) : value.toFixed(1)} ${units[unit]}`;
}
function duration(seconds) {
  const units = [[86400, "d"], [3600, "h"], [60, "min"]];
  const [size, name] = units.find(([size]) => seconds >= 2 * size) || [1, "s"];
  return `${Math.floor(seconds / size)} ${name}`;
}
const clock = (ms) => new Date(ms).toLocaleTimeString([], { hour12: false });
const words = (name) => name.replaceAll("_", " ");

// Charts.

const CHARTS = [
  { name: "Commands/s", lines: [["write", "writes"], ["read", "reads"]], unit: perSecond },
  { name: "Write time", lines: [["write_p50_us", "p50"], ["write_p99_us", "p99"]], unit: micros },
  { name: "Read time", lines: [["read_p50_us", "p50"], ["read_p99_us", "p99"]], unit: micros },
  { name: "Load", lines: [["busiest_loop", "busiest loop"]], unit: percent },
  { name: "Sync time", lines: [["sync_p99_us", "p99"]], unit: micros },
];
const CLASSES = ["one", "two"];
const [WIDTH, HEIGHT] = [240, 60];
/** A table that is read aloud has at most this many rows. */
const ROWS = 60;

/** A chart: the picture, the same as a table, and a cursor that keys and the mouse move. */
class Chart {
  constructor(settings, index) {
    this.settings = settings;
    this.at = null;
    this.paths = settings.lines.map((_, line) => svg("path", { class: CLASSES[line] }));
    this.cursor = svg("line", { class: "cursor", y1: 0, y2: HEIGHT });
    this.plot = svg("svg", {
      class: "plot", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", tabindex: 0,
      role: "slider", "aria-label": `${settings.name}: moment`, "aria-valuemin": 0,
      "aria-valuemax": 0, "aria-valuenow": 0, "aria-valuetext": "no values yet",
      "aria-describedby": `table-${index}`,
    });
    this.plot.append(...this.paths, this.cursor);
    this.output = make("output", { text: "no values yet" });
    this.output.setAttribute("aria-live", "off");
    this.body = make("tbody");
    const heads = ["time", ...settings.lines.map(([, label]) => label)];
    const head = make("tr", {}, heads.map((text) => make("th", { text })));
    for (const cell of head.children) cell.scope = "col";
    this.table = make("table", {}, [
      make("caption", { text: settings.name }), make("thead", {}, [head]), this.body]);
    this.table.id = `table-${index}`;
    const keys = settings.lines.map(([, label], place) => {
      const mark = svg("svg", { viewBox: "0 0 20 8", "aria-hidden": "true" });
      mark.append(svg("path", { class: CLASSES[place], d: "M0 4H20", "stroke-width": 2 }));
      return make("span", { cls: "key" }, [mark, ` ${label}`]);
    });
    this.ends = [make("span"), make("span")];
    this.figure = make("figure", {}, [
      make("figcaption", { text: settings.name }, keys), this.plot,
      make("div", { cls: "axis" }, this.ends), this.output,
      make("div", { cls: "away" }, [this.table])]);
    this.plot.addEventListener("keydown", (event) => this.onKey(event));
    this.plot.addEventListener("pointermove", (event) => {
      const box = this.plot.getBoundingClientRect();
      this.plot.classList.add("pointed");
      this.move(Math.round(((event.clientX - box.left) / box.width) * (this.points - 1)));
    });
    this.plot.addEventListener("pointerleave", () => {
      this.plot.classList.remove("pointed");
      this.move(null);
    });
  }

  onKey(event) {
    const last = this.points - 1;
    const at = this.at ?? last;
    const places = { ArrowLeft: at - 1, ArrowDown: at - 1, ArrowRight: at + 1, ArrowUp: at + 1,
      PageDown: at - 10, PageUp: at + 10, Home: 0, End: last };
    if (event.key === "Escape") this.move(null);
    if (!(event.key in places) || !this.points) return;
    event.preventDefault();
    this.move(places[event.key]);
  }

  /** Shows the history: a value of each line for each step. */
  draw(history, now) {
    this.points = history.points;
    this.time = (place) => now - (history.ago_s + (history.points - 1 - place) * history.step_s) * 1000;
    this.values = this.settings.lines.map(([name]) => history.series[name] || []);
    this.top = Math.max(...this.values.flat().filter((value) => value !== null), 0) || 1;
    this.values.forEach((_, line) => this.paths[line].setAttribute("d", this.path(line)));
    this.ends[0].textContent = clock(this.time(0));
    this.ends[1].textContent = clock(this.time(this.points - 1));
    this.plot.setAttribute("aria-valuemax", Math.max(this.points - 1, 0));
    const every = Math.ceil(this.points / ROWS);
    const rows = [];
    for (let place = this.points - 1; place >= 0; place -= every) {
      const cells = this.values.map((values) => this.settings.unit(values[place]));
      if (cells.some((text) => text !== NONE)) {
        rows.push(make("tr", {}, [clock(this.time(place)), ...cells].map((text) => make("td", { text }))));
      }
    }
    this.body.replaceChildren(...rows);
    this.move(this.at);
  }

  path(line) {
    let path = "";
    let pen = "M";
    this.values[line].forEach((value, place) => {
      if (value === null) { pen = "M"; return; }
      const x = (place / Math.max(this.points - 1, 1)) * WIDTH;
      const y = HEIGHT - 2 - (value / this.top) * (HEIGHT - 5);
      // A single value is a short line.
      path += `${pen}${x.toFixed(1)} ${y.toFixed(1)}${pen === "M" ? "h.5" : ""}`;
      pen = "L";
    });
    return path;
  }

  /** Moves the cursor; `null` is the present. */
  move(place) {
    this.at = place === null ? null : Math.min(Math.max(place, 0), Math.max(this.points - 1, 0));
    const shown = this.at ?? this.points - 1;
    const x = (shown / Math.max(this.points - 1, 1)) * WIDTH;
    this.cursor.setAttribute("x1", x);
    this.cursor.setAttribute("x2", x);
    const texts = this.settings.lines.map(([, label], line) => `${label} ${this.settings.unit(this.values[line][shown])}`);
    const text = this.at === null ? this.summary() : `${clock(this.time(shown))}: ${texts.join(", ")}`;
    this.output.textContent = text;
    this.plot.setAttribute("aria-valuenow", Math.max(shown, 0));
    this.plot.setAttribute("aria-valuetext", `${clock(this.time(shown))}: ${texts.join(", ")}`);
  }

  summary() {
    if (!this.values.some((values) => values.some((value) => value !== null))) return "no values yet";
    return `top: ${this.settings.unit(this.top)}`;
  }
}

const charts = CHARTS.map((settings, index) => new Chart(settings, index));
let drawn = 0;

async function drawHistory() {
  const of = byId("of").value;
  const seconds = byId("span").value;
  try {
    const answer = await fetch(`api/v1/history?of=${of}&seconds=${seconds}`);
    if (!answer.ok) return;
    const history = await answer.json();
    for (const chart of charts) chart.draw(history, Date.now());
    drawn = Date.now();
  } catch {
    // The stream of events reports that the node is gone.
  }
}

// What a look found.

const HEALTH = { healthy: "✓ healthy", degraded: "! DEGRADED", not_serving: "✕ NOT SERVING" };

function tolerance(look) {
  const more = look.failure_tolerance;
  if (more === null) return "";
  if (more === 0) return "no further node may fail";
  return more === 1 ? "any 1 more node may fail" : `any ${more} more nodes may fail`;
}

function drawHead(look) {
  document.title = `${look.cluster}: ${words(look.health)}`;
  document.body.dataset.health = look.health;
  say("cluster", look.cluster);
  const up = look.nodes.filter((node) => node.error === null).length;
  const change = look.changing ? " · its membership is changing" : "";
  const leader = look.leader ? ` · ${look.leader} leads` : "";
  say("about", `${look.protocol} · f = ${look.f} · ${up} of ${look.nodes.length} nodes answer${leader}${change}`);
  say("health", HEALTH[look.health] || look.health);
  say("tolerance", tolerance(look));
  say("clock", clock(look.at_ms));
  say("from", `at ${location.host}`);
}

function drawNow(look) {
  const now = look.now;
  const times = (family) => `${micros(now[`${family}_p50_us`])} / ${micros(now[`${family}_p99_us`])}`;
  const writes = now.write === null ? null : now.write + now.transaction;
  say("now-write", perSecond(writes));
  say("now-read", perSecond(now.read));
  say("now-failed", perSecond(now.failed));
  say("now-clients", count(look.connections));
  say("now-write-time", times("write"));
  say("now-read-time", times("read"));
  // Each gateway learns the limit and the size by itself.
  const [data] = look.nodes.filter((node) => node.data_limit_bytes > 0)
    .sort((one, other) => other.data_bytes - one.data_bytes);
  byId("data").hidden = !data;
  if (data) say("now-data", `${bytes(data.data_bytes)} of ${bytes(data.data_limit_bytes)}`);
}

function drawBottleneck({ kind, title, text }) {
  byId("bottleneck").dataset.kind = kind;
  say("limit", title);
  say("why", text);
}

function bar(share) {
  const fill = make("i");
  fill.style.width = `${Math.min(share || 0, 1) * 100}%`;
  return make("span", { cls: "bar" }, [fill]);
}

function instance(kind, it, bottleneck) {
  const named = bottleneck.node === it.node && bottleneck.role === `${words(kind)} ${it.index}`;
  const mark = it.up ? (it.leads ? "★" : "") : "✕";
  const value = it.up ? percent(it.busy) : "down";
  const state = it.up ? (it.leads ? ", leads" : "") : ", no answer";
  const row = make("li", { cls: it.up ? (named ? "named" : "") : "down", title: `${words(kind)} ${it.index} on ${it.node}${state}` }, [
    make("span", { text: `${mark || it.index}` }), make("span", { text: it.node }),
    bar(it.busy), make("span", { cls: "value", text: value })]);
  if (mark) row.append(make("b", { cls: "away", text: state.slice(2) }));
  return row;
}

function drawKinds(look) {
  const kinds = look.kinds.map(({ role, instances }) => {
    const rows = instances.map((it) => instance(role, it, look.bottleneck));
    const head = instances.length > 1 ? `${words(role)} ×${instances.length}` : words(role);
    const cls = instances.length > 5 ? "kind many" : "kind";
    return make("li", {}, [make("div", { cls }, [make("h3", { text: head }), make("ul", {}, rows)])]);
  });
  byId("kinds").replaceChildren(...kinds);
}

function member(node, leader) {
  const now = Date.now() / 1000;
  const ends = node.certificate_ends === null ? null : node.certificate_ends - now;
  const version = node.release === null ? NONE : `${node.release}, level ${node.level}`;
  const state = node.error === null ? `${node.state}${node.name === leader ? " ★ leads" : ""}` : "✕ no answer";
  const cells = [
    [node.name], [state, node.state !== "serves"], [percent(node.busy), node.busy > 0.8],
    [percent(node.outside)],
    [percent(node.wait), node.wait > 0.3 && node.wait > 0.3 * node.busy],
    [percent(node.disk)],
    [node.lag === null ? NONE : `${count(node.lag)} ${node.lag === 1 ? "slot" : "slots"}`], [micros(node.sync_p99_us), node.sync_p99_us > 25e3],
    [node.error === null ? bytes(node.backlog_bytes) : NONE],
    [node.connections === null ? NONE : count(node.connections)],
    [bytes(node.memory_bytes)],
    [bytes(node.disk_free_bytes), node.disk_free_bytes < node.disk_needed_bytes],
    [node.snapshot_at === null ? NONE : duration(Math.max(now - node.snapshot_at, 0))],
    [node.error === null ? duration(node.uptime_s) : NONE],
    [node.error !== null ? NONE : ends === null ? "none" : ends > 0 ? duration(ends) : "expired", ends !== null && ends < 14 * 86400],
    [version]];
  const row = cells.map(([text, alarm]) => make("td", { cls: alarm ? "alarm" : "", text: alarm && node.error === null ? `! ${text}` : text }));
  row[1].title = node.error || "";
  row[0].title = node.gateway ? `clients: ${node.gateway}` : "";
  return make("tr", { cls: node.error === null ? "" : "down" }, row);
}

function drawTroubles(look) {
  const troubles = look.troubles.map((it) => make("li", { cls: it.stops ? "stops" : "" }, [
    make("time", { text: it.since_ms === null ? "" : clock(it.since_ms) }),
    `${it.stops ? "✕ not served: " : "! "}${it.text}`,
    ...(it.alert ? [" ", make("small", { text: `docs/alerts.md: ${it.alert}` })] : [])]));
  byId("troubles").hidden = troubles.length === 0;
  byId("trouble-list").replaceChildren(...troubles);
}

function drawEvents(look) {
  const events = look.events.map((it) => {
    const since = it.since_ms === undefined ? "" : `${clock(it.since_ms)} to `;
    return make("li", {}, [make("time", { text: `${since}${clock(it.at_ms)}` }), it.text]);
  });
  const none = [make("li", { cls: "none", text: "none while a page was open" })];
  byId("event-list").replaceChildren(...(events.length ? events : none));
}

function draw(look) {
  drawHead(look);
  drawNow(look);
  drawBottleneck(look.bottleneck);
  drawKinds(look);
  byId("members").replaceChildren(...look.nodes.map((node) => member(node, look.leader)));
  drawTroubles(look);
  drawEvents(look);
}

// The stream of events.

/** Without an event for this long the page says that what it shows is old, in milliseconds. */
const STALE = 7000;
let heard = Date.now();
let refused = false;

function notice(text) {
  const it = byId("notice");
  it.hidden = !text;
  if (it.textContent !== text) it.textContent = text;
}

function listen() {
  const stream = new EventSource("api/v1/events");
  const hear = (handle) => (event) => {
    heard = Date.now();
    refused = false;
    handle(event);
  };
  stream.addEventListener("look", hear((event) => {
    notice("");
    draw(JSON.parse(event.data));
    // An hour has a point every 15 s, and a day has one every 6 min.
    if (byId("span").value === "300" || Date.now() - drawn > 15000) drawHistory();
  }));
  stream.addEventListener("waits", hear(() => notice("This node waits to become a member of a cluster.")));
  stream.addEventListener("error", () => {
    if (stream.readyState !== EventSource.CLOSED) return;
    // The node refuses; the browser does not try again by itself.
    refused = true;
    setTimeout(listen, 10000);
  });
}

setInterval(() => {
  if (Date.now() - heard < STALE) return;
  document.body.dataset.health = "unknown";
  say("health", "? unknown");
  say("tolerance", "");
  notice(refused
    ? "This node refuses: as many pages are open at it as it serves. Trying again every 10 s."
    : `No news from this node since ${clock(heard)}: what is shown is old. Trying again.`);
}, 1000);

byId("plots").append(...charts.map((chart) => chart.figure));
for (const id of ["of", "span"]) byId(id).addEventListener("change", drawHistory);
drawHistory();
listen();
