// Decoder layers: attention, short convolution, Gated DeltaNet, and what surrounds them.
#ifndef MILWRIGHT_LLM_LAYERS_H_
#define MILWRIGHT_LLM_LAYERS_H_

#include "llm/function_context.h"

namespace milwright {

/// Writes layer `layer`: mixer and MLP with their norms and residual connections, and for Gemma 4 the per-layer input
/// (`per_layer`: [1, T, L * P] as tokens, or null) and the layer's scalar. Takes and gives a stream.
Value* WriteLayer(FunctionContext& context, int64_t layer, Value* stream, Value* per_layer);

/// Per-layer inputs as the layers use them, [1, T, L * P] as tokens: from `raw` (the scaled rows of the table) and the
/// embedded tokens (families.md, section 9).
Value* WritePerLayerInputs(FunctionContext& context, Value* raw, Value* stream);

// The mixers: normed stream in, result before the residual add out.
Value* WriteAttention(FunctionContext& context, int64_t layer, Value* stream);
Value* WriteShortConv(FunctionContext& context, int64_t layer, Value* stream);
Value* WriteDeltaNet(FunctionContext& context, int64_t layer, Value* stream);

/// Longest function that DeltaNet layers are unrolled for.
inline constexpr int64_t kMaxDeltaNetLength = 64;

}  // namespace milwright

#endif  // MILWRIGHT_LLM_LAYERS_H_
