// Random stateful programs keep their meaning under every pass and under pairs of passes. 10,000 programs, in shards;
// with MILWRIGHT_FULL_TESTS=1 also every ordered pair on 1,000 programs. MILWRIGHT_RANDOM_SEEDS=FIRST-LAST looks at the
// programs of these seeds only, to see one again.
#include <cstdlib>
#include <iostream>
#include <limits>
#include <map>
#include <set>

#include "analysis/state_analysis.h"
#include "passes/pass_test_util.h"
#include "support/random_program.h"

namespace milwright {
namespace {

using testing::RandomProgram;
using testing::Reduce;

constexpr uint64_t kPrograms = 10000;
constexpr uint64_t kShards = 8;
constexpr uint64_t kRunsOfEachPair = 20;
constexpr int kRandomSteps = 6;  // longer than the four rows of a state where nothing bounds the position

// Options for passes that need some, or that do different things; passes that are not listed run without.
struct Variant {
  std::string_view pass;
  std::string_view options;
};
constexpr Variant kVariants[] = {
    {"rename", "x:row"},
    {"rename", "s0:first"},
    {"set-opset", "opset:iOS26"},
    {"extract-function", "function:main"},
    {"state-to-io", ""},
    {"state-to-io", "states:s0;outputs:slice"},
    {"io-to-state", "inputs:s0"},  // which of a random program's inputs are caches is anybody's guess otherwise
    {"unify-states", "states:s0+s1"},
    {"split-state", "state:s0;into:slot"},
    {"pad-state-dim", "axis:-1;multiple:3"},
    {"mask-to-slice-update", "position:pos"},
    {"split-chunks", "count:1;chunk:1"},
    {"shift-to-ring-buffer", "position:pos;states:s0"},
};

// Where the context has another length, so have the free inputs and the outputs, and a host that draws them anew has
// nothing to compare. There and back the programs must agree again: what was grown is cut, and what was cut is grown.
constexpr std::string_view kRoundTrips[] = {
    "set-context-length=length:7,set-context-length=length:4",
    "set-context-length=length:3,set-context-length=length:4",
};

// Passes that cannot run on a single program; their own tests run them.
bool NeedsMore(const Pass& pass) { return pass.name == "merge-functions"; }

std::vector<std::string> PassTexts() {
  std::vector<std::string> texts;
  for (const Pass& pass : AllPasses()) {
    if (NeedsMore(pass)) continue;
    const size_t before = texts.size();
    for (const Variant& variant : kVariants) {
      if (variant.pass != pass.name) continue;
      texts.push_back(std::string(pass.name) + (variant.options.empty() ? "" : "=" + std::string(variant.options)));
    }
    // A pass that needs to be told something, and is told nothing above, is run by its own tests.
    const bool asks = std::ranges::any_of(pass.options, &PassOption::required);
    if (texts.size() == before && !asks) texts.emplace_back(pass.name);
  }
  return texts;
}

struct Outcome {
  enum Kind { kEqual, kUnchanged, kRefused, kWrong, kNotRun } kind = kEqual;
  std::string message;

