// HTML reports in a real browser: run by scripts/test_browser.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { after, before, describe, test } from "node:test";
import { buildExample, fixture, hostileCopy, launch, report } from "./reports.mjs";

const axeSource = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

let browser;
let example;

before(async () => {
  browser = await launch();
  example = report(buildExample(), "ane-ios26");
});
after(() => browser.close());

/// Opens a page and keeps what it asks of the network and what it says on the console. `bypassCSP` lets the test add a
/// script of its own (axe).
async function open(url, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1200, height: 900 }, ...options });
  const page = await context.newPage();
  const seen = { requests: [], console: [], dialogs: 0 };
  page.on("request", (request) => seen.requests.push(request.url()));
  page.on("console", (message) => seen.console.push(message.text()));
  page.on("pageerror", (error) => seen.console.push(error.message));
  page.on("dialog", (dialog) => { seen.dialogs++; dialog.dismiss(); });
  await page.goto(url, { waitUntil: "networkidle" });
  return { page, seen };
}

async function violations(page) {
  await page.evaluate(axeSource);
  const result = await page.evaluate(() => axe.run(document, { resultTypes: ["violations"] }));
  return result.violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.target.join(" ")).join(", ")}`);
}

describe("a report on a package with two functions", () => {
  test("loads nothing and says nothing on the console", async () => {
    const { page, seen } = await open(example);
    assert.deepEqual(seen.requests.filter((url) => !url.startsWith("data:")), [example]);
    assert.deepEqual(seen.console, []);
    await page.context().close();
  });

  test("shows verdicts, states, placement, findings and budget", async () => {
    const { page } = await open(example);
    assert.equal(await page.locator("h1").innerText(), "model.mlpackage");
    const headings = await page.locator("h2").allInnerTexts();
    assert.deepEqual(headings, ["Verdicts", "States and placement", "Findings", "Budget"]);
    assert.match(await page.locator(".verdict h3").first().innerText(), /expected|disputed|unknown/);
    assert.equal(await page.locator(".state").count(), 2);
    for (const name of ["key_cache", "value_cache"]) {
      assert.equal(await page.getByRole("img", { name: `State ${name}`, exact: true }).count(), 2);  // one a function
    }
    const prefill = page.locator(".function").nth(0);
    assert.ok(await prefill.locator(".boundary").count() > 10);
    assert.ok(await prefill.locator(".lane use[href='#mark-write']").count() >= 12);
    assert.match(await prefill.innerText(), /\d+ of \d+\. \d+ are not/);
    assert.ok(await page.locator(".finding").count() >= 3);
    assert.match(await page.locator("#budget table").first().innerText(), /decode\s+\d+/);
    await page.context().close();
  });

  test("draws states to scale", async () => {
    const { page } = await open(report(fixture("packages/a_accumulator.mlpackage"), "ane-ios26"));
    const widths = await page.locator(".state-bar .bar").evaluateAll((bars) => bars.map((b) => b.getBBox().width));
    const bytes = await page.locator(".state-facts strong").allInnerTexts();
    assert.equal(widths.length, bytes.length);
    await page.context().close();
    const drawn = await open(example);
    const bars = await drawn.page.locator(".state-bar").evaluateAll((figures) => figures.map(
      (figure) => figure.querySelector(".bar").getBBox().width / figure.getBoundingClientRect().width));
    assert.ok(bars.every((share) => Math.abs(share - 1) < 0.01), `equal states are equally long: ${bars}`);
    await drawn.page.context().close();
  });

  test("opens and closes evidence from the keyboard", async () => {
    const { page } = await open(example);
    const evidence = page.locator("details.evidence").first();
    await evidence.locator("summary").first().focus();
    await page.keyboard.press("Enter");
    assert.equal(await evidence.evaluate((d) => d.open), true);
    assert.ok(await evidence.getByRole("heading", { name: "Against" }).isVisible());
    await page.keyboard.press("Space");
    assert.equal(await evidence.evaluate((d) => d.open), false);
    await page.getByRole("button", { name: "Open all evidence" }).press("Enter");
    assert.ok((await page.locator("details.evidence").evaluateAll((all) => all.every((d) => d.open))));
    assert.ok(await page.getByRole("button", { name: "Close all evidence" }).isVisible());
    await page.context().close();
  });

  test("reaches everything by tab, with a visible focus, starting at the skip link", async () => {
    const { page } = await open(example);
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement.className), "skip");
    const reached = new Set();
    const wanted = await page.locator("summary:visible, button:visible, main a:visible").count();
    for (let i = 0; i < 300; i++) {
      const kind = await page.evaluate(() => {
        const active = document.activeElement;
        if (active === document.body) return null;
        return [active.tagName, [...document.querySelectorAll(active.tagName)].indexOf(active),
          getComputedStyle(active).outlineStyle].join(" ");
      });
      if (kind === null) break;
      assert.match(kind, / solid$/);
      reached.add(kind);
      await page.keyboard.press("Tab");
    }
    assert.ok(reached.size >= wanted, `${reached.size} of at least ${wanted}`);
    await page.context().close();
  });

  test("copies a command", async () => {
    const { page } = await open(example, { permissions: ["clipboard-read", "clipboard-write"] });
    const fix = page.locator(".fix").first();
    await fix.getByRole("button").click();
    await page.waitForFunction(() => document.getElementById("live").textContent !== "");
    assert.match(await page.locator("#live").innerText(), /copied|selected/);
    assert.match(await fix.locator("code").innerText(), /^milwright rewrite .*--pass /);
    await page.context().close();
  });

  test("is dark where the reader wants it dark", async () => {
    const colors = [];
    for (const colorScheme of ["light", "dark"]) {
      const { page } = await open(example, { colorScheme });
      colors.push(await page.evaluate(() => {
        const style = getComputedStyle(document.body);
        return [style.backgroundColor, style.color].map((c) => c.match(/\d+/g).map(Number).reduce((a, b) => a + b));
      }));
      await page.context().close();
    }
    const [[lightPaper, lightInk], [darkPaper, darkInk]] = colors;
    assert.ok(lightPaper > lightInk && darkPaper < darkInk && lightPaper > darkPaper, JSON.stringify(colors));
  });

  test("fits narrow screens", async () => {
    for (const width of [360, 768]) {
      const { page } = await open(example, { viewport: { width, height: 800 } });
      await page.locator("details").evaluateAll((all) => { for (const d of all) d.open = true; });
      assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), width);
      await page.context().close();
    }
  });

  test("prints with its evidence opened", async () => {
    const { page } = await open(example);
    await page.evaluate(() => dispatchEvent(new Event("beforeprint")));
    assert.ok(await page.locator("details").evaluateAll((all) => all.every((d) => d.open)));
    await page.emulateMedia({ media: "print" });
    assert.equal(await page.locator("nav").isVisible(), false);
    await page.context().close();
  });

  test("works without scripts", async () => {
    const { page } = await open(example, { javaScriptEnabled: false });
    assert.equal(await page.locator("button:visible").count(), 0);
    assert.ok(await page.locator("details.evidence").count() > 0);
    await page.context().close();
  });

  for (const colorScheme of ["light", "dark"]) {
    for (const width of [1200, 360]) {
      test(`has no accessibility violations that axe knows, ${colorScheme}, ${width} px`, async () => {
        const { page } = await open(example, { colorScheme, bypassCSP: true, viewport: { width, height: 900 } });
        assert.deepEqual(await violations(page), []);
        await page.locator("details").evaluateAll((all) => { for (const d of all) d.open = true; });
        assert.deepEqual(await violations(page), []);
        await page.context().close();
      });
    }
  }
});

describe("a report on other packages", () => {
  for (const [name, target] of [["state-semantics/T02.mlpackage", "any"], ["state-semantics/T07.mlpackage", "gpu"],
    ["packages/a_accumulator.mlpackage", "ane-macos26"], ["packages/i_multifunction_int4.mlpackage", "cpu"]]) {
    test(`${name} for ${target}`, async () => {
      const { page, seen } = await open(report(fixture(name), target), { bypassCSP: true });
      assert.deepEqual(seen.console, []);
      assert.deepEqual(await violations(page), []);
      await page.context().close();
    });
  }

  test("hostile names stay text", async () => {
    const name = "</script><img src=x onerror=alert(1)>.mlpackage";
    const path = hostileCopy("packages/b_slice.mlpackage", "k_cache", "<b>\"'&>", name.replace("/", "\u2215"));
    const { page, seen } = await open(report(path, "ane-ios26"));
    assert.equal(seen.dialogs, 0);
    assert.deepEqual(seen.console, []);
    assert.equal(seen.requests.filter((url) => !url.startsWith("data:")).length, 1);
    assert.equal(await page.locator("img").count(), 0);
    assert.equal(await page.locator("main b").count(), 0);
    assert.match(await page.locator("h1").innerText(), /<img src=x onerror=alert\(1\)>/);
    assert.equal(await page.locator(".state-name code").first().innerText(), "<b>\"'&>");
    await page.context().close();
  });
});
