// Model families as data: which config keys, tensors and layer plan each decoder family has. Names and equations are
// those of families.md, which was checked against Hugging Face transformers.
#ifndef MILWRIGHT_LLM_FAMILIES_H_
#define MILWRIGHT_LLM_FAMILIES_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "llm/config_reader.h"
#include "llm/model_plan.h"

namespace milwright {

/// One tensor of the checkpoint, and the roles that its rows play.
struct TensorRule {
  std::string_view pattern;  ///< name; "{p}" the family's prefix, "{i}" the layer
  std::string_view shape;    ///< in the symbols of PlanSymbols
  /// "q": the whole tensor. "q:H*d k:K*d": consecutive rows. "~q:d gate:d": the pieces alternate (row counts of one
  /// period). Rows are rows of the matrix as [out, in], also when it is stored transposed.
  std::string_view roles;
  std::string_view when = {};  ///< condition on the symbols; per layer when the pattern names a layer
  bool transposed = false;     ///< stored as [in, out]
};

/// Tensors that the forward pass leaves aside; they are reported.
struct IgnoredRule {
  std::string_view pattern;  ///< as above; a final or leading "*" stands for anything
  std::string_view reason;
  std::string_view when = {};
};

/// What a family's reader gets. `text` is the decoder's config: the text_config of composite files, else `top` itself.
struct PlanRequest {
  ConfigReader& top;
  ConfigReader& text;
  int64_t context_length;
};

struct Family {
  std::string_view name;
  std::vector<std::string_view> model_types;    ///< values of model_type at the top of config.json
  std::vector<std::string_view> architectures;  ///< classes with the language-model head
  /// Fills the plan. Errors go to the readers.
  void (*read)(const PlanRequest& request, ModelPlan& plan);
  std::vector<std::string_view> prefixes;  ///< candidates for "{p}"; the one under which the embedding lies is taken
  std::vector<TensorRule> tensors;
  std::vector<IgnoredRule> ignored;
};

/// All families. Built once, immutable.
std::span<const Family> Families();
/// By Family::name; null when there is none.
const Family* FindFamily(std::string_view name);

/// Reads config.json of the folder `checkpoint` into a plan. `context_length` matters to longrope only. Errors
/// (kPrecondition) name the key: a model type that no family knows, a missing key, an unsupported value, a key that
/// nobody knows.
Result<ModelPlan> ReadModelPlan(const std::string& config_path, int64_t context_length);

// ---- shared by the family files ----

/// What differs between families in the part of the config that ReadDecoder reads.
struct DecoderKeys {
  bool tied_by_default = false;  ///< what an absent tie_word_embeddings means
  std::string_view eps = "rms_norm_eps";
  std::string_view mlp_width = "intermediate_size";  ///< empty: the family reads it
};
/// Reads what every llama-like config has: sizes, heads, eps, activation, biases, tied head; fills `plan.layers` with
/// equal attention layers.
void ReadDecoder(const PlanRequest& request, ModelPlan& plan, const DecoderKeys& keys = {});
/// Reads one rotary table for every layer.
void ReadOneRope(const PlanRequest& request, ModelPlan& plan);
/// Kind names of each layer from `layer_types`, checked against `allowed`; empty when the key is absent.
std::vector<std::string> ReadLayerTypes(ConfigReader& text, int64_t layers, std::span<const std::string_view> allowed);
/// embed_tokens, norm and lm_head under their usual names.
std::vector<TensorRule> OuterTensors();
/// q, k, v, o projections with optional biases under self_attn.
std::vector<TensorRule> AttentionTensors();
/// Per-head norms of q and k under self_attn.
std::vector<TensorRule> HeadNormTensors();
/// input_layernorm, post_attention_layernorm before attention and MLP; gate, up and down projections.
std::vector<TensorRule> NormTensors();
std::vector<TensorRule> GatedMlpTensors();
std::vector<TensorRule> Concatenate(std::initializer_list<std::vector<TensorRule>> lists);

inline constexpr IgnoredRule kTiedHead = {"lm_head.weight", "the head is tied to the embedding", "tied"};

Family LlamaFamily();
Family MistralFamily();
Family Qwen2Family();
Family Qwen3Family();
Family Qwen3VlFamily();
Family Phi3Family();
Family SmolLm3Family();
Family Gemma3Family();
Family Gemma4Family();
Family Qwen35Family();
Family Lfm2Family();
Family Gpt2Family();

}  // namespace milwright

#endif  // MILWRIGHT_LLM_FAMILIES_H_