  [[nodiscard]] bool failed() const { return kind == kWrong || kind == kNotRun; }
};

// Runs one or two `passes` on `spec`, and the programs before and after on the same inputs. Where both passes change
// what hosts see (a state is split in slots, then these are moved out), the host follows one step at a time: the second
// is judged by what the first has left, and the first by its own run. A `round_trip` is judged as a whole.
Outcome Try(const ModelSpec& spec, const std::string& passes, bool round_trip) {
  auto uses = ParsePasses(passes);
  if (!uses.ok()) return {Outcome::kWrong, uses.status().message()};
  const auto changes_interface = [](const PassUse& use) { return use.pass->exactness == Exactness::kInterface; };
  ModelSpec before = spec.Clone();
  if (!round_trip && uses->size() == 2 && std::ranges::all_of(*uses, changes_interface)) {
    const auto first = RunPasses(before, {uses->front()});
    if (!first.ok()) return {Outcome::kRefused, first.status().message()};
    uses->erase(uses->begin());
  }
  ModelSpec after = before.Clone();
  CompareOptions options;
  options.steps = kRandomSteps;
  for (const PassUse& use : *uses) {
    if (use.pass->exactness == Exactness::kReordered) options.tolerance = {1e-3, 0};
    if (use.pass->name == "rename") {
      for (const auto& [from, to] : use.arguments.values()) options.names.insert_or_assign(from, to);
    }
  }
  PassManagerOptions manager;
  manager.verify_each = true;
  const auto results = RunPasses(after, *uses, manager);
  if (!results.ok()) {
    const bool refused = results.status().code() == ErrorCode::kPrecondition;
    return {refused ? Outcome::kRefused : Outcome::kWrong, results.status().message()};
  }
  if (std::ranges::none_of(*results, &PassResult::changed)) return {Outcome::kUnchanged, {}};
  const auto a = Model::FromSpec(std::make_shared<const ModelSpec>(std::move(before)));
  const auto b = Model::FromSpec(std::make_shared<const ModelSpec>(std::move(after)));
  if (!a.ok() || !b.ok()) return {Outcome::kWrong, (a.ok() ? b : a).status().message()};
  const auto report = CompareModels(*a, *b, options);
  if (!report.ok()) return {Outcome::kNotRun, report.status().message()};
  if (report->equal()) return {};
  std::string text;
  for (const std::string& fault : report->faults) text += fault + "\n";
  for (const ComparedValue& value : report->values)
    if (!value.worst.passed()) text += DescribeDifference(value) + "\n";
  return {Outcome::kWrong, text};
}

struct Tally {
  std::map<std::string, std::map<Outcome::Kind, int>> by_pass;
  std::map<UpdateForm, int> states;
  std::map<UpdateForm, int> writes;
  std::map<std::string, int> nested;
  int failures = 0;
};

void Check(uint64_t seed, const ModelSpec& spec, const std::string& passes, Tally& tally, bool round_trip = false) {
  const Outcome outcome = Try(spec, passes, round_trip);
  if (round_trip || passes.find(',') == std::string::npos) ++tally.by_pass[passes][outcome.kind];
  if (!outcome.failed() || ++tally.failures > 3) return;
  std::cerr << "seed " << seed << ", passes " << passes << ": " << outcome.message << "\nreducing ...\n";
  // A smaller program fails in the same way: one that does not run itself says nothing about the passes.
  const ModelSpec small =
      Reduce(spec, [&](const ModelSpec& candidate) { return Try(candidate, passes, round_trip).kind == outcome.kind; });
  ADD_FAILURE() << "seed " << seed << ", passes " << passes << ": " << outcome.message
                << "\nreduced: " << Try(small, passes, round_trip).message << "\n"
                << PrintProgram(small.program);
}

void CountForms(const ModelSpec& spec, Tally& tally) {
  const Function& function = *spec.program.functions().front();
  for (const StateFacts& facts : AnalyzeStates(function).states) {
    ++tally.states[facts.form];
    for (const StateWrite& write : facts.writes) {
      ++tally.writes[write.form];
      if (write.op->parent()->parent() != nullptr) ++tally.nested[write.op->parent()->parent()->type()];
    }
  }
}

std::string Text(const Tally& tally) {
  std::string text = "states / writes by update form:";
  for (const auto& [form, count] : tally.states) {
    const auto writes = tally.writes.find(form);
    text += " " + std::string(UpdateFormName(form)) + " " + std::to_string(count) + "/" +
            std::to_string(writes != tally.writes.end() ? writes->second : 0);
  }
  text += "\nwrites in nested blocks:";
  for (const auto& [type, count] : tally.nested) text += " " + type + " " + std::to_string(count);
  text += "\npass: equal / unchanged / refused\n";
  for (const auto& [pass, kinds] : tally.by_pass) {
    const auto of = [&kinds = kinds](Outcome::Kind kind) {
      const auto it = kinds.find(kind);
      return std::to_string(it != kinds.end() ? it->second : 0);
    };
    text += "  " + pass + ": " + of(Outcome::kEqual) + " / " + of(Outcome::kUnchanged) + " / " + of(Outcome::kRefused) +
            "\n";
  }
  return text;
}

// The seeds that MILWRIGHT_RANDOM_SEEDS asks for; all when it is not set.
struct SeedRange {
  uint64_t first = 0;
  uint64_t last = std::numeric_limits<uint64_t>::max();
  bool all = true;

