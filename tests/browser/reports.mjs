// Packages and their HTML reports, and the browser to open them in.
import { execFileSync } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const root = join(dirname(fileURLToPath(import.meta.url)), "../..");
const milwright = process.env.MILWRIGHT ?? join(root, "build/release/milwright");
const work = mkdtempSync(join(tmpdir(), "milwright-report-"));

// Without these flags Chromium asks the network for updates and hints of its own.
export const launch = () => chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync"],
});

export const fixture = (name) => join(root, "tests/data", name);

/// The example checkpoint with a prefill function of 256 rows and a decode function, which is partly placed on the ANE.
export function buildExample() {
  const folder = join(work, "qwen3");
  execFileSync(milwright, ["build", join(root, "examples/qwen3-jacobean"), "-o", folder, "--functions",
    "prefill:256,decode", "--context-length", "2048"]);
  return join(folder, "model.mlpackage");
}

/// A fixture in a folder with a hostile name, in which each name `from` (bytes in the model file) reads `to`.
export function hostileCopy(name, from, to, folder) {
  if (Buffer.byteLength(from) !== Buffer.byteLength(to)) throw new Error("the names must be of one length");
  const path = join(work, folder);
  cpSync(fixture(name), path, { recursive: true });
  const file = join(path, "Data/com.apple.CoreML/model.mlmodel");
  const bytes = readFileSync(file, "latin1").replaceAll(from, to);
  writeFileSync(file, bytes, "latin1");
  return path;
}

/// The address of the HTML report on a package; `cwd` is where a relative path starts.
export function report(path, target, cwd = root) {
  const file = join(work, `${Math.random().toString(36).slice(2)}.html`);
  try {
    execFileSync(milwright, ["check", path, "--target", target, "--format", "html", "--output", file], { cwd });
  } catch (error) {
    if (error.status !== 1) throw error;  // 1: findings
  }
  return pathToFileURL(file).href;
}
