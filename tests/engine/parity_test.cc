// The engine against the reference: every fixture, in both modes, over a decode run, states included.
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>

#include "exec/input_source.h"
#include "exec/steps.h"
#include "milwright/engine.h"
#include "support/files.h"
#include "support/test_util.h"

namespace milwright {
namespace {

using testing::DataDir;
using testing::FindAll;
using testing::SharedDir;
namespace fs = std::filesystem;

constexpr int kParitySteps = 6;

struct Deviation {
  double largest = 0;  ///< |engine - reference| / (1 + largest magnitude of the reference tensor)
  std::string where;
  int64_t differing = 0;  ///< integer elements that differ
};

void Compare(const Tensor& actual, const Tensor& expected, const std::string& where, Deviation& deviation) {
  ASSERT_EQ(actual.type(), expected.type()) << where;
  double magnitude = 0;
  for (int64_t i = 0; i < expected.size(); ++i) {
    if (std::isfinite(expected.GetDouble(i))) magnitude = std::max(magnitude, std::fabs(expected.GetDouble(i)));
  }
  for (int64_t i = 0; i < expected.size(); ++i) {
    const double a = actual.GetDouble(i);
    const double e = expected.GetDouble(i);
    if (!IsFloat(expected.dtype())) {
      deviation.differing += a != e ? 1 : 0;
      continue;
    }
    double error = std::fabs(a - e) / (1 + magnitude);
    if ((std::isnan(a) && std::isnan(e)) || a == e) error = 0;
    if (std::isnan(error)) error = INFINITY;
    if (error > deviation.largest) {
      deviation.largest = error;
      deviation.where = where;
    }
  }
}

// Runs both on the same inputs; each keeps its own states and caches.
void RunBoth(const fs::path& path, const EngineOptions& options, Deviation& deviation, EngineCounters* counters) {
  const auto engine = Engine::Load(path, options);
  ASSERT_OK(engine);
  const Model& model = engine->model();
  InputSourceOptions source_options;
  source_options.seed = 7;
  auto source = InputSource::Make(model.spec(), source_options);
  ASSERT_OK(source);
  auto state = model.MakeState();
  auto engine_state = engine->MakeState();
  ASSERT_OK(state);
  ASSERT_OK(engine_state);
  for (const std::string& function : model.function_names()) {
    for (int step = 0; step < kParitySteps && source->HasRoom(function); ++step) {
      const auto inputs = source->Draw(function);
      ASSERT_OK(inputs);
      PredictOptions predict;
      predict.function = function;
      EngineCall call;
      call.function = function;
      const auto expected = model.Predict(*inputs, &*state, predict);
      const auto actual = engine->Predict(*inputs, &*engine_state, call);
      ASSERT_OK(expected);
      ASSERT_OK(actual);
      ASSERT_EQ(actual->size(), expected->size());
      for (const auto& [name, tensor] : *expected) {
        Compare(actual->at(name), tensor, function + " step " + std::to_string(step) + " output " + name, deviation);
      }
      for (const std::string& name : state->names()) {
        const auto expected_state = state->Read(name);
        const auto actual_state = engine_state->Read(name);
        ASSERT_OK(expected_state);
        ASSERT_OK(actual_state);
        Compare(*actual_state, *expected_state, function + " step " + std::to_string(step) + " state " + name,
                deviation);
      }
      ASSERT_OK(source->Accept(function, *expected));
    }
  }
  if (counters != nullptr) *counters = engine->counters();
}

// fp16 values carry an error of 2^-11 each; the fixtures chain a few dozen roundings, which the reference and the
// engine take in other orders. Measured: see the table that the test prints.
constexpr double kStrictBound = 4e-3;
constexpr double kFastBound = 8e-3;

class ParityOnFixtures : public ::testing::TestWithParam<Numerics> {};

TEST_P(ParityOnFixtures, EngineGivesWhatTheReferenceGives) {
  std::vector<fs::path> packages = FindAll(SharedDir() / "fixtures/coremltools", ".mlpackage");
  if (packages.empty()) packages = FindAll(DataDir() / "packages", ".mlpackage");
  ASSERT_FALSE(packages.empty());
  EngineOptions options;
  options.numerics = GetParam();
  options.threads = 2;
  const double bound = GetParam() == Numerics::kStrict ? kStrictBound : kFastBound;
  for (const fs::path& path : packages) {
    SCOPED_TRACE(path.string());
    Deviation deviation;
    EngineCounters counters;
    RunBoth(path, options, deviation, &counters);
    if (HasFatalFailure()) return;
    std::cout << path.stem().string() << ": " << deviation.largest << " at " << deviation.where << "; "
              << deviation.differing << " integers differ; " << counters.reference_predictions << " of "
              << counters.predictions << " by the reference\n";
    EXPECT_LE(deviation.largest, bound) << deviation.where;
    EXPECT_EQ(deviation.differing, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, ParityOnFixtures, ::testing::Values(Numerics::kStrict, Numerics::kFast),
                         [](const auto& info) { return info.param == Numerics::kStrict ? "Strict" : "Fast"; });

}  // namespace
}  // namespace milwright