  [[nodiscard]] bool Has(uint64_t seed) const { return first <= seed && seed <= last; }
};
SeedRange ChosenSeeds() {
  const char* text = std::getenv("MILWRIGHT_RANDOM_SEEDS");
  SeedRange range;
  if (text == nullptr) return range;
  range.all = false;
  char* end = nullptr;
  range.first = range.last = std::strtoull(text, &end, 10);
  if (*end == '-') range.last = std::strtoull(end + 1, &end, 10);
  EXPECT_EQ(*end, '\0') << "MILWRIGHT_RANDOM_SEEDS is FIRST-LAST, not " << text;
  return range;
}

class RandomPrograms : public ::testing::TestWithParam<uint64_t> {};

TEST_P(RandomPrograms, KeepTheirMeaning) {
  const std::vector<std::string> passes = PassTexts();
  const uint64_t pairs = passes.size() * (passes.size() - 1);
  // Every pair comes equally often: one for each program, and more where that is too few.
  const uint64_t pair_runs = std::max(kPrograms, pairs * kRunsOfEachPair);
  const SeedRange seeds = ChosenSeeds();
  Tally tally;
  for (uint64_t seed = GetParam(); seed < kPrograms && tally.failures < 3; seed += kShards) {
    if (!seeds.Has(seed)) continue;
    const ModelSpec spec = RandomProgram(seed);
    CountForms(spec, tally);
    for (const std::string& pass : passes) Check(seed, spec, pass, tally);
    for (const std::string_view trip : kRoundTrips) Check(seed, spec, std::string(trip), tally, true);
    for (uint64_t run = seed; run < pair_runs; run += kPrograms) {
      const uint64_t first = run % pairs / (passes.size() - 1);
      const uint64_t second = run % pairs % (passes.size() - 1);
      Check(seed, spec, passes[first] + "," + passes[second + (second >= first ? 1 : 0)], tally);
    }
  }
  EXPECT_EQ(tally.failures, 0);
  if (GetParam() == 0) std::cout << Text(tally);
  if (!seeds.all) return;
  // The generator makes every update form (a state that is never touched is `none`).
  for (const UpdateForm form :
       {UpdateForm::kNone, UpdateForm::kReadOnly, UpdateForm::kWrittenBack, UpdateForm::kSliceUpdate,
        UpdateForm::kStaticSlot, UpdateForm::kMaskBlend, UpdateForm::kShiftConcat, UpdateForm::kShiftMatmul,
        UpdateForm::kScatter, UpdateForm::kReadModifyWrite, UpdateForm::kWholeOverwrite}) {
    const bool without_writes = form == UpdateForm::kNone || form == UpdateForm::kReadOnly;
    EXPECT_GE(without_writes ? tally.states[form] : tally.writes[form], 10) << UpdateFormName(form);
  }
}

TEST_P(RandomPrograms, EveryPairOnAThousand) {
  const char* full = std::getenv("MILWRIGHT_FULL_TESTS");
  if (full == nullptr || std::string_view(full) != "1") GTEST_SKIP() << "MILWRIGHT_FULL_TESTS is not 1";
  const std::vector<std::string> passes = PassTexts();
  const SeedRange seeds = ChosenSeeds();
  Tally tally;
  for (uint64_t seed = GetParam(); seed < 1000 && tally.failures < 3; seed += kShards) {
    if (!seeds.Has(kPrograms + seed)) continue;
    const ModelSpec spec = RandomProgram(kPrograms + seed);
    for (const std::string& first : passes) {
      for (const std::string& second : passes) {
        if (first != second) Check(kPrograms + seed, spec, first + "," + second, tally);
      }
    }
  }
  EXPECT_EQ(tally.failures, 0);
}

INSTANTIATE_TEST_SUITE_P(Shards, RandomPrograms, ::testing::Range<uint64_t>(0, kShards));

TEST(RandomProgramGenerator, ProgramsVerifyAndTheSameSeedGivesTheSame) {
  std::set<uint64_t> prints;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const ModelSpec spec = RandomProgram(seed);
    ASSERT_OK(Verify(spec.program));
    EXPECT_EQ(Fingerprint(spec.program), Fingerprint(RandomProgram(seed).program));
    prints.insert(Fingerprint(spec.program));
  }
  EXPECT_GE(prints.size(), 49U);
}

TEST(RandomProgramGenerator, ReducesToWhatFails) {
  const auto has_scatter = [](const ModelSpec& spec) {
    bool found = false;
    for (const auto& function : spec.program.functions())
      ForEachOperation(function->body(), [&found](const Operation& op) { found = found || op.type() == "scatter"; });
    return found;
  };
  uint64_t seed = 0;
  while (!has_scatter(RandomProgram(seed))) ++seed;
  const ModelSpec small = Reduce(RandomProgram(seed), has_scatter);
  int operations = 0;
  ForEachOperation(small.program.functions().front()->body(),
                   [&operations](const Operation& op) { operations += op.type() != "const" ? 1 : 0; });
  EXPECT_LE(operations, 3) << PrintProgram(small.program);
}

// A loop whose counting can be dropped would run for ever.
TEST(RandomProgramGenerator, ReducesToProgramsThatEnd) {
  const auto has_loop = [](const ModelSpec& spec) {
    bool found = false;
    ForEachOperation(spec.program.functions().front()->body(),
                     [&found](const Operation& op) { found = found || op.type() == "while_loop"; });
    return found;
  };
  uint64_t seed = 0;
  while (!has_loop(RandomProgram(seed))) ++seed;
  const ModelSpec small = Reduce(RandomProgram(seed), has_loop);
  const Operation* add = nullptr;
  ForEachOperation(small.program.functions().front()->body(), [&add](const Operation& op) {
    if (op.type() == "while_loop") add = op.blocks()[1]->outputs()[0]->producer();
  });
  ASSERT_NE(add, nullptr);
  EXPECT_EQ(add->type(), "add");
  EXPECT_EQ(testing::Differences(small, small), "");
}

}  // namespace
}  // namespace milwright
