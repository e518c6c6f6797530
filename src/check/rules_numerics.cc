// MW5xx: numbers that fp16 and narrow integers do not hold.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/dataflow.h"
#include "check/rule.h"

namespace milwright {
namespace {

constexpr double kLargestHalf = 65504;
constexpr double kSmallestHalf = 0x1p-24;              // smallest positive fp16
constexpr int64_t kLargestScanned = int64_t{1} << 20;  // elements of a constant that is looked through

bool ReachesSoftmax(const Value& value) {
  return LeadsTo(&value, {"softmax", "scaled_dot_product_attention"},
                 {"add", "mul", "select", "cast", "expand_dims", "reshape", "squeeze", "transpose", "sub", "tile",
                  "maximum", "clip", "slice_by_index", "logical_not"});
}

// The smallest number of a constant; nullopt when it is no float or too large to look through.
std::optional<double> Smallest(const Literal* literal) {
  if (literal == nullptr || !literal->type.IsTensor() || !IsFloat(literal->type.dtype())) return std::nullopt;
  const int64_t size = literal->tensor.size();
  if (size == 0 || size > kLargestScanned) return std::nullopt;
  double smallest = literal->tensor.GetDouble(0);
  for (int64_t i = 1; i < size; ++i) smallest = std::min(smallest, literal->tensor.GetDouble(i));
  return smallest;
}

void CheckMasks(const ProgramFacts& facts, Reporter& reporter) {
  for (const auto& function : facts.model->program.functions()) {
    ForEachOperation(function->body(), [&](const Operation& op) {
      if (op.type() != "add" && op.type() != "mul" && op.type() != "select" && op.type() != "sub") return;
      for (const Input& input : op.inputs()) {
        for (const Operand& operand : input.arguments) {
          const auto smallest = Smallest(operand.constant());
          if (!smallest.has_value() || *smallest > -kLargestHalf || !ReachesSoftmax(*op.output())) continue;
          reporter
              .Report({function->name, OperationPath(op), op.output()->name},
                      fmt::format("a mask constant of {} reaches a softmax", *smallest))
              .notes.emplace_back(
                  "a row that is masked whole gives NaN in fp16: -65504 plus a score of -16 is -inf; -1e4 is safe");
        }
      }
    });
  }
}

// The number of rows that the indices of `op` reach into; 0 when unknown.
int64_t IndexedRows(const Operation& op) {
  const Value* x = op.InputValue("x");
  if (x == nullptr || x->type.rank() == 0) return 0;
  const Literal* axis = op.InputConstant("axis");
  int64_t at = axis != nullptr && axis->tensor.size() == 1 ? axis->tensor.GetInt(0) : 0;
  if (at < 0) at += x->type.rank();
  return at >= 0 && at < x->type.rank() ? x->type.shape()[static_cast<size_t>(at)] : 0;
}

int64_t LargestOf(DataType dtype) {
  switch (dtype) {
    case DataType::kInt8:
      return 127;
    case DataType::kUInt8:
      return 255;
    case DataType::kInt16:
      return 32767;
    case DataType::kUInt16:
      return 65535;
    default:
      return INT32_MAX;
  }
}

void CheckNarrowIndices(const ProgramFacts& facts, Reporter& reporter) {
  for (const auto& function : facts.model->program.functions()) {
    ForEachOperation(function->body(), [&](const Operation& op) {
      const Type* indices = nullptr;
      if (op.type().starts_with("gather") || op.type().starts_with("scatter")) {
        const Input* input = op.FindInput("indices");
        if (input != nullptr && !input->arguments.empty()) indices = &input->arguments.front().type();
      } else if (op.type() == "topk" && op.outputs().size() > 1) {
        indices = &op.output(1)->type;
      }
      if (indices == nullptr) return;
      const int64_t rows = IndexedRows(op);
      if (rows - 1 <= LargestOf(indices->dtype())) return;
      reporter.Report({function->name, OperationPath(op), {}},
                      fmt::format("indices of type {} reach into {} rows and wrap beyond {}",
                                  DataTypeName(indices->dtype()), rows, LargestOf(indices->dtype())));
    });
  }
}

void CheckInverseRoots(const ProgramFacts& facts, Reporter& reporter) {
  for (const auto& function : facts.model->program.functions()) {
    ForEachOperation(function->body(), [&](const Operation& op) {
      if (op.type() != "rsqrt" && op.type() != "inverse" && op.type() != "log") return;
      const Value* x = op.InputValue("x");
      if (x == nullptr || x->type.dtype() != DataType::kFp16 || x->constant() != nullptr) return;
      const auto epsilon = Smallest(op.InputConstant("epsilon"));
      if (epsilon.has_value() && *epsilon >= kSmallestHalf) return;
      const Operation* producer = x->producer();
      if (producer != nullptr && producer->type() == "add") {  // mean + epsilon
        for (const char* side : {"x", "y"}) {
          if (Smallest(producer->InputConstant(side)).value_or(0) >= kSmallestHalf) return;
        }
      }
      reporter.Report({function->name, OperationPath(op), op.output()->name},
                      fmt::format("{} of an fp16 value that may be 0: its epsilon ({}) is 0 in fp16", op.type(),
                                  epsilon.value_or(0)));
    });
  }
}

}  // namespace

std::vector<Rule> NumericsRules() {
  return {
      Rule{.id = "MW501",
           .slug = "mask-overflow",
           .known_as = "K19",
           .summary = "A mask constant at or below -65504 reaches a softmax.",
           .explanation =
               "fp16 ends at 65504. A mask of -1e9 or of fp32's minimum becomes -inf, two masks of -60000 sum to -inf, "
               "and -65504 plus a score of -16 rounds to -inf: a row that is masked whole then gives NaN. -1e4 is "
               "safe. Rows that keep one entry are right with -inf too (measured bit by bit).",
           .severity = Severity::kWarning,
           .confidence = Confidence::kReproduced,
           .evidence_for = {"report 65", "report 66"},
           .check = CheckMasks},
      Rule{.id = "MW502",
           .slug = "narrow-indices",
           .known_as = "K20",
           .summary = "Indices of 8 or 16 bits reach into more rows than they can number.",
           .explanation =
               "coremltools casts indices to int16 or uint16 where it finds them small enough; an index of 40000 in "
               "int16 is -25536. `topk` over a vocabulary of 262144 gave ids wrong by multiples of 65536 on a device. "
               "Keep the indices int32.",
           .severity = Severity::kWarning,
           .confidence = Confidence::kSeveralReports,
           .evidence_for = {"report 48", "report 68", "report 69"},
           .check = CheckNarrowIndices},
      Rule{.id = "MW503",
           .slug = "inverse-of-zero",
           .known_as = "K21",
           .summary = "rsqrt, inverse or log of an fp16 value that may be zero.",
           .explanation =
               "Below 6e-8 a number is 0 in fp16, and so is an epsilon of 1e-12: rsqrt(0) is infinite. It comes from "
               "norms whose fp32 casts were folded away. Add an epsilon that fp16 holds, or keep the norm in fp32.",
           .severity = Severity::kNote,
           .confidence = Confidence::kOneReport,
           .evidence_for = {"report 73"},
           .check = CheckInverseRoots},
  };
}

}  // namespace milwright
