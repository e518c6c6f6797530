// Random damage to MIL text: neither parser may crash, hang or take memory, and what still parses must survive a round
// trip through the printer. Run under the sanitizers as well.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "text/analytics.h"
#include "text/lexer.h"
#include "text/parser.h"
#include "text/printer.h"
#include "text_test_util.h"

namespace milwright {
namespace {

// A small text with every construct, so that damage hits each.
constexpr std::string_view kSample = R"(program(1.3, "doc")
[buildInfo = dict<string, string>({{"a", "b"}, {"c", "\x41\n"}})]
{
    func main<ios18>(tensor<fp16, [2, ?]> x, state<tensor<fp16, [2]>> kv) [note = int32(1)] {
            tensor<fp16, [2]> old = read_state(input = kv)[name = string("read")];
            tensor<fp16, [1]> a, tensor<fp16, [1]> b = split(axis = int32(0), x = old)[l = list<string, 2>(["p", "q"])];
            tensor<fp16, [2]> w = const()[val = tensor<fp16, [2]>(BLOBFILE(path = string("w"), offset = uint64(64)))];
            tensor<fp16, [3]> joined = concat(values = (a, b, fp16(-0x0p+0)))[t = tuple<int8, bool>((-3, true))];
            write_state(data = old, input = kv)[f = tensor<fp32, [2, 2]>([[0x1p-149, nan], [-inf, nan(0x7fc00001)]])];
            tensor<fp16, [3]> picked = cond(pred = bool(false))[u = tensor<uint4, [3]>([0, 7, 15]), e = tensor<int4, [0]>([])]
                () {
                        tensor<fp16, [3]> inner = relu(x = joined);
                    } -> (inner),
                (tensor<fp16, [3]> given) {
                    } -> (given)[mark = bool(false)];
        } -> (picked, x)[mark = bool(true)];
})";

std::vector<std::string_view> Tokens(std::string_view text) {
  std::vector<std::string_view> tokens;
  Lexer lexer(text, "");
  EXPECT_TRUE(lexer.Start().ok());
  while (lexer.current().kind != TokenKind::kEnd) {
    const Token& token = lexer.current();
    const size_t quotes = token.kind == TokenKind::kString ? 2 : 0;
    tokens.push_back(text.substr(token.offset, token.text.size() + quotes));
    EXPECT_TRUE(lexer.Advance().ok());
  }
  return tokens;
}

class Mutator {
 public:
  Mutator(std::string_view text, uint64_t seed) : tokens_(Tokens(text)), random_(seed) {}

  std::string Next() {
    std::vector<std::string_view> tokens = tokens_;
    for (uint64_t edits = 1 + Below(2) * Below(3); edits > 0 && !tokens.empty(); --edits) EditTokens(&tokens);
    std::string text;
    for (const std::string_view token : tokens) {
      text += token;
      text += ' ';
    }
    if (Below(4) == 0) EditCharacters(&text);
    return text;
  }

 private:
  uint64_t Below(uint64_t limit) { return random_() % limit; }

  void EditTokens(std::vector<std::string_view>* tokens) {
    static constexpr std::string_view kStrange[] = {
        "(",          ")",    "[",    "]",        "{",    "}",      "<",     ">",
        ",",          ";",    "=",    "?",        "->",   "-1",     "0",     "99999999999999999999",
        "0x1p+99999", "nan",  "-inf", "1e5",      "\"\"", "tensor", "int32", "string",
        "state",      "list", "func", "BLOBFILE", "fp64", "uint1"};
    const auto at = tokens->begin() + static_cast<std::ptrdiff_t>(Below(tokens->size()));
    switch (Below(8)) {
      case 0:
        tokens->erase(at);
        break;
      case 1:
        tokens->insert(at, *at);
        break;
      case 2:
        std::swap(*at, (*tokens)[Below(tokens->size())]);
        break;
      case 3:
        *at = (*tokens)[Below(tokens->size())];
        break;
      case 4:
        *at = kStrange[Below(std::size(kStrange))];
        break;
      case 5:
        tokens->insert(at, kStrange[Below(std::size(kStrange))]);
        break;
      default: {  // one that begins alike: more often still a program
        const std::string_view other = tokens_[Below(tokens_.size())];
        if (std::isdigit(other.front()) == std::isdigit(at->front()) &&
            (other.front() == '"') == (at->front() == '"')) {
          *at = other;
        }
        break;
      }
    }
  }

  void EditCharacters(std::string* text) {
    switch (Below(3)) {
      case 0:
        text->resize(Below(text->size() + 1));
        break;
      case 1:
        (*text)[Below(text->size())] = static_cast<char>(random_());
        break;
      default:
        text->erase(Below(text->size()), 1 + Below(8));
        break;
    }
  }

  std::vector<std::string_view> tokens_;
  std::mt19937_64 random_;
};

// Returns how many of the damaged texts still were programs.
int Damage(std::string_view text, uint64_t seed, int rounds) {
  Mutator mutator(text, seed);
  int accepted = 0;
  for (int i = 0; i < rounds; ++i) {
    const std::string damaged = mutator.Next();
    ParseOptions options = WithZeroWeights();
    options.lenient = i % 2 == 0;
    const auto program = ParseProgram(damaged, options);
    static_cast<void>(ParseAnalytics(damaged).ok());
    if (!program.ok()) {
      EXPECT_EQ(std::ranges::count(program.status().message(), '\n'), 2) << program.status().message();
      continue;
    }
    ++accepted;
    const std::string printed = PrintProgram(*program);
    const auto again = ParseProgram(printed, options);
    EXPECT_TRUE(again.ok()) << "seed " << seed << " round " << i << ": " << again.status().message();
    std::string why;
    if (again.ok()) {
      EXPECT_TRUE(ProgramsEqual(*program, *again, {}, &why)) << "seed " << seed << " round " << i << ": " << why;
    }
    if (testing::Test::HasFailure()) break;
  }
  return accepted;
}

TEST(Fuzz, DamagedSample) {
  const int accepted = Damage(kSample, 20240612, 20000);
  EXPECT_GT(accepted, 500) << "the damage is too heavy to reach the deeper parts";
}

TEST(Fuzz, DamagedRealFiles) {
  const auto files = FindFiles(kRealFiles, "model.mil");
  if (files.empty()) GTEST_SKIP() << "needs " << kRealFiles;
  uint64_t seed = 1;
  for (const auto& path : files) Damage(ReadFile(path), seed++, 300);
}

TEST(Fuzz, DamagedAnalytics) {
  const auto folder = kRealFiles / "751K__Apple-Neural-Engine-Microarchitecture-Study-M6";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "needs " << folder;
  for (const char* name : {"sdpa_mask.mil", "gather_dyn.mil"}) {
    for (const auto& path : FindFiles(folder, name)) {
      const std::string text = ReadFile(path);
      Mutator mutator(text, 99);
      for (int i = 0; i < 2000; ++i) static_cast<void>(ParseAnalytics(mutator.Next()).ok());
    }
  }
}

}  // namespace
}  // namespace milwright
