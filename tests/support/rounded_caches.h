// The host of a program with fp32 caches that keeps them in fp16.
#ifndef MILWRIGHT_TESTS_SUPPORT_ROUNDED_CACHES_H_
#define MILWRIGHT_TESTS_SUPPORT_ROUNDED_CACHES_H_

#include <algorithm>
#include <string>
#include <vector>

#include "analysis/state_analysis.h"
#include "mil/model.h"
#include "ops/builder.h"
#include "support/test_util.h"

namespace milwright::testing {

/// `model` with every fp32 cache rounded to fp16 where it goes back to the host. io-to-state=allow-rounding:true does
/// the same at the write of its state, and what a step computes behind the update sees the exact value in both: so the
/// two are equal bit for bit.
inline ModelSpec WithRoundedCaches(const ModelSpec& model) {
  ModelSpec rounded = model.Clone();
  for (const auto& function : rounded.program.functions()) {
    for (const CachePair& pair : AnalyzeStates(*function).cache_pairs) {
      if (pair.output->type.dtype() != DataType::kFp32) continue;
      const std::string name = pair.output->name;
      pair.output->name = function->UniqueName(name + "_exact");
      Builder builder(function->body());
      Value* half = builder.Op("cast", {{"x", pair.output}, {"dtype", Literal::String("fp16")}});
      Value* wide = builder.Op("cast", {{"x", half}, {"dtype", Literal::String("fp32")}}, name);
      EXPECT_OK(builder.status());
      std::vector<Value*> outputs = function->body().outputs();
      std::ranges::replace(outputs, pair.output, wide);
      function->body().SetOutputs(std::move(outputs));
    }
  }
  return rounded;
}

}  // namespace milwright::testing

#endif  // MILWRIGHT_TESTS_SUPPORT_ROUNDED_CACHES_H_
