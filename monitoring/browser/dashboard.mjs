// Tests the dashboard in a browser, on a cluster that runs:
//
//   npm install
//   node dashboard.mjs --url http://127.0.0.1:9402/ --gateway 127.0.0.1:7379 \
//     [--kill PID --node NAME] [--shots DIR] [--picture FILE] [--page DIR] [--browser FILE]
//
// It looks for violations of accessibility, reaches every control by keyboard, tries widths and
// zoom, and kills a node (not the one at --url) to see it drawn as failed, which is what --picture
// shows. --page takes the files of the page from a folder, to work on them without a build.

import { chromium } from "playwright-core";
import { createRequire } from "node:module";
import { execSync } from "node:child_process";
import { connect } from "node:net";
import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";

const { values: given } = parseArgs({
  options: Object.fromEntries(["url", "gateway", "kill", "node", "shots", "picture", "page", "browser"]
    .map((name) => [name, { type: "string" }])),
});
/** The longest wait for anything, in milliseconds. */
const LIMIT = 60_000;
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const failures = [];

function check(holds, what) {
  console.log(`${holds ? "ok  " : "FAIL"} ${what}`);
  if (!holds) failures.push(what);
}

/** Writes and reads until `stop` is called. */
function load(gateway) {
  const [host, port] = gateway.split(":");
  let stopped = false;
  const begin = () => {
    const socket = connect(Number(port), host);
    let number = 0;
    const send = () => {
      const set = `*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$${String(number).length}\r\n${number}\r\n`;
      socket.write(`${set}*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n`);
      number += 1;
    };
    socket.on("data", () => !stopped && setTimeout(send, 2));
    socket.on("error", () => !stopped && setTimeout(begin, 200));
    socket.on("connect", send);
    return () => socket.destroy();
  };
  const ends = Array.from({ length: 8 }, begin);
  return () => { stopped = true; ends.forEach((end) => end()); };
}

async function violations(page, what) {
  // The policy of the page keeps scripts out; a debugger may run one.
  await page.evaluate(axe);
  const found = await page.evaluate(() => globalThis.axe.run());
  for (const it of found.violations) {
    console.log(it.id, it.help, it.nodes.map((node) => `${node.html} ${node.failureSummary}`).join("\n"));
  }
  check(found.violations.length === 0, `axe finds no violation: ${what} (${found.passes.length} rules pass)`);
}

/** Everything that the Tab key reaches, in order. */
async function reached(page) {
  const names = [];
  // From the top, wherever the focus was.
  await page.evaluate(() => {
    document.body.tabIndex = -1;
    document.body.focus();
    document.body.removeAttribute("tabindex");
  });
  for (let step = 0; step < 60; step += 1) {
    await page.keyboard.press("Tab");
    const name = await page.evaluate(() => {
      const it = document.activeElement;
      return it === document.body ? null : it.id || it.getAttribute("aria-label") || it.getAttribute("aria-labelledby");
    });
    if (name === null || name === names[0]) break;
    names.push(name);
  }
  return names;
}

/** Words of the cluster that are HTML stay words. */
async function hostileNames(context, page) {
  const look = await page.evaluate(() => new Promise((resolve) => {
    const stream = new EventSource("api/v1/events");
    stream.addEventListener("look", (event) => { stream.close(); resolve(JSON.parse(event.data)); });
  }));
  const evil = "<img src=x onerror=alert(1)>";
  Object.assign(look, { cluster: evil, protocol: evil, leader: evil, bottleneck: { kind: "loop", title: evil, text: evil } });
  look.nodes[0].name = evil;
  look.nodes[1].error = evil;
  look.kinds[0].role = evil;
  look.kinds[0].instances[0].node = evil;
  look.troubles = [{ id: evil, text: evil, stops: true, since_ms: 1 }];
  look.events = [{ at_ms: 1, text: evil }];
  const other = await context.newPage();
  let dialogs = 0;
  other.on("dialog", (dialog) => { dialogs += 1; dialog.dismiss(); });
  await other.route("**/api/v1/events", (route) => route.fulfill({
    contentType: "text/event-stream", body: `event: look\ndata: ${JSON.stringify(look)}\n\n` }));
  if (given.page) {
    await other.route("**/dashboard.js", (route) => route.fulfill({
      contentType: "text/javascript", body: readFileSync(`${given.page}/dashboard.js`) }));
  }
  await other.goto(given.url);
  await other.waitForFunction((name) => document.getElementById("cluster").textContent === name, evil, { timeout: LIMIT });
  const images = await other.evaluate(() => document.querySelectorAll("img").length);
  const shown = await other.evaluate((name) => document.body.textContent.split(name).length - 1, evil);
  check(images === 0 && dialogs === 0 && shown >= 9, `names that are HTML stay text (${shown} of them, ${images} images)`);
  await other.close();
}

async function widthFits(page, what) {
  const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  check(over <= 0, `nothing is wider than the screen: ${what} (${over} pixels too wide)`);
}

