// Speed of the tokenizer: bytes of text per second on one core, and time on hostile texts by their length.
//
//   ninja -C build/release tokenizer_bench && build/release/bench/tokenizer_bench
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "tokenizer/chat_template.h"
#include "tokenizer/random.h"
#include "tokenizer/tokenizer.h"

namespace milwright {
namespace {

// Letters by rough frequency, so that words look like words and merges apply.
constexpr std::string_view kLetters = "etaoinshrdlucmfwypvbgkjqxz";

std::string MakeWord(SplitMix64& random) {
  std::string word;
  const size_t length = 1 + random.Next() % 9;
  for (size_t i = 0; i < length; ++i) {
    const double unit = random.NextUnit();
    word += kLetters[static_cast<size_t>(unit * unit * static_cast<double>(kLetters.size()))];
  }
  return word;
}

/// English-like text: 10,000 words, used by Zipf's law, with punctuation, numbers and line ends.
std::string MakeText(size_t bytes) {
  SplitMix64 random(1);
  std::vector<std::string> words;
  for (int i = 0; i < 10000; ++i) words.push_back(MakeWord(random));
  std::string text;
  while (text.size() < bytes) {
    const double unit = random.NextUnit();
    text += words[static_cast<size_t>(unit * unit * unit * static_cast<double>(words.size()))];
    const uint64_t mark = random.Next() % 32;
    text += mark == 0 ? ".\n" : mark == 1 ? ", " : mark == 2 ? " 1984 " : mark == 3 ? "? " : " ";
  }
  return text;
}

/// The same length in Chinese characters, every one a few bytes of its own.
std::string MakeChineseText(size_t bytes) {
  SplitMix64 random(2);
  std::string text;
  while (text.size() < bytes) {
    const uint32_t c = 0x4E00 + static_cast<uint32_t>(random.Next() % 3000);
    text += static_cast<char>(0xE0 | c >> 12);
    text += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    text += static_cast<char>(0x80 | (c & 0x3F));
    if (random.Next() % 12 == 0) text += "，";
  }
  return text;
}

/// The tokenizer in tests/data/tokenizer/`folder`; ends the program if it does not load.
Tokenizer Load(const std::string& folder) {
  Result<Tokenizer> tokenizer = Tokenizer::Load(MILWRIGHT_SOURCE_DIR "/tests/data/tokenizer/" + folder);
  if (!tokenizer.ok()) {
    std::cerr << tokenizer.status().message() << '\n';
    std::exit(1);
  }
  return *std::move(tokenizer);
}

void Encode(benchmark::State& state, const std::string& folder, const std::string& text) {
  const Tokenizer tokenizer = Load(folder);
  size_t ids = 0;
  for (auto _ : state) {
    const auto encoded = tokenizer.Encode(text, /*add_special_tokens=*/false);
    ids = encoded->size();
    benchmark::DoNotOptimize(ids);
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
  state.counters["bytes_per_id"] = static_cast<double>(text.size()) / static_cast<double>(ids);
}

void Decode(benchmark::State& state, const std::string& folder) {
  const Tokenizer tokenizer = Load(folder);
  const std::string text = MakeText(1 << 20);
  const auto ids = tokenizer.Encode(text, /*add_special_tokens=*/false);
  for (auto _ : state) {
    auto decoded = tokenizer.Decode(*ids, /*skip_special_tokens=*/false);
    benchmark::DoNotOptimize(decoded);
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
}

/// One long run, whose time must grow no faster than n log n.
void Hostile(benchmark::State& state, const std::string& folder, const std::string& unit) {
  const Tokenizer tokenizer = Load(folder);
  std::string text;
  while (text.size() < static_cast<size_t>(state.range(0))) text += unit;
  for (auto _ : state) {
    auto encoded = tokenizer.Encode(text, /*add_special_tokens=*/false);
    benchmark::DoNotOptimize(encoded);
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
}

void RenderChat(benchmark::State& state) {
  const auto chat = ChatTemplate::Load(MILWRIGHT_SOURCE_DIR "/tests/data/tokenizer");
  ChatRequest request;
  for (int i = 0; i < state.range(0); ++i) {
    request.messages.push_back({{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", MakeText(400)}});
  }
  for (auto _ : state) {
    auto text = chat->Render(request);
    benchmark::DoNotOptimize(text);
  }
}

void RegisterAll() {
  for (const std::string folder : {"", "llama3", "gpt2", "gemma", "llama2"}) {
    const std::string name = folder.empty() ? "qwen2" : folder;
    benchmark::RegisterBenchmark(("encode/" + name).c_str(), Encode, folder, MakeText(1 << 20));
    benchmark::RegisterBenchmark(("encode_chinese/" + name).c_str(), Encode, folder, MakeChineseText(1 << 20));
    benchmark::RegisterBenchmark(("encode_prompt_2k/" + name).c_str(), Encode, folder, MakeText(2048));
    benchmark::RegisterBenchmark(("decode/" + name).c_str(), Decode, folder);
    const std::pair<std::string, std::string> hostile[] = {
        {"a", "a"}, {"spaces", " "}, {"th", "th"}, {"marks", "\u0301\u0323"}};
    for (const auto& [kind, unit] : hostile) {
      benchmark::RegisterBenchmark(("hostile_" + kind + "/" + name).c_str(), Hostile, folder, unit)
          ->Arg(100'000)
          ->Arg(1'000'000)
          ->Unit(benchmark::kMillisecond);
    }
  }
  benchmark::RegisterBenchmark("render_chat", RenderChat)->Arg(2)->Arg(100);
}

}  // namespace
}  // namespace milwright

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  milwright::RegisterAll();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
