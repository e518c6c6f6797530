// Small tokenizers that together use every component and option, and the texts to try them on.

const LETTERS = [..."abcdefghijklmnopqrstuvwxyzABCDEHIT0123456789.,!?'-_()"];
const MERGES = ["t h", "th e", "i n", "a n", "an d", "l l", "h e", "he ll", "hell o", "1 2", "12 3", ". .", "o w", "A B"];

const added = (id, content, flags = {}) => ({
  id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special: true, ...flags,
});

// A character vocabulary with a few merges. `extra` are more characters; merges with "▁" exist if it is one of them.
function bpe({ extra = [], merges = [], ...options } = {}) {
  const all = [...MERGES, ...merges];
  const tokens = ["<unk>", ...extra, ...LETTERS, ...all.map((m) => m.replace(" ", ""))];
  const vocab = {};
  for (const token of tokens) vocab[token] ??= Object.keys(vocab).length;
  return {
    type: "BPE", dropout: null, unk_token: "<unk>", continuing_subword_prefix: null, end_of_word_suffix: null,
    fuse_unk: false, byte_fallback: false, ignore_merges: false, vocab, merges: all, ...options,
  };
}

const BYTES = Array.from({ length: 256 }, (_, i) => `<0x${i.toString(16).toUpperCase().padStart(2, "0")}>`);
const SPACED = { extra: ["▁"], merges: ["▁ th", "▁ a", "▁ ▁", "▁▁ ▁▁", "▁th e"] };

function unigram({ bytes = false, unkId = 0, extra = [] } = {}) {
  const scored = [
    ["<unk>", 0], ["<s>", 0], ["</s>", 0], ["▁", -2.5], ["▁the", -3.1], ["▁a", -3.3], ["▁th", -4.9], ["e", -3.8],
    ["s", -3.7], ["▁river", -7.2], ["▁riv", -8.9], ["er", -4.4], ["r", -4.6], ["i", -4.7], ["v", -6.1], ["▁bank", -7.7],
    ["b", -5.8], ["an", -5.1], ["n", -4.5], ["k", -6.2], ["ing", -4.3], ["in", -4.8], ["g", -5.7], ["t", -4.2],
    ["h", -5.3], ["a", -4.0], ["▁over", -6.6], ["o", -4.1], ["ver", -6.0], ["▁▁", -6.4], ["▁▁▁▁", -7.5], ["l", -4.9],
    ["ll", -6.3], ["w", -5.9], ["é", -8.1], ["世界", -9.6], ["世", -10.2], [",", -3.9], [".", -3.6], ["1", -6.0],
    ["2", -6.2], ["12", -7.9], ["\n", -5.0], ["m", -5.2], ["d", -4.9], ["u", -5.6], ["fi", -7.0], ["f", -5.7], ...extra,
  ];
  const vocab = bytes ? [...scored, ...BYTES.map((token) => [token, -20])] : scored;
  return { type: "Unigram", unk_id: unkId, vocab, byte_fallback: bytes };
}

// SentencePiece's character map as a darts double array: one unit per (base ^ label), laid out greedily.
function charsmap(pairs) {
  const root = new Map();
  let replacements = [];
  const encoder = new TextEncoder();
  for (const [from, to] of pairs) {
    let node = root;
    for (const byte of encoder.encode(from)) {
      if (!node.has(byte)) node.set(byte, new Map());
      node = node.get(byte);
    }
    node.set("value", replacements.length);
    replacements.push(...encoder.encode(to), 0);
  }
  const units = [0];
  const used = new Set([0]);
  const place = (node, position) => {
    const labels = [...node.keys()].map((key) => (key === "value" ? 0 : key));
    // The offset must fit bits 10..31 unscaled, and every child lies at position ^ offset ^ label.
    let offset = 1;
    while (labels.some((label) => used.has(position ^ offset ^ label))) ++offset;
    units[position] = (units[position] ?? 0) | (offset << 10);
    if (node.has("value")) units[position] |= 1 << 8;
    for (const label of labels) used.add(position ^ offset ^ label);
    for (const [key, child] of node) {
      const at = position ^ offset ^ (key === "value" ? 0 : key);
      if (key === "value") {
        units[at] = (child | (1 << 31)) >>> 0;
      } else {
        units[at] = key;
        place(child, at);
      }
    }
  };
  place(root, 0);
  const size = 256 * Math.ceil((Math.max(...used) + 256) / 256);
  const bytes = Buffer.alloc(4 + 4 * size + replacements.length);
  bytes.writeUInt32LE(4 * size, 0);
  for (let i = 0; i < size; ++i) bytes.writeUInt32LE((units[i] ?? 0) >>> 0, 4 + 4 * i);
  Buffer.from(replacements).copy(bytes, 4 + 4 * size);
  return bytes.toString("base64");
}

