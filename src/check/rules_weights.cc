// MW4xx: how weights are stored.
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "analysis/weight_report.h"
#include "check/rule.h"

namespace milwright {
namespace {

constexpr double kLargeStored = 1.0e9;
constexpr double kLargeDense = 1.4e9;

// One finding for a function and format: a model has hundreds of weights of one kind.
void CheckFormats(const ProgramFacts& facts, Reporter& reporter, const std::function<bool(std::string_view)>& bad,
                  std::string_view what) {
  for (const auto& function : facts.model->program.functions()) {
    std::map<WeightFormat, std::pair<const Operation*, int64_t>> found;
    for (const Weight& weight : FindWeights(*function)) {
      if (!bad(weight.format.name)) continue;
      auto& [first, count] = found[weight.format];
      if (first == nullptr) first = weight.op;
      ++count;
    }
    for (const auto& [format, weights] : found) {
      reporter.Report({function->name, OperationPath(*weights.first), {}},
                      fmt::format("{} weights are {}: {}", weights.second, format.name, what));
    }
  }
}

void CheckBlockScales(const ProgramFacts& facts, Reporter& reporter) {
  CheckFormats(
      facts, reporter, [](std::string_view name) { return name.ends_with("_per_block") && !name.starts_with("lut"); },
      "a scale for each block");
}

void CheckBlockTables(const ProgramFacts& facts, Reporter& reporter) {
  CheckFormats(
      facts, reporter,
      [](std::string_view name) {
        return name.ends_with("lut_per_row_block") || name.ends_with("lut_plus_blockwise_scale");
      },
      "a table or scale for each block of a row");
}

void CheckScaledTables(const ProgramFacts& facts, Reporter& reporter) {
  CheckFormats(
      facts, reporter,
      [](std::string_view name) {
        return name.find("lut") != std::string_view::npos &&
               (name.ends_with("_per_channel_scale") || name.ends_with("_scaled"));
      },
      "tables with a scale for each channel");
}

void CheckZeroScales(const ProgramFacts& facts, Reporter& reporter) {
  for (const auto& function : facts.model->program.functions()) {
    ForEachOperation(function->body(), [&](const Operation& op) {
      if (!op.type().starts_with("constexpr_")) return;
      const Literal* scale = op.InputConstant("scale");
      if (scale == nullptr) scale = op.FindAttribute("scale");
      if (scale == nullptr || !IsFloat(scale->type.dtype())) return;
      int64_t zeros = 0;
      for (int64_t i = 0; i < scale->tensor.size(); ++i) zeros += scale->tensor.GetDouble(i) == 0 ? 1 : 0;
      if (zeros == 0) return;
      reporter.Report({function->name, OperationPath(op), {}},
                      fmt::format("{} of {} scales are 0", zeros, scale->tensor.size()));
    });
  }
}

void CheckSize(const ProgramFacts& facts, Reporter& reporter) {
  double stored = 0;
  double dense = 0;
  for (const WeightTotal& total : ReportWeights(facts.model->program)) {
    stored += static_cast<double>(total.stored_bytes);
    dense += static_cast<double>(total.dense_bytes);
  }
  if (stored <= kLargeStored && dense <= kLargeDense) return;
  reporter.Report({}, fmt::format("the weights take {:.2f} GB, {:.2f} GB decompressed", stored / 1e9, dense / 1e9));
}

void CheckActivations(const ProgramFacts& facts, Reporter& reporter) {
  for (const auto& function : facts.model->program.functions()) {
    const Operation* first = nullptr;
    ForEachOperation(function->body(), [&first](const Operation& op) {
      if (op.type() == "quantize" && first == nullptr) first = &op;
    });
    if (first != nullptr) {
      reporter.Report({function->name, OperationPath(*first), {}}, "activations are quantized at run time");
    }
  }
}

}  // namespace

std::vector<Rule> WeightRules() {
  return {
      Rule{.id = "MW401",
           .slug = "per-block-scale",
           .known_as = "K18",
           .summary = "Integer weights with a scale for each block.",
           .explanation =
               "The Neural Engine takes scales for a channel or the whole tensor only (\"ANE only support "
               "per-cout/per-tensor quantization\"): such layers go to the CPU or GPU, and one report gets wrong "
               "numbers. Use palettes for grouped channels, or scales per channel.",
           .severity = Severity::kNote,
           .target_severities = {{"ane", Severity::kWarning}},
           .confidence = Confidence::kSeveralReports,
           .evidence_for = {"weight-granularity", "report 56", "report 57", "report 63"},
           .check = CheckBlockScales},
      Rule{.id = "MW402",
           .slug = "lut-per-block",
           .known_as = "K18",
           .summary = "Palettes for blocks of a row, or palettes with scales for blocks.",
           .explanation =
               "Both forms fail with -14 on the Neural Engine; the package then behaves like a stub. Use one table for "
               "a tensor or for groups of channels.",
           .severity = Severity::kNote,
           .target_severities = {{"ane", Severity::kError}},
           .confidence = Confidence::kOneReport,
           .evidence_for = {"weight-granularity", "report 59"},
           .check = CheckBlockTables},
      Rule{.id = "MW403",
           .slug = "zero-scale",
           .known_as = "K18",
           .summary = "A quantization scale is zero.",
           .explanation =
               "A scale of zero comes from a row of zeros; quantizing such a row divides by zero, and the integers "
               "stored for it are often garbage. Give it any scale but zero and integers of zero.",
           .severity = Severity::kWarning,
           .confidence = Confidence::kOneReport,
           .evidence_for = {"report 62"},
           .check = CheckZeroScales},
      Rule{.id = "MW404",
           .slug = "scaled-palette",
           .known_as = "K18",
           .summary = "Palettes with a scale for each channel.",
           .explanation =
               "Loading aborts in the verification of `mps.dequantize` on a Mac's Neural Engine when a palette comes "
               "with fp16 scales. Fold the scales into tables for grouped channels.",
           .severity = Severity::kNote,
           .target_severities = {{"ane", Severity::kError}},
           .confidence = Confidence::kSeveralReports,
           .evidence_for = {"qwen3vl-2b-int4-per-channel-scale-m4", "report 58"},
           .check = CheckScaledTables},
      Rule{.id = "MW405",
           .slug = "activation-quantization",
           .known_as = "K18",
           .summary = "Activations are quantized at run time.",
           .explanation =
               "A program with `quantize` and `dequantize` on activations failed to compile on an iPhone, and gained "
               "nothing on a Mac.",
           .severity = Severity::kNote,
           .target_severities = {{"ane-ios", Severity::kError}},
           .confidence = Confidence::kOneReport,
           .evidence_for = {"activation-quant-iphone", "report 61"},
           .check = CheckActivations},
      Rule{.id = "MW406",
           .slug = "large-package",
           .known_as = "K23",
           .summary = "The weights of one package are large.",
           .explanation =
               "Packages above 1.0 to 1.4 GB are said to leave the Neural Engine silently; others whose weights "
               "decompress to more than that plan on it. Split the layers over several packages when in doubt.",
           .severity = Severity::kNote,
           .confidence = Confidence::kSeveralReports,
           .evidence_for = {"package-size-gt-1400mb", "report 90"},
           .evidence_against = {"depalettized-size-gt-1400mb"},
           .check = CheckSize},
  };
}

}  // namespace milwright