const installed = () => execSync("command -v chromium", { encoding: "utf8" }).trim();
const browser = await chromium.launch({ executablePath: given.browser ?? installed(), args: ["--no-sandbox"] });
const stop = given.gateway ? load(given.gateway) : () => {};
try {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
  const page = await context.newPage();
  const errors = [];
  page.on("console", (message) => message.type() === "error" && errors.push(message.text()));
  page.on("pageerror", (error) => errors.push(String(error)));
  page.on("dialog", (dialog) => { errors.push("a dialog was opened"); dialog.dismiss(); });
  if (given.page) {
    const kinds = { "": "index.html", "dashboard.js": "dashboard.js", "dashboard.css": "dashboard.css" };
    for (const [path, file] of Object.entries(kinds)) {
      await page.route(given.url + path, async (route) => {
        const real = await route.fetch();
        await route.fulfill({ response: real, body: readFileSync(`${given.page}/${file}`) });
      });
    }
  }
  const shot = async (name) => {
    if (given.shots) await page.screenshot({ path: `${given.shots}/${name}.png` });
  };
  await page.goto(given.url);
  await page.waitForSelector("body[data-health=healthy]", { timeout: LIMIT });
  await page.waitForFunction(() => document.querySelectorAll("#members tr").length > 0);
  if (given.gateway) {
    await page.waitForFunction(() => /[1-9]/.test(document.getElementById("now-write").textContent), null, { timeout: LIMIT });
    await page.waitForFunction(() => document.querySelector("figure tbody tr"), null, { timeout: LIMIT });
    // Two looks more, so that lines are drawn.
    await page.waitForFunction(() => document.querySelectorAll("figure tbody tr").length > 12, null, { timeout: LIMIT });
  }
  check(await page.locator("#troubles").isHidden(), "without troubles there is no list of them");
  const height = await page.evaluate(() => document.documentElement.scrollHeight);
  check(height <= 800, `one screen at 1280 x 800 (${height} pixels high)`);
  await shot("1280");
  await violations(page, "light");
  const rows = await page.evaluate(() => [...document.querySelectorAll("figure tbody")].map((it) => it.rows.length));
  check(rows.length === 5 && rows.every((count) => count <= 60), `each chart has a table of at most 60 rows (${rows})`);

  const names = await reached(page);
  const wanted = ["of", "span", "Commands/s: moment", "Write time: moment", "Read time: moment",
    "Load: moment", "Sync time: moment", "kinds", "table of nodes", "event-list"];
  check(wanted.every((name) => names.includes(name)), `the Tab key reaches every control (${names.join(", ")})`);
  const plot = page.locator("svg.plot").first();
  await plot.focus();
  const place = async () => Number(await plot.getAttribute("aria-valuenow"));
  await page.keyboard.press("End");
  const end = await place();
  await page.keyboard.press("ArrowLeft");
  const left = await place();
  await page.keyboard.press("Home");
  check(left === end - 1 && (await place()) === 0, "keys move the cursor of a chart");
  await page.keyboard.press("Escape");
  check((await place()) === end, "Escape returns to the present");
  await page.locator("#of").focus();
  await page.keyboard.press("End");
  check((await page.locator("#of").inputValue()) === "node", "keys choose the history of this node");
  await page.waitForFunction(() => document.querySelectorAll("figure tbody tr").length > 4);
  await page.locator("#span").focus();
  await page.keyboard.press("End");
  check((await page.locator("#span").inputValue()) === "86400", "keys choose the last 24 hours");
  // A point stands for 6 minutes, so there is one or two.
  const few = () => {
    const rows = document.querySelectorAll("figure tbody tr").length;
    return rows > 0 && rows <= 10;
  };
  await page.waitForFunction(few, null, { timeout: LIMIT });
  await violations(page, "24 hours");
  await page.keyboard.press("Home");
  await page.waitForFunction(() => document.querySelectorAll("figure tbody tr").length > 10, null, { timeout: LIMIT });

  await page.emulateMedia({ colorScheme: "dark", reducedMotion: "reduce" });
  await violations(page, "dark");
  await shot("dark");
  const moves = await page.evaluate(() => {
    const bar = document.querySelector(".bar i");
    return bar && getComputedStyle(bar).transitionDuration;
  });
  check(moves === "0s", `nothing moves where the reader wants that (${moves})`);
  await page.emulateMedia({ colorScheme: "light", reducedMotion: "no-preference" });
  for (const [width, tall, what] of [[768, 1024, "768"], [360, 740, "360"], [640, 400, "zoom-200"]]) {
    await page.setViewportSize({ width, height: tall });
    await widthFits(page, `${width} pixels`);
    await violations(page, `${width} pixels`);
    if (given.shots) await page.screenshot({ path: `${given.shots}/${what}.png`, fullPage: true });
  }
  await page.setViewportSize({ width: 1280, height: 800 });

  await hostileNames(context, page);

  if (given.kill) {
    const begun = Date.now();
    process.kill(Number(given.kill), "SIGKILL");
    const row = page.locator("#members tr.down", { hasText: given.node });
    await row.waitFor({ timeout: LIMIT });
    const took = Date.now() - begun;
    console.log(`     ${given.node} is drawn as failed after ${took} ms`);
    check((await row.innerText()).includes("no answer"), "a failed node is named so in words");
    await page.waitForFunction((name) => document.getElementById("event-list").textContent
      .includes(`${name} does not answer`), given.node, { timeout: LIMIT });
    check((await page.locator("#trouble-list").innerText()).includes(given.node), "its trouble is listed");
    check((await page.locator("#trouble-list").innerText()).includes("docs/alerts.md: IonianNodeDown"), "its alert is named");
    const first = await page.evaluate(() => document.querySelector("main > section:not([hidden])").id);
    check(first === "troubles", `troubles are at the top (${first})`);
    check((await reached(page)).includes("trouble-list"), "the Tab key reaches the troubles");
    check((await page.locator(".kind li.down").count()) > 0, "its roles are drawn as failed");
    await violations(page, "with a failed node");
    await shot("failed");
    if (given.picture) {
      const height = await page.evaluate(() => Math.ceil(document.body.getBoundingClientRect().bottom));
      await page.screenshot({ path: given.picture, clip: { x: 0, y: 0, width: 1280, height } });
    }
  }
  check(errors.length === 0, `the page makes no errors (${errors.join("; ")})`);
} finally {
  stop();
  await browser.close();
}
console.log(failures.length ? `${failures.length} checks failed` : "all checks passed");
process.exitCode = failures.length ? 1 : 0;