const PRECOMPILED = charsmap([
  ["ﬁ", "fi"], ["Ａ", "A"], ["①", "1"], ["\u3000", " "], ["\u00a0", " "], ["e\u0301", "é"], ["\u200b", ""], ["\t", " "],
  ["½", "1/2"],
]);

const file = (parts) => ({
  version: "1.0", truncation: null, padding: null, added_tokens: [], normalizer: null, pre_tokenizer: null,
  post_processor: null, decoder: null, ...parts,
});

const split = (pattern, behavior, invert = false) => ({ type: "Split", pattern, behavior, invert });
const metaspace = (prepend_scheme, doSplit = true) => ({ type: "Metaspace", replacement: "▁", prepend_scheme, split: doSplit });
const sequence = (...pretokenizers) => ({ type: "Sequence", pretokenizers });
const normalizers = (...list) => ({ type: "Sequence", normalizers: list });
const FALLBACK = {
  type: "Sequence",
  decoders: [
    { type: "Replace", pattern: { String: "▁" }, content: " " }, { type: "ByteFallback" }, { type: "Fuse" },
    { type: "Strip", content: " ", start: 1, stop: 0 },
  ],
};

const variants = {
  unigram_always: file({ model: unigram(), pre_tokenizer: metaspace("always"), decoder: metaspace("always") }),
  unigram_first: file({
    model: unigram(), pre_tokenizer: metaspace("first"), decoder: metaspace("first"),
    added_tokens: [added(1, "<s>"), added(2, "</s>")],
  }),
  unigram_never_unsplit: file({ model: unigram(), pre_tokenizer: metaspace("never", false), decoder: metaspace("never") }),
  unigram_byte_fallback: file({
    model: unigram({ bytes: true }), decoder: FALLBACK,
    normalizer: normalizers({ type: "Prepend", prepend: "▁" }, { type: "Replace", pattern: { String: " " }, content: "▁" }),
  }),
  unigram_whole_text: file({ model: unigram({ extra: [["in g", -1], [" ", -3]] }) }),
  unigram_t5: file({
    model: unigram({ extra: [["A", -5], ["/", -6]] }), decoder: metaspace("always"),
    normalizer: normalizers(
      { type: "Precompiled", precompiled_charsmap: PRECOMPILED }, { type: "Strip", strip_left: false, strip_right: true },
      { type: "Replace", pattern: { Regex: " {2,}" }, content: "▁" }),
    pre_tokenizer: sequence({ type: "WhitespaceSplit" }, metaspace("always")),
    post_processor: {
      type: "TemplateProcessing",
      single: [{ Sequence: { id: "A", type_id: 0 } }, { SpecialToken: { id: "</s>", type_id: 0 } }],
      pair: [{ Sequence: { id: "A", type_id: 0 } }, { Sequence: { id: "B", type_id: 0 } }],
      special_tokens: { "</s>": { id: "</s>", ids: [2], tokens: ["</s>"] } },
    },
    added_tokens: [added(0, "<unk>"), added(2, "</s>")],
  }),
  unigram_strip_first: file({
    model: unigram(), normalizer: { type: "Strip", strip_left: true, strip_right: true }, pre_tokenizer: metaspace("first"),
    added_tokens: [added(1, "<s>")],
  }),
  bpe_byte_fallback: file({
    model: bpe({ extra: ["▁", ...BYTES], merges: SPACED.merges, byte_fallback: true, fuse_unk: true }), decoder: FALLBACK,
    normalizer: normalizers({ type: "Prepend", prepend: "▁" }, { type: "Replace", pattern: { String: " " }, content: "▁" }),
  }),
  bpe_some_bytes: file({
    model: bpe({ extra: ["▁", "<0xC3>", "<0xA9>", "<0xE4>"], byte_fallback: true, fuse_unk: true }), decoder: FALLBACK,
  }),
  bpe_unk: file({ model: bpe(SPACED), pre_tokenizer: metaspace("always") }),
  bpe_fuse_unk: file({ model: bpe({ ...SPACED, fuse_unk: true }), pre_tokenizer: metaspace("first") }),
  bpe_no_unk: file({ model: bpe({ ...SPACED, unk_token: null }), pre_tokenizer: metaspace("always") }),
  bpe_ignore_merges: file({
    model: bpe({ ignore_merges: true, extra: ["hello,", "world"] }), pre_tokenizer: { type: "WhitespaceSplit" },
  }),
  bpe_affixes: file({
    model: {
      ...bpe({ extra: [" "] }), continuing_subword_prefix: "##", end_of_word_suffix: "</w>",
      vocab: Object.fromEntries(
        ["<unk>", "t", "h", "e", "##h", "##e", "##h</w>", "##e</w>", "e</w>", "th", "the</w>", "he", "a</w>", "##t</w>", "ht</w>"].map((t, i) => [t, i])),
      merges: [["t", "##h"], ["th", "##e</w>"], ["h", "##e"], ["h", "##t</w>"]],
    },
    pre_tokenizer: { type: "Whitespace" }, decoder: { type: "BPEDecoder", suffix: "</w>" },
  }),
  bpe_roberta: file({
    model: bpe({ extra: ["Ġ", "Ċ", "Ã", "©"], merges: ["Ġ th", "Ġ a"] }),
    pre_tokenizer: { type: "ByteLevel", add_prefix_space: true, trim_offsets: true, use_regex: true },
    decoder: { type: "ByteLevel", add_prefix_space: true, trim_offsets: true, use_regex: true },
    post_processor: { type: "RobertaProcessing", sep: ["b", 6], cls: ["a", 5], trim_offsets: true, add_prefix_space: true },
  }),
  bpe_byte_level_normalizer: file({
    model: bpe({ extra: ["Ġ", "Ċ", "Ã", "©"], merges: ["Ġ th"] }), normalizer: { type: "ByteLevel" },
    pre_tokenizer: split({ Regex: "Ġ?[a-z]+" }, "Isolated"),
    decoder: { type: "ByteLevel", add_prefix_space: true, trim_offsets: true, use_regex: true },
  }),
  word_level: file({
    model: { type: "WordLevel", vocab: { "<unk>": 0, the: 1, and: 2, hello: 3, "12": 4, "!": 5, a: 6, é: 7 }, unk_token: "<unk>" },
    pre_tokenizer: { type: "Whitespace" },
  }),
  digits: file({ model: bpe(), pre_tokenizer: { type: "Digits", individual_digits: false } }),
  digits_individual: file({ model: bpe(), pre_tokenizer: { type: "Digits", individual_digits: true } }),
  char_delimiter: file({ model: bpe(), pre_tokenizer: { type: "CharDelimiterSplit", delimiter: "-" } }),
  llama3_like: file({
    model: bpe({ extra: ["Ġ", "Ċ"] }),
    pre_tokenizer: sequence(
      split({ Regex: "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+" }, "Isolated"),
      { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: false }),
  }),
  gpt4o_like: file({
    model: bpe({ extra: ["Ġ"] }),
    pre_tokenizer: split({ Regex: "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+" }, "Removed", true),
  }),
  deepseek_like: file({
    model: bpe(),
    pre_tokenizer: sequence(
      split({ Regex: "\\p{N}{1,3}" }, "Isolated"), split({ Regex: "[一-龥぀-ゟ゠-ヿ]+" }, "Isolated"),
      split({ Regex: "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+" }, "Isolated")),
  }),
  regex_classes: file({
    model: bpe({ extra: [" "] }),
    pre_tokenizer: sequence(split({ Regex: "\\w+\\d*|[\\s\\S]" }, "Isolated"), split({ Regex: "^x|y$|[^\\S\\d]" }, "MergedWithNext")),
  }),
  empty_matches: file({ model: bpe({ extra: [" "] }), pre_tokenizer: split({ Regex: "l*" }, "Isolated") }),
  added_flags: file({
    model: bpe({ extra: [" "] }), normalizer: { type: "Lowercase" }, pre_tokenizer: { type: "WhitespaceSplit" },
    added_tokens: [
      added(75, "[L]", { lstrip: true }), added(76, "[R]", { rstrip: true }), added(77, "[LR]", { lstrip: true, rstrip: true }),
      added(78, "hell", { single_word: true }), added(79, "yes", { normalized: true, special: false }),
      added(80, "No", { normalized: true, special: false, single_word: true }), added(81, "[[L]]"), added(82, "  "),
    ],
  }),
};

