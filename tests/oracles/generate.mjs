// Writes expected values for the tokenizer tests: node generate.mjs OUTPUT_FOLDER DATA_FOLDER
// Tokenizers: the Rust library `tokenizers` (npm @anush008/tokenizers); where the independent JavaScript library
// @huggingface/tokenizers gives other ids, that is counted in "js_differs". Chats: @huggingface/jinja.
import fs from "node:fs";
import path from "node:path";
import { createRequire } from "node:module";
import { Template } from "@huggingface/jinja";
import * as js from "@huggingface/tokenizers";

import { chats, chatsFor, runs } from "./chat_cases.mjs";
import { texts, textsFor, variants } from "./tokenizer_variants.mjs";

const require = createRequire(import.meta.url);
const rust = require("@anush008/tokenizers");
const { dependencies } = JSON.parse(fs.readFileSync(new URL("package.json", import.meta.url)));
const [output, data] = process.argv.slice(2);

async function encodeAll(name, json) {
  const tokenizer = rust.Tokenizer.fromString(JSON.stringify(json));
  let reference = null;
  try {
    reference = new js.Tokenizer(json, {});
  } catch {
    // The JavaScript library does not know every component.
  }
  // One entry per text; "with_special" and "skipped" hold those that differ from "ids" and "decoded", by index.
  const result = { js_differs: 0, tokenizer: json, ids: [], with_special: {}, decoded: [], skipped: {} };
  for (const [index, text] of textsFor(name).entries()) {
    const ids = (await tokenizer.encode(text, null, { addSpecialTokens: false })).getIds();
    const with_special = (await tokenizer.encode(text, null, { addSpecialTokens: true })).getIds();
    if (!sameInJavaScript(reference, text, ids)) ++result.js_differs;
    result.ids.push(ids);
    if (with_special.length !== ids.length) result.with_special[index] = with_special;
    // The library panics on some decoders without tokens.
    const decoded = ids.length > 0 ? await tokenizer.decode(ids, false) : "";
    result.decoded.push(decoded);
    const skipped = with_special.length > 0 ? await tokenizer.decode(with_special, true) : "";
    if (skipped !== decoded) result.skipped[index] = skipped;
  }
  return result;
}

function sameInJavaScript(reference, text, ids) {
  try {
    return JSON.stringify(reference.encode(text, { add_special_tokens: false }).ids) === JSON.stringify(ids);
  } catch {
    return false; // it does not know the component, or gave up
  }
}

const tokenizers = {};
for (const [name, json] of Object.entries(variants)) tokenizers[name] = await encodeAll(name, json);

// strftime_now must not tell the day of the generation.
const RealDate = Date;
globalThis.Date = class extends RealDate {
  constructor(...args) {
    super(...(args.length > 0 ? args : [2024, 6, 26, 12]));
  }
};

const renderings = [];
for (const [name, variables] of Object.entries(runs)) {
  const template = new Template(fs.readFileSync(path.join(data, "chat", `${name}.jinja`), "utf8"));
  for (const [chat, messages] of chatsFor(name)) {
    for (const more of variables) {
      const entry = { template: name, chat, variables: more };
      try {
        entry.text = template.render({
          messages, add_generation_prompt: true, bos_token: "<s>", eos_token: "</s>", tools: null, ...more,
        });
      } catch (error) {
        entry.error = error.message;
      }
      renderings.push(entry);
    }
  }
}

fs.mkdirSync(output, { recursive: true });
const lines = (list) => `[\n${list.map((entry) => JSON.stringify(entry)).join(",\n")}\n]`;
const versions = JSON.stringify(dependencies);
fs.writeFileSync(path.join(output, "tokenizers.json"),
  `{"versions": ${versions},\n"texts": ${JSON.stringify(texts)},\n"tokenizers": {\n${Object.entries(tokenizers)
    .map(([name, result]) => `${JSON.stringify(name)}: ${JSON.stringify(result)}`).join(",\n")}}}\n`);
fs.writeFileSync(path.join(output, "chats.json"),
  `{"versions": ${versions},\n"chats": ${JSON.stringify(chats)},\n"renderings": ${lines(renderings)}}\n`);
