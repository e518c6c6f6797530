// MW6xx: ops that the Neural Engine does not take. Facts without a report number are from single-op probes on an M4
// with macOS 27 (ane-placement.md, section A).
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_set>

#include "analysis/effects.h"
#include "check/rule.h"

namespace milwright {
namespace {

const std::unordered_set<std::string_view>& RefusedOps() {
  static const std::unordered_set<std::string_view> kOps = {"asin",
                                                            "acos",
                                                            "tan",
                                                            "sinh",
                                                            "cosh",
                                                            "atanh",
                                                            "mod",
                                                            "reduce_prod",
                                                            "cumsum",
                                                            "argsort",
                                                            "lstm",
                                                            "gru",
                                                            "rnn",
                                                            "band_part",
                                                            "one_hot",
                                                            "non_zero",
                                                            "range_1d",
                                                            "random_normal",
                                                            "sliding_windows",
                                                            "crop_resize",
                                                            "scatter",
                                                            "scatter_nd",
                                                            "scatter_along_axis"};
  return kOps;
}

struct Occurrences {
  const Operation* first = nullptr;
  int64_t count = 0;
};

// One finding for each function and op type: the first place and how many there are.
void CheckOps(const ProgramFacts& facts, Reporter& reporter, bool (*matches)(const Operation&), std::string_view what) {
  for (const auto& function : facts.model->program.functions()) {
    std::map<std::string, Occurrences> found;
    ForEachOperation(function->body(), [&](const Operation& op) {
      if (op.type() == "const" || IsStateRead(op) || IsStateWrite(op) || !matches(op)) return;
      Occurrences& entry = found[op.type()];
      if (entry.count++ == 0) entry.first = &op;
    });
    for (const auto& [type, entry] : found) {
      reporter.Report({function->name, OperationPath(*entry.first), {}},
                      fmt::format("{} {}{}: {}", entry.count, type, entry.count > 1 ? " ops" : "", what));
    }
  }
}

bool IsDynamicGather(const Operation& op) {
  return op.type().starts_with("gather") && op.InputConstant("indices") == nullptr;
}
bool IsDynamicSliceBySize(const Operation& op) {
  return op.type() == "slice_by_size" && op.InputConstant("begin") == nullptr;
}

bool IsRefused(const Operation& op) { return RefusedOps().contains(op.type()) || IsDynamicSliceBySize(op); }

bool IsIntegerWork(const Operation& op) {
  if (RefusedOps().contains(op.type()) || IsDynamicGather(op)) return false;  // said by the other rules
  const auto is_int32 = [](const Type& type) { return type.IsTensor() && type.dtype() == DataType::kInt32; };
  if (std::ranges::any_of(op.outputs(), [&](const auto& output) { return is_int32(output->type); })) return true;
  const Input* x = op.FindInput("x");
  return x != nullptr && !x->arguments.empty() && is_int32(x->arguments.front().type()) &&
         x->arguments.front().constant() == nullptr;
}

bool HasLargeDimension(const Operation& op) {
  constexpr int64_t kLargest = 65536;
  const auto large = [](const Type& type) {
    return type.IsTensor() && std::ranges::any_of(type.shape(), [](int64_t size) { return size > kLargest; });
  };
  return std::ranges::any_of(op.outputs(), [&](const auto& output) { return large(output->type); });
}

bool HasLargeInner(const Operation& op) {
  constexpr int64_t kLargestInner = 32768;
  if (op.type() != "matmul" && op.type() != "linear") return false;
  const Value* x = op.InputValue("x");
  const Literal* transposed = op.type() == "matmul" ? op.InputConstant("transpose_x") : nullptr;
  if (x == nullptr || x->type.rank() < 2) return false;
  const bool flip = transposed != nullptr && transposed->tensor.size() == 1 && transposed->tensor.GetInt(0) != 0;
  return x->type.shape()[x->type.shape().size() - (flip ? 2 : 1)] > kLargestInner;
}

// Kernel sizes: convolutions up to 1x15, 31x1 and 16x16; maximum pools up to 8x8.
bool HasLargeKernel(const Operation& op) {
  int64_t height = 1;
  int64_t width = 1;
  if (op.type() == "conv") {
    const Value* weight = op.InputValue("weight");
    if (weight == nullptr || weight->type.rank() < 3 || weight->type.rank() > 4) return false;
    width = weight->type.shape().back();
    if (weight->type.rank() == 4) height = weight->type.shape()[2];
    return (height == 1 && width > 15) || (width == 1 && height > 31) || std::min(height, width) > 16;
  }
  const Literal* sizes = op.type() == "max_pool" ? op.InputConstant("kernel_sizes") : nullptr;
  if (sizes == nullptr || sizes->tensor.size() != 2) return false;
  return sizes->tensor.GetInt(0) > 8 || sizes->tensor.GetInt(1) > 8;
}

bool IsTooLarge(const Operation& op) { return HasLargeDimension(op) || HasLargeInner(op) || HasLargeKernel(op); }

bool IsSelectionTail(const Operation& op) {
  if (op.type() != "reduce_argmax" && op.type() != "topk") return false;
  return std::ranges::any_of(op.outputs(), [](const auto& output) {
    return std::ranges::any_of(output->uses(), [](const Use& use) { return use.op == nullptr; });
  });
}

bool IsDepthwiseFrom1024(const Operation& op) {
  const Literal* groups = op.InputConstant("groups");
  const Value* weight = op.InputValue("weight");
  return op.type() == "conv" && groups != nullptr && groups->tensor.size() == 1 && groups->tensor.GetInt(0) >= 1024 &&
         weight != nullptr && weight->type.rank() > 1 && weight->type.shape()[1] == 1 &&
         weight->type.shape().back() == 3;
}

// A slice_update whose result something besides a state write reads.
bool IsStandaloneUpdate(const Operation& op) {
  if (op.type() != "slice_update") return false;
  return std::ranges::any_of(op.output()->uses(), [](const Use& use) {
    return use.op == nullptr || (!IsStateWrite(*use.op) && use.op->type() != "slice_update");
  });
}

void CheckRefused(const ProgramFacts& facts, Reporter& reporter) {
  CheckOps(facts, reporter, IsRefused, "runs on the CPU or GPU");
}
void CheckIntegers(const ProgramFacts& facts, Reporter& reporter) {
  CheckOps(facts, reporter, IsIntegerWork, "int32 work runs on the CPU or GPU");
}
void CheckGathers(const ProgramFacts& facts, Reporter& reporter) {
  CheckOps(facts, reporter, IsDynamicGather, "indices known at run time only; runs on the CPU or GPU");
}
void CheckSizes(const ProgramFacts& facts, Reporter& reporter) {
  CheckOps(facts, reporter, IsTooLarge, "larger than the Neural Engine takes");
}
void CheckTails(const ProgramFacts& facts, Reporter& reporter) {
  CheckOps(facts, reporter, IsSelectionTail, "chooses the output; runs on the CPU or GPU");
}
void CheckDepthwise(const ProgramFacts& facts, Reporter& reporter) {
  CheckOps(facts, reporter, IsDepthwiseFrom1024, "depthwise over 1024 channels or more, kernel 3");
}

void CheckStandaloneUpdates(const ProgramFacts& facts, Reporter& reporter) {
  for (const auto& function : facts.model->program.functions()) {
    ForEachOperation(function->body(), [&](const Operation& op) {
      if (!IsStandaloneUpdate(op)) return;
      Finding& finding = reporter.Report({function->name, OperationPath(op), op.output()->name},
                                         "the result of a slice_update is read by something besides a state write");
      const bool written = std::ranges::any_of(
          op.output()->uses(), [](const Use& use) { return use.op != nullptr && IsStateWrite(*use.op); });
      if (written) reporter.ProposeFix(finding, "prefer-state-in-downstream");
    });
  }
}

void CheckMultiFunction(const ProgramFacts& facts, Reporter& reporter) {
  if (facts.model->program.functions().size() < 2) return;
  for (const auto& [name, states] : facts.functions) {
    int64_t longest = 0;
    for (const StateFacts& state : states.states) longest = std::max(longest, state.query_length.value_or(0));
    if (longest <= 1) continue;
    Finding& finding = reporter.Report(
        {{}, {}, name},  // the package does not load, whichever function is asked for
        fmt::format("function '{}' of {} rows a step shares a package and states with others", name, longest));
    reporter.ProposeFix(finding, "extract-function", {"function:" + name});
  }
}

}  // namespace

std::vector<Rule> PlacementRules() {
  return {
      Rule{.id = "MW601",
           .slug = "refused-op",
           .known_as = "",
           .summary = "Ops that the Neural Engine does not take.",
           .explanation =
               "Single-op probes on an M4 with macOS 27 never place these ops on the Neural Engine: inverse and "
               "hyperbolic trigonometry, mod, reduce_prod, cumsum, argsort, recurrent layers, band_part, one_hot, "
               "non_zero, range_1d, random_normal, sliding_windows, crop_resize, scatter, and slice_by_size with a "
               "start known at run time only. Each splits the program into segments.",
           .severity = Severity::kOff,
           .target_severities = {{"ane-macos27-m4", Severity::kWarning}, {"ane", Severity::kNote}},
           .confidence = Confidence::kReproduced,
           .check = CheckRefused},
      Rule{.id = "MW602",
           .slug = "int32-work",
           .known_as = "",
           .summary = "Arithmetic on int32 tensors.",
           .explanation =
               "No op on an int32 tensor runs on the Neural Engine, casts to and from int32 included (M4, macOS 27). "
               "Compute masks and positions on the host, or in fp16.",
           .severity = Severity::kOff,
           .target_severities = {{"ane", Severity::kNote}},
           .confidence = Confidence::kReproduced,
           .check = CheckIntegers},
      Rule{.id = "MW603",
           .slug = "dynamic-gather",
           .known_as = "",
           .summary = "A gather whose indices are known at run time only.",
           .explanation =
               "Gather with constant indices runs on the Neural Engine, with indices from an input it does not, nor "
               "does the index arithmetic in front of it (M4, macOS 27). Look embeddings up on the host.",
           .severity = Severity::kOff,
           .target_severities = {{"ane", Severity::kNote}},
           .confidence = Confidence::kReproduced,
           .evidence_for = {"report 48"},
           .check = CheckGathers},
      Rule{.id = "MW604",
           .slug = "size-limit",
           .known_as = "",
           .summary = "A dimension or kernel larger than the Neural Engine takes.",
           .explanation =
               "Measured limits (M4, macOS 27): 65536 for any dimension, 32768 for the inner dimension of a product, "
               "kernels of 1x15, 31x1 and 16x16 for convolutions and 8x8 for maximum pools. Older sources say 16384 "
               "for any dimension. Split the op, e.g. a vocabulary into several heads.",
           .severity = Severity::kOff,
           .target_severities = {{"ane-macos27-m4", Severity::kWarning}, {"ane", Severity::kNote}},
           .confidence = Confidence::kReproduced,
           .check = CheckSizes},
      Rule{.id = "MW605",
           .slug = "selection-tail",
           .known_as = "",
           .summary = "The program ends in argmax or topk.",
           .explanation =
               "An argmax has an int32 result and runs on the CPU; plans show the tail there, at the cost of one "
               "change of unit. topk is placed on the Neural Engine for k=40 of 32000, and on the CPU for large "
               "vocabularies.",
           .severity = Severity::kOff,
           .target_severities = {{"ane", Severity::kNote}},
           .confidence = Confidence::kSeveralReports,
           .evidence_for = {"argmax-tail-on-cpu"},
           .check = CheckTails},
      Rule{.id = "MW606",
           .slug = "wide-depthwise-convolution",
           .known_as = "",
           .summary = "A depthwise convolution over 1024 or more channels with kernel 3.",
           .explanation =
               "LFM2.5's short convolutions are planned on the CPU (macOS 26); a depthwise convolution of kernel 4 in "
               "Qwen3.5 is planned on the Neural Engine. One audit each.",
           .severity = Severity::kOff,
           .target_severities = {{"ane", Severity::kNote}},
           .confidence = Confidence::kOneReport,
           .evidence_for = {"depthwise-conv-1024-on-cpu"},
           .check = CheckDepthwise},
      Rule{.id = "MW607",
           .slug = "multifunction-prefill",
           .known_as = "K17",
           .summary = "A prefill function with states beside other functions.",
           .explanation =
               "Gemma 4 packages with a decode function and one of 4 or 8 rows fail on an iPhone (`ANECCompile FAILED "
               "11`) and run on a Mac; Qwen3-VL with 8 rows runs on both. The prefill alone in a package of its own "
               "compiles on the iPhone, and a host can copy states between packages.",
           .severity = Severity::kOff,
           .target_severities = {{"ane-ios", Severity::kWarning}, {"ane", Severity::kNote}},
           .confidence = Confidence::kSeveralReports,
           .evidence_for = {"multifunction-T-gt1-multistate-iphone", "report 42"},
           .evidence_against = {"multifunction-T-gt1-iphone", "report 43"},
           .fixes = {{"extract-function", false}},
           .check = CheckMultiFunction},
      Rule{.id = "MW608",
           .slug = "standalone-slice-update",
           .known_as = "",
           .summary = "The result of a slice_update is read by something besides a state write.",
           .explanation =
               "\"Cannot support standalone slice_update\": the Neural Engine takes slice_update only where its result "
               "goes to a state (ANEMLL). `prefer-state-in-downstream` lets what follows read the state instead.",
           .severity = Severity::kOff,
           .target_severities = {{"ane", Severity::kWarning}},
           .confidence = Confidence::kOneReport,
           .fixes = {{"prefer-state-in-downstream", true}},
           .check = CheckStandaloneUpdates},
  };
}

}  // namespace milwright