for (const behavior of ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]) {
  for (const invert of [false, true]) {
    variants[`split_${behavior}_${invert}`] = file({
      model: bpe({ extra: [" "] }), pre_tokenizer: split({ Regex: "[aeo]|\\s" }, behavior, invert),
    });
  }
  variants[`split_string_${behavior}`] = file({ model: bpe({ extra: [" "] }), pre_tokenizer: split({ String: "ll" }, behavior) });
  variants[`punctuation_${behavior}`] = file({ model: bpe({ extra: [" "] }), pre_tokenizer: { type: "Punctuation", behavior } });
}
const NORMALIZERS = {
  nfc: { type: "NFC" }, nfd: { type: "NFD" }, nfkc: { type: "NFKC" }, nfkd: { type: "NFKD" }, lowercase: { type: "Lowercase" },
  nmt: { type: "Nmt" }, strip_right: { type: "Strip", strip_left: false, strip_right: true },
  accents: normalizers({ type: "NFKD" }, { type: "StripAccents" }, { type: "Lowercase" }),
  replace_regex: { type: "Replace", pattern: { Regex: "[0-9]+|\\s" }, content: "a" },
  precompiled: { type: "Precompiled", precompiled_charsmap: PRECOMPILED },
};
// With every byte in the vocabulary the ids show the normalized text exactly.
for (const [name, normalizer] of Object.entries(NORMALIZERS)) {
  variants[`normalizer_${name}`] = file({
    model: bpe({ extra: BYTES, byte_fallback: true }), normalizer, decoder: { type: "ByteFallback" },
  });
}
const DECODERS = {
  none: null,
  // The library panics where start and stop meet in one token, so each stands alone.
  strip_start: { type: "Strip", content: "l", start: 2, stop: 0 }, strip_stop: { type: "Strip", content: "l", start: 0, stop: 1 },
  replace: { type: "Replace", pattern: { String: "l" }, content: "<L>" },
  replace_regex: { type: "Replace", pattern: { Regex: "[a-e]+" }, content: "*" },
  fused: { type: "Sequence", decoders: [{ type: "Fuse" }, { type: "Replace", pattern: { String: "lo" }, content: "LO" }, { type: "Strip", content: "t", start: 1, stop: 0 }] },
};
for (const [name, decoder] of Object.entries(DECODERS)) variants[`decoder_${name}`] = file({ model: bpe({ extra: [" "] }), decoder });

