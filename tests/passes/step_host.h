// A host that drives a small decoder step by step, whatever its state layout is: it draws inputs by name, keeps caches
// that the program takes and gives out, and writes new rows into them. Two hosts draw equal inputs of equal name.
#ifndef MILWRIGHT_TESTS_PASSES_STEP_HOST_H_
#define MILWRIGHT_TESTS_PASSES_STEP_HOST_H_

#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "exec/steps.h"
#include "format/package.h"
#include "mil/model.h"
#include "milwright/model.h"
#include "ops/infer.h"
#include "passes/pass.h"
#include "passes/pass_test_util.h"
#include "support/files.h"
#include "support/test_util.h"
#include "text/printer.h"

namespace milwright::testing {

/// A fixture by name: from tests/data/packages, or from the shared folder; nullopt when it is in neither.
inline std::optional<ModelSpec> OpenFixture(const std::string& name) {
  for (const auto& folder : {DataDir() / "packages", SharedDir() / "fixtures" / "coremltools"}) {
    const std::string path = folder / (name + ".mlpackage");
    if (!std::filesystem::exists(path)) continue;
    auto model = OpenModel(path);
    EXPECT_OK(model);
    return model.ok() ? std::optional(*std::move(model)) : std::nullopt;
  }
  return std::nullopt;
}

#define MW_OPEN_FIXTURE(spec, name)                                                                   \
  std::optional<ModelSpec> spec##_opened = ::milwright::testing::OpenFixture(name);                   \
  if (!spec##_opened.has_value()) GTEST_SKIP() << "no " << name << ": ../shared/fixtures is missing"; \
  const ModelSpec& spec = *spec##_opened

inline const Function& Main(const ModelSpec& model) { return *model.program.functions().front(); }

class StepHost {
 public:
  explicit StepHost(const ModelSpec& spec)
      : model_(*Model::FromSpec(std::make_shared<const ModelSpec>(spec.Clone()))), state_(*model_.MakeState()) {}

  /// Runs one prediction at `position` and gives back its outputs. Inputs in `given` are not drawn.
  Result<TensorMap> Step(int64_t position, const std::string& function = {}, const TensorMap& given = {}) {
    MW_ASSIGN_OR_RETURN(const std::vector<Feature> features, model_.Inputs(function));
    TensorMap inputs = given;
    for (const Feature& feature : features) {
      if (!inputs.contains(feature.name)) inputs.emplace(feature.name, Draw(feature, position));
    }
    PredictOptions options;
    options.function = function;
    MW_ASSIGN_OR_RETURN(TensorMap outputs, model_.Predict(inputs, &state_, options));
    for (const auto& [name, tensor] : outputs) Keep(name, tensor, position);
    return outputs;
  }

  /// What Step feeds to input `name`.
  Tensor DrawInput(const std::string& name, int64_t position, const std::string& function = {}) {
    for (const Feature& feature : *model_.Inputs(function)) {
      if (feature.name == name) return Draw(feature, position);
    }
    return {};
  }

  /// Tokens that `function` takes at once: the second dimension of its ids or hidden values.
  int64_t QueryLength(const std::string& function = {}) const {
    for (const Feature& feature : *model_.Inputs(function)) {
      const bool tokens = feature.name == "input_ids" || feature.name == "hidden_states";
      if (tokens && feature.type.shape.size() > 1 && feature.type.shape[1] > 0) return feature.type.shape[1];
    }
    return 1;
  }

  /// The content of a state, or of a cache that the host keeps.
  Tensor Content(const std::string& name) const {
    if (const auto it = caches_.find(name); it != caches_.end()) return it->second;
    auto value = state_.Read(name);
    EXPECT_OK(value);
    return value.ok() ? *value : Tensor();
  }
  std::vector<std::string> ContentNames() const {
    std::vector<std::string> names = state_.names();
    for (const auto& [name, tensor] : caches_) names.push_back(name);
    return names;
  }

 private:
  static bool IsCache(const std::string& name) {
    return name.find("cache") != std::string::npos || name.find("state") != std::string::npos || name == "acc";
  }

  Tensor Draw(const Feature& feature, int64_t position) {
    const std::string& name = feature.name;
    TensorType type = feature.type;
    for (int64_t& size : type.shape) size = size == kUnknownDim ? 1 : size;
    if (IsCache(name) && name != "hidden_states") {
      auto [it, fresh] = caches_.try_emplace(name);
      if (fresh) it->second = *Tensor::Zeros(type);
      return it->second;
    }
    Tensor tensor = *Tensor::Zeros(type);
    std::seed_seq seed(name.begin(), name.end());
    std::mt19937 random(seed);
    random.discard(static_cast<unsigned long long>(position) * 1009);
    for (int64_t i = 0; i < tensor.size(); ++i) {
      const int64_t last = type.shape.empty() ? 1 : type.shape.back();
      if (name == "input_ids") {
        tensor.SetInt(i, static_cast<int64_t>(random() % 128));
      } else if (name == "ring_pos") {
        tensor.SetInt(i, position % 16);
      } else if (type.dtype == DataType::kInt32) {
        tensor.SetInt(i, position + i);
      } else if (name == "update_mask") {
        tensor.SetDouble(i, i == position ? 1 : 0);
      } else if (name.find("mask") != std::string::npos) {
        tensor.SetDouble(i, Visible(name, i % last, last, position + i / last) ? 0 : -1e4);
      } else {
        tensor.SetDouble(i, static_cast<double>(random() % 2001) / 1000 - 1);
      }
    }
    return tensor;
  }

  // Whether the mask shows column `column` of `columns` to the token at `position`.
  bool Visible(const std::string& name, int64_t column, int64_t columns, int64_t position) const {
    if (columns % 2 == 1) return column < position || column == columns - 1;  // past rows, and the new one behind them
    if (name.find("sliding") == std::string::npos) return column <= position;
    const auto inputs = model_.Inputs();
    const bool ring = std::ranges::any_of(*inputs, [](const Feature& feature) { return feature.name == "ring_pos"; });
    return ring ? position >= columns || column <= position : columns - 1 - column <= position;
  }

  // NAME_out replaces the cache NAME; NAME_new (or k_new for k_cache) goes into it at `position`.
  void Keep(const std::string& output, const Tensor& tensor, int64_t position) {
    for (auto& [name, cache] : caches_) {
      if (output == name + "_out") cache = tensor;
      if (output == name + "_new" || output + "|" == name.substr(0, 1) + "_new|") Put(cache, tensor, position);
    }
  }

  static void Put(Tensor& cache, const Tensor& rows, int64_t position) {
    const Shape& shape = cache.shape();
    ASSERT_EQ(shape.size(), rows.shape().size());
    size_t axis = 0;
    while (axis < shape.size() && shape[axis] == rows.shape()[axis]) ++axis;
    ASSERT_LT(axis, shape.size());
    int64_t inner = 1;
    for (size_t i = axis + 1; i < shape.size(); ++i) inner *= shape[i];
    const int64_t run = rows.shape()[axis] * inner;
    for (int64_t i = 0; i < rows.size(); ++i) {
      const int64_t outer = i / run;
      cache.SetDouble(outer * shape[axis] * inner + position * inner + i % run, rows.GetDouble(i));
    }
  }

  Model model_;
  State state_;
  TensorMap caches_;
};

/// Runs both models from equal states over `steps` positions; the outputs they share must agree within `tolerance`, and
/// so must states and caches of equal name and shape, but for those in `moved`, whose rows lie elsewhere. The functions
/// are called in turn, the last one repeatedly.
inline void ExpectEqualSteps(const ModelSpec& before, const ModelSpec& after, int steps = 17, double tolerance = 0,
                             const std::vector<std::string>& functions = {""},
                             const std::vector<std::string>& moved = {}) {
  StepHost a(before);
  StepHost b(after);
  int64_t position = 0;
  for (int step = 0; step < steps; ++step) {
    const std::string& function = functions[std::min(static_cast<size_t>(step), functions.size() - 1)];
    const auto x = a.Step(position, function);
    const auto y = b.Step(position, function);
    ASSERT_OK(x);
    ASSERT_OK(y);
    size_t shared = 0;
    for (const auto& [name, tensor] : *x) {
      const auto it = y->find(name);
      if (it == y->end()) continue;
      ++shared;
      const TensorDifference difference = CompareTensors(it->second, tensor, {tolerance, tolerance});
      ASSERT_TRUE(difference.passed()) << "step " << step << ", output " << name << ": " << difference.actual
                                       << " instead of " << difference.expected << " " << difference.note;
    }
    ASSERT_GT(shared, 0U) << "the models share no output";
    position += a.QueryLength(function);
  }
  for (const std::string& name : a.ContentNames()) {
    const std::vector<std::string> others = b.ContentNames();
    if (std::ranges::find(others, name) == others.end() || std::ranges::find(moved, name) != moved.end()) continue;
    const Tensor x = a.Content(name);
    const Tensor y = b.Content(name);
    if (x.shape() != y.shape()) continue;
    EXPECT_TRUE(CompareTensors(y, x, {tolerance, tolerance}).passed()) << "content of " << name;
  }
}

/// The text of the operations of type `type`, without constants, one a line: what a rewrite is about.
inline std::vector<std::string> OperationsOf(const Function& function, std::string_view type) {
  std::vector<std::string> lines;
  ForEachOperation(function.body(), [&](const Operation& op) {
    if (op.type() == type) lines.push_back(PrintOperation(op));
  });
  return lines;
}
inline size_t CountOps(const Function& function, std::string_view type) { return OperationsOf(function, type).size(); }

}  // namespace milwright::testing

#endif  // MILWRIGHT_TESTS_PASSES_STEP_HOST_H_
