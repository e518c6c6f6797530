// Takes the README's picture of a report: node screenshot.mjs FILE.png
import { dirname } from "node:path";
import { buildExample, launch, report } from "./reports.mjs";

const package_path = buildExample();
const browser = await launch();
const page = await browser.newPage({ viewport: { width: 1120, height: 1500 }, colorScheme: "light" });
await page.goto(report("model.mlpackage", "ane-ios26", dirname(package_path)));
await page.evaluate(() => document.fonts.ready);
await page.screenshot({ path: process.argv[2] });
await browser.close();