// Added tokens get the ids behind the vocabulary, whatever its size.
for (const tokenizer of Object.values(variants)) {
  const vocab = tokenizer.model.vocab;
  const known = Array.isArray(vocab) ? new Map(vocab.map(([token], id) => [token, id])) : new Map(Object.entries(vocab));
  let next = known.size;
  for (const token of tokenizer.added_tokens) token.id = known.get(token.content) ?? next++;
}

const texts = [
  "", " ", "  ", "\n", "the", " the", "the ", "  the  river  ", "hello and the rivers", "the river bank, over the banks.",
  "thinking", "llllll", "Hello THE And", "hello hello", "12 123 1234 x1y22", "½ ⅷ ① ٣ ²", "a-b--c-", "...!!?", "it's IT'S I'LL we'ſ",
  "café cafe\u0301", "ﬁ Ａ①\u3000x\u00a0y", "世界 世 hello世界!", "é", "ééé", "日本", "a日b", "😀", "a😀😀b", "x\ty\nz\r\n", "\t a \n b  ",
  "zero\u200bwidth\u200d", "Åﬃ İ ǅ ẞ", "ẹ\u0301\u0301 q\u0307\u0323", "한글 한", "A[L] b", "a  [L]  b", "a  [R]  b", "a [LR] [LR] b", "[[L]]", "[L][R]",
  "hell hello shell hell!", "YES yes Yes", "no No NO nonono", "<s>the</s> the", "<s> the river</s>", "  <s>  hello", "a</w> the at", "eth he the ht",
  "<0x41> <unk>", "▁the▁a", "xl hello lly", "ab AB aB", "tt that at", "all or\u2028nothing\u0085x\u180ey", "snake_case CamelCase 'quote'", "a\u0000b",
  "the the the the and and", "over1212and12", "\u0301a", "n\u0303o\u0308", "﷐ ﷺ", "tested\u001cby\u001f", "i̇", "ⓐⓑ 𝒳𝓎 𠮷",
];

// The many variants of one component get the first texts only, to keep the file small.
const textsFor = (name) => (/^(split|punctuation|decoder)_/.test(name) ? texts.slice(0, 30) : texts);

export { texts, textsFor, variants };
