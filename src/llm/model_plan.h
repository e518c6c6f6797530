// ModelPlan: what a decoder computes, as plain data, whatever family it comes from.
#ifndef MILWRIGHT_LLM_MODEL_PLAN_H_
#define MILWRIGHT_LLM_MODEL_PLAN_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "llm/expression.h"

namespace milwright {

/// What a layer mixes tokens with.
enum class Mixer : uint8_t { kAttention, kShortConv, kDeltaNet };

enum class NormKind : uint8_t {
  kRms,         ///< x / sqrt(mean(x^2) + eps) * w
  kRmsPlusOne,  ///< ... * (1 + w)
  kLayerNorm,   ///< with mean and bias
};

enum class Activation : uint8_t { kSilu, kGeluTanh };

/// One table of rotary angles: position n turns pair i by n * frequencies[i].
struct RopeTable {
  std::string name;                 ///< "" when the model has one table; "full" or "sliding" when it has two
  std::vector<double> frequencies;  ///< r/2 of them; entries i and i + r/2 of a head form pair i
  double scale = 1;                 ///< attention_scaling: multiplies cosine and sine
  std::vector<int64_t>
      mrope_section;  ///< interleaved M-RoPE: frequencies by temporal, height, width position; or empty

  /// Number of head entries that are rotated (the first r).
  [[nodiscard]] int64_t rotary_size() const { return 2 * static_cast<int64_t>(frequencies.size()); }
};

struct LayerPlan {
  Mixer mixer = Mixer::kAttention;
  bool sliding = false;  ///< attention sees the last `ModelPlan::window` positions only
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_size = 0;
  double attention_scale = 1;
  int rope = -1;            ///< index into ModelPlan::ropes; -1: no rotary embedding
  int64_t kv_source = 0;    ///< the layer whose K and V this one attends to: itself, or an earlier one
  bool k_equals_v = false;  ///< V is the K projection before norm and rotary embedding
  int64_t mlp_width = 0;
};

/// Sizes of Gated DeltaNet layers.
struct DeltaNetPlan {
  int64_t key_heads = 0;
  int64_t value_heads = 0;
  int64_t key_size = 0;
  int64_t value_size = 0;
  int64_t kernel = 0;
  [[nodiscard]] int64_t conv_channels() const { return 2 * key_heads * key_size + value_heads * value_size; }
};

struct ModelPlan {
  std::string family;
  int64_t hidden = 0;
  int64_t vocabulary = 0;
  int64_t max_positions = 0;      ///< what the checkpoint says it was trained for
  int64_t learned_positions = 0;  ///< rows of a learned position table (GPT-2); 0: none
  double norm_eps = 0;
  NormKind norm = NormKind::kRms;
  Activation activation = Activation::kSilu;
  bool tied_head = false;
  double embedding_scale = 1;
  double final_softcap = 0;       ///< logits = c tanh(logits / c); 0: none
  bool normalize_values = false;  ///< RMS norm without weight on each value head
  int64_t window = 0;             ///< of sliding layers; 0: there are none
  std::vector<RopeTable> ropes;
  std::vector<LayerPlan> layers;

  int64_t conv_kernel = 0;  ///< of short-convolution layers
  DeltaNetPlan delta;
  int64_t per_layer_size = 0;        ///< width of per-layer inputs (Gemma 4); 0: none
  int64_t per_layer_vocabulary = 0;  ///< rows of their table
  int64_t deepstack_layers = 0;      ///< layers that take image features after them (Qwen3-VL)

  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  bool conv_bias = false;

  std::vector<int64_t> eos_ids;
  std::vector<std::string> notes;  ///< values that the config leaves to the family's default, one line each

  [[nodiscard]] int64_t layer_count() const { return static_cast<int64_t>(layers.size()); }
  [[nodiscard]] bool HasSliding() const;
  [[nodiscard]] bool HasMixer(Mixer mixer) const;
  /// Whether any table uses three positions a token.
  [[nodiscard]] bool HasMrope() const;
};

/// Symbols of tensor shapes and conditions (see families.h), for layer `layer`, or for the model as a whole (-1).
Symbols PlanSymbols(const ModelPlan& plan, int64_t layer);

}  // namespace milwright

#endif  // MILWRIGHT_LLM_MODEL_PLAN_H_
