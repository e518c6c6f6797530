// The dimensions of inputs, and the lengths that follow from them.
#include <array>

#include "analysis/input_kind_parts.h"

namespace milwright {
namespace {

void FindQueryLength(FunctionInputs& inputs) {
  constexpr std::array kOrder = {
      InputKind::kTokenId,         InputKind::kPositionIds, InputKind::kCausalMask, InputKind::kSlidingMaskRight,
      InputKind::kSlidingMaskLeft, InputKind::kRotaryCos,   InputKind::kHidden};
  std::optional<int64_t> rows;  // that the caches and tables have
  for (const InputFacts& facts : inputs.inputs) {
    if (facts.kind == InputKind::kPosition) Limit(rows, facts.bound);
  }
  for (const InputKind kind : kOrder) {
    for (const InputFacts& facts : inputs.inputs) {
      if (facts.kind != kind || !facts.query_axis.has_value()) continue;
      const int64_t length = facts.input->type.shape()[*facts.query_axis];
      if (rows.has_value() && length > *rows) continue;  // no rows of a step
      inputs.query_length = length;
      return;
    }
  }
}

void FindContextLength(FunctionInputs& inputs) {
  for (const InputFacts& facts : inputs.inputs) {
    if (facts.kind == InputKind::kPosition || facts.kind == InputKind::kPositionIds) {
      Limit(inputs.context_length, facts.bound);
    } else if (facts.kind == InputKind::kCausalMask || facts.kind == InputKind::kUpdateMask) {
      auto columns = KnownSize(facts.input->type.shape(), static_cast<int64_t>(facts.context_axis.value_or(0)));
      if (columns.has_value() && facts.own_rows_last) *columns -= std::max<int64_t>(inputs.query_length, 1);
      Limit(inputs.context_length, columns);
    }
  }
}

}  // namespace

void FindAxes(InputFacts& facts) {
  const Shape& shape = facts.input->type.shape();
  if (shape.empty()) return;
  const size_t last = shape.size() - 1;
  if (facts.kind == InputKind::kTokenId || facts.kind == InputKind::kPositionIds) {
    facts.query_axis = last;
  } else if (IsMask(facts.kind) || facts.kind == InputKind::kUpdateMask) {
    // The longest dimension runs over the cache; one that is open, or not 1, beside it over the step.
    size_t context = last;
    for (size_t i = shape.size(); i-- > 0;) {
      if (shape[i] > shape[context]) context = i;
    }
    if (shape[last] == kUnknownDim) context = last;
    facts.context_axis = context;
    for (size_t i = shape.size(); i-- > 0;) {
      if (i != context && (shape[i] != 1 || (!facts.query_axis.has_value() && IsMask(facts.kind)))) {
        facts.query_axis = i;
        if (shape[i] != 1) break;
      }
    }
  } else if (IsRotary(facts.kind) || facts.kind == InputKind::kHidden) {
    // [1, T, H], [1, 1, T, D]; or [1, H, 1, T], channels first.
    const bool channels_first = shape.size() == 4 && shape[2] == 1 && shape[1] > shape[last];
    if (channels_first) {
      facts.query_axis = last;
    } else if (shape.size() == 3 || (IsRotary(facts.kind) && shape.size() >= 2)) {
      facts.query_axis = last - 1;
    }
  }
}

void FindLengths(FunctionInputs& inputs) {
  FindQueryLength(inputs);
  FindContextLength(inputs);
}

}  // namespace milwright
