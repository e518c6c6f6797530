// Random stateful programs: the engine in strict mode against the reference, step by step, states included. Reads that
// outlive writes, writes that are read back, masked and sliced updates of parts: what in-place states must not break.
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>

#include "exec/input_source.h"
#include "mil/model.h"
#include "milwright/engine.h"
#include "support/random_program.h"
#include "support/test_util.h"
#include "text/printer.h"

namespace milwright {
namespace {

constexpr uint64_t kPrograms = 3000;
constexpr int kRandomSteps = 5;
// Values stay near 1 and are fp16: the reference sums in fp32 as the engine does, in another order, which may round to
// the neighbouring number (2^-10 for values up to 2) and go on from there in the states.
constexpr double kBound = 2e-2;

struct Outcome {
  std::string fault;
  bool planned = false;
};

std::string Compare(const std::string& what, const Tensor& actual, const Tensor& expected) {
  if (!(actual.type() == expected.type())) return what + " has another type";
  for (int64_t i = 0; i < expected.size(); ++i) {
    const double a = actual.GetDouble(i);
    const double e = expected.GetDouble(i);
    if (a == e || (std::isnan(a) && std::isnan(e))) continue;
    if (!(std::fabs(a - e) <= kBound * std::max(1.0, std::fabs(e)))) {
      return what + " element " + std::to_string(i) + " is " + std::to_string(a) + ", expected " + std::to_string(e);
    }
  }
  return {};
}

Outcome Try(const ModelSpec& spec) {
  Outcome outcome;
  const auto model = Model::FromSpec(std::make_shared<const ModelSpec>(spec.Clone()));
  if (!model.ok()) return {model.status().message(), false};
  EngineOptions options;
  options.threads = 1;
  options.numerics = Numerics::kStrict;
  const auto engine = Engine::FromModel(*model, options);
  auto source = InputSource::Make(model->spec(), {});
  auto state = model->MakeState();
  auto engine_state = model->MakeState();
  if (!engine.ok() || !source.ok() || !state.ok() || !engine_state.ok()) return {"cannot be set up", false};
  const auto why = engine->WhyNotPlanned("main");
  outcome.planned = why.ok() && why->empty();
  for (int step = 0; step < kRandomSteps && source->HasRoom("main"); ++step) {
    const auto inputs = source->Draw("main");
    if (!inputs.ok()) return {inputs.status().message(), outcome.planned};
    const auto expected = model->Predict(*inputs, &*state);
    const auto actual = engine->Predict(*inputs, &*engine_state);
    const std::string place = "step " + std::to_string(step) + ": ";
    if (expected.ok() != actual.ok()) {
      return {place + (expected.ok() ? actual : expected).status().message(), outcome.planned};
    }
    for (const std::string& name : state->names()) {
      outcome.fault = Compare(place + "state " + name, *engine_state->Read(name), *state->Read(name));
      if (!outcome.fault.empty()) return outcome;
    }
    if (!expected.ok()) break;
    for (const auto& [name, tensor] : *expected) {
      outcome.fault = Compare(place + "output " + name, actual->at(name), tensor);
      if (!outcome.fault.empty()) return outcome;
    }
    if (const Status status = source->Accept("main", *expected); !status.ok()) return {status.message(), true};
  }
  return outcome;
}

TEST(EngineOnRandomPrograms, KeepsTheirMeaning) {
  int planned = 0;
  int failures = 0;
  for (uint64_t seed = 0; seed < kPrograms && failures < 3; ++seed) {
    const ModelSpec spec = testing::RandomProgram(seed);
    const Outcome outcome = Try(spec);
    planned += outcome.planned ? 1 : 0;
    if (outcome.fault.empty()) continue;
    ++failures;
    const ModelSpec small = testing::Reduce(spec, [](const ModelSpec& s) { return !Try(s).fault.empty(); });
    ADD_FAILURE() << "seed " << seed << ": " << outcome.fault << "\nreduced: " << Try(small).fault << "\n"
                  << PrintProgram(small.program);
  }
  std::cout << planned << " of " << kPrograms << " programs were planned; the others have nested blocks\n";
  // Half of the generator's programs have no cond and no while_loop.
  EXPECT_GT(planned, static_cast<int>(kPrograms) / 4);
}

}  // namespace
}  // namespace milwright
