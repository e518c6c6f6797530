// Helpers of the pass tests: programs from short MIL text, programs as short text, and one pass on one program.
#ifndef MILWRIGHT_TESTS_PASSES_PASS_TEST_UTIL_H_
#define MILWRIGHT_TESTS_PASSES_PASS_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>

#include "milwright/model.h"
#include "ops/infer.h"
#include "passes/equal.h"
#include "passes/pass.h"
#include "support/test_util.h"
#include "text/parser.h"
#include "text/printer.h"

namespace milwright::testing {

/// A model of one iOS18 function main over x, y: fp16 [2], s, t: states of fp16 [2] (or other `inputs`).
inline ModelSpec SpecOf(std::string_view body, std::string_view outputs,
                        std::string_view inputs =
                            "tensor<fp16, [2]> x, tensor<fp16, [2]> y, state<tensor<fp16, [2]>> "
                            "s, state<tensor<fp16, [2]>> t") {
  ModelSpec spec;
  spec.source = "test.mlpackage";
  auto program = ParseProgram("program(1.3)\n{ func main<ios18>(" + std::string(inputs) + ") {" + std::string(body) +
                              "} -> (" + std::string(outputs) + "); }");
  EXPECT_OK(program);
  if (!program.ok()) return spec;
  spec.program = *std::move(program);
  EXPECT_OK(Verify(spec.program));
  for (const auto& function : spec.program.functions())
    spec.description.functions.push_back(DescribeFunction(*function));
  return spec;
}

inline std::string ShortOperand(const Operand& operand) {
  const Literal* constant = operand.constant();
  if (constant == nullptr) return operand.value->name;
  if (constant->IsString()) return constant->AsString();
  std::string text;
  for (int64_t i = 0; i < constant->tensor.size(); ++i) {
    std::string number = std::to_string(constant->tensor.GetDouble(i));
    number.erase(number.find_last_not_of('0') + 1);
    if (number.back() == '.') number.pop_back();
    text += (i > 0 ? " " : "") + number;
  }
  return constant->tensor.rank() == 0 ? text : "[" + text + "]";
}

inline void AppendShort(const Block& block, const std::string& indent, std::string& text) {
  for (const auto& op : block.operations()) {
    if (op->type() == "const") continue;
    text += indent;
    for (size_t i = 0; i < op->outputs().size(); ++i) text += (i > 0 ? ", " : "") + op->output(i)->name;
    text += (op->outputs().empty() ? "" : " = ") + op->type() + "(";
    bool first = true;
    for (const Input& input : op->inputs()) {
      for (const Operand& operand : input.arguments) {
        text += (first ? "" : ", ") + ShortOperand(operand);
        first = false;
      }
    }
    text += ")\n";
    for (const auto& nested : op->blocks()) {
      AppendShort(*nested, indent + "  ", text);
      text += indent + "  ->";
      for (const Value* output : nested->outputs()) text += " " + output->name;
      text += "\n";
    }
  }
}

/// "r = read_state(s)\nm = add(r, x)\nwrite_state(m, s)\n-> m": operands by parameter name, constants by content.
inline std::string Short(const ModelSpec& spec) {
  std::string text;
  for (const auto& function : spec.program.functions()) {
    AppendShort(function->body(), "", text);
    text += "->";
    for (const Value* output : function->body().outputs()) text += " " + output->name;
  }
  return text;
}

inline Model Loaded(const ModelSpec& spec) {
  EXPECT_OK(Verify(spec.program));
  return *Model::FromSpec(std::make_shared<const ModelSpec>(spec.Clone()));
}

/// Everything that differs between running `before` and `after`; "" when they are equal.
inline std::string Differences(const ModelSpec& before, const ModelSpec& after, const CompareOptions& options = {}) {
  const auto report = CompareModels(Loaded(before), Loaded(after), options);
  if (!report.ok()) return report.status().message();
  std::string text;
  for (const std::string& fault : report->faults) text += "fault: " + fault + "\n";
  for (const ComparedValue& value : report->values) {
    if (!value.worst.passed()) text += DescribeDifference(value) + "\n";
  }
  return text;
}

/// Runs "pass,pass=key:value" on a copy of `spec`, verifying after each.
inline Result<ModelSpec> Rewritten(const ModelSpec& spec, std::string_view passes,
                                   std::vector<PassResult>* results = nullptr) {
  ModelSpec model = spec.Clone();
  MW_ASSIGN_OR_RETURN(const std::vector<PassUse> uses, ParsePasses(passes));
  PassManagerOptions options;
  options.verify_each = true;
  MW_ASSIGN_OR_RETURN(std::vector<PassResult> done, RunPasses(model, uses, options));
  if (results != nullptr) *results = std::move(done);
  return model;
}

/// The short text of `spec` after `passes`, which must leave its meaning as it was.
inline std::string After(const ModelSpec& spec, std::string_view passes) {
  const auto after = Rewritten(spec, passes);
  EXPECT_OK(after);
  if (!after.ok()) return after.status().message();
  EXPECT_EQ(Differences(spec, *after), "") << passes << " on\n" << Short(spec) << "\ngave\n" << Short(*after);
  return Short(*after);
}

}  // namespace milwright::testing

#endif  // MILWRIGHT_TESTS_PASSES_PASS_TEST_UTIL_H_
