// The known contracts, as tables (contracts.md).
#include "llm/contract.h"

namespace milwright {
namespace {

using enum FeatureKind;

/// Features that every contract names alike where it has them at all.
std::vector<ContractFeature> SharedKeyValues() {
  return {{kSharedKey, "kv{j}_k", "1, K, S, D"}, {kSharedValue, "kv{j}_v", "1, K, S, D"}};
}

template <typename T>
std::vector<T> Join(std::vector<T> a, std::vector<T> b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Contract Simple() {
  ContractForm form;
  form.inputs = Join<ContractFeature>(
      {
          {kTokenIds, "input_ids", "1, T"},
          {kHidden, "hidden_in", "1, T, h"},
          {kPosition, "position", "1"},
          {kMropePositions, "position_ids", "3, T"},
          {kMask, "mask", "1, 1, T, C"},
          {kSlidingMask, "sliding_mask", "1, 1, T, W"},
          {kUpdateMask, "update_mask", "1, 1, C, T"},
          {kRingPosition, "ring_position", "1"},
          {kPerLayerInputs, "per_layer_inputs", "1, T, L*P"},
          {kPerLayerCombined, "per_layer_combined", "1, T, L*P"},
          {kDeepstack, "deepstack_{n}", "1, T, h"},
          {kVisualMask, "visual_mask", "1, T, 1"},
      },
      SharedKeyValues());
  form.outputs = Join<ContractFeature>(
      {
          {kHidden, "hidden", "1, T, h"},
          {kPerLayerCombined, "per_layer_combined_out", "1, T, L*P"},
          {kLogits, "logits", "1, T, V"},
          {kNextToken, "next_token", "1, T"},
          {kTopValues, "top_values", "1, T, k"},
          {kTopIndices, "top_indices", "1, T, k"},
      },
      SharedKeyValues());
  form.caches = {
      {CacheGroup::kKeys, {"key_cache", "n, K, C, D", "key_cache_out", "key_cache_new"}},
      {CacheGroup::kValues, {"value_cache", "n, K, C, D", "value_cache_out", "value_cache_new"}},
      {CacheGroup::kKeysValues, {"kv_cache", "2*n, K, C, D", "kv_cache_out", "kv_cache_new"}},
      {CacheGroup::kLayerKeys, {"key_cache_{i}", "1, K, W, D", "key_cache_{i}_out", "key_cache_{i}_new"}},
      {CacheGroup::kLayerValues, {"value_cache_{i}", "1, K, W, D", "value_cache_{i}_out", "value_cache_{i}_new"}},
      {CacheGroup::kFull, {"kv_cache_full", "2*n, K, C, D", "kv_cache_full_out", "kv_cache_full_new"}},
      {CacheGroup::kSliding, {"kv_cache_sliding", "2*n, K, W, D", "kv_cache_sliding_out", "kv_cache_sliding_new"}},
      {CacheGroup::kConv, {"conv_state", "n, 1, channels, taps", "conv_state_out", ""}},
      {CacheGroup::kRecurrent, {"recurrent_state", "n, nv, dk, dv", "recurrent_state_out", ""}},
      {CacheGroup::kLayerConv, {"conv_state_{i}", "1, channels, taps", "conv_state_{i}_out", ""}},
      {CacheGroup::kLayerRecurrent, {"recurrent_state_{i}", "1, nv, dk, dv", "recurrent_state_{i}_out", ""}},
  };
  Contract contract;
  contract.name = "simple";
  contract.description = "Milwright's own: token ids, position and masks in, logits out; rotary tables in the graph";
  contract.forms = {form};
  return contract;
}

/// Qwen3-VL of CoreML-LLM, and every family that has no form of its own.
ContractForm CoreMlLlmDefault() {
  ContractForm form;
  form.inputs = {
      {kTokenIds, "input_ids", "1, T"},
      {kHidden, "hidden_in", "1, 1, h", {}, PackageRole::kHead},
      {kHidden, "hidden_in", "1, T, h"},
      {kCosine, "cos", "1, T, R"},
      {kSine, "sin", "1, T, R"},
      {kMask, "causal_mask", "1, 1, T, C"},
      {kPosition, "current_pos", "1"},
      {kDeepstack, "ds_{n}", "1, T, h"},
      {kVisualActive, "visual_active", "1"},
  };
  form.outputs = {
      {kHidden, "hidden", "1, T, h"},
      {kLogits, "logits", "1, 1, V"},
      {kNextToken, "next_token", "1"},
  };
  form.caches = {{CacheGroup::kKeysValues, {"kv_cache_0", "2*n, K, C, D", "new_kv_cache_0", ""}}};
  form.separate_head = true;
  form.layout = {StateLayout::kUnified, CacheStorage::kState, SlotOrder::kInterleaved};
  form.embedding = EmbeddingKind::kSidecar;
  form.head = HeadKind::kArgmax;
  return form;
}

ContractForm CoreMlLlmQwen35() {
  ContractForm form = CoreMlLlmDefault();
  form.families = {"qwen3_5"};
  form.caches = {
      {CacheGroup::kKeysValues, {"kv_cache", "2*n, K, C, D", "new_kv_cache", ""}},
      {CacheGroup::kLayerConv, {"conv_state_{i}", "1, channels, taps", "new_conv_state_{i}", ""}},
      {CacheGroup::kLayerRecurrent, {"rec_state_{i}", "1, nv, dk, dv", "new_rec_state_{i}", ""}},
  };
  form.separate_head = false;
  form.head = HeadKind::kLogits;
  return form;
}

ContractForm CoreMlLlmGemma() {
  ContractForm form;
  form.families = {"gemma3", "gemma4"};
  form.inputs = Join<ContractFeature>(
      {
          {kHidden, "hidden_states", "1, T, h"},
          {kMask, "causal_mask_full", "1, 1, T, C"},
          {kSlidingMask, "causal_mask_sliding", "1, 1, T, W"},
          {kPerLayerInputs, "per_layer_raw", "1, T, L*P"},
          {kPerLayerCombined, "per_layer_combined", "1, T, L*P"},
          {kCosine, "cos_s", "1, 1, T, R", "sliding"},
          {kSine, "sin_s", "1, 1, T, R", "sliding"},
          {kCosine, "cos_f", "1, 1, T, R", "full"},
          {kSine, "sin_f", "1, 1, T, R", "full"},
          {kPosition, "current_pos", "1"},
          {kRingPosition, "ring_pos", "1"},
      },
      SharedKeyValues());
  form.outputs = Join<ContractFeature>(
      {
          {kHidden, "hidden_states_out", "1, T, h"},
          {kPerLayerCombined, "per_layer_combined_out", "1, T, L*P"},
          {kNextToken, "token_id", "1"},
          {kTokenLogit, "token_logit", "1"},
          {kNormedHidden, "hidden_normed", "1, 1, h"},
          {kLogits, "logits", "1, 1, V"},
      },
      SharedKeyValues());
  form.caches = {
      {CacheGroup::kSliding, {"kv_cache_sliding", "2*n, K, W, Dmax", "new_kv_cache_sliding", ""}},
      {CacheGroup::kFull, {"kv_cache_full", "2*n, K, C, Dmax", "new_kv_cache_full", ""}},
      {CacheGroup::kKeysValues, {"kv_cache_unified", "2*n, K, C, Dmax", "new_kv_cache_unified", ""}},
  };
  form.layout = {StateLayout::kByRole, CacheStorage::kState, SlotOrder::kInterleaved};
  form.update = CacheUpdate::kRing;
  form.embedding = EmbeddingKind::kSidecar;
  form.head = HeadKind::kArgmax;
  return form;
}

ContractForm CoreMlLlmLfm2() {
  ContractForm form;
  form.families = {"lfm2"};
  form.inputs = {
      {kTokenIds, "input_ids", "1, T"},           {kHidden, "hidden_in", "1, T, h"},
      {kPosition, "position_ids", "1"},           {kMask, "causal_mask", "1, 1, T, C"},
      {kUpdateMask, "update_mask", "1, 1, C, T"},
  };
  form.outputs = {
      {kHidden, "hidden", "1, T, h"},
      {kNextToken, "token_id", "1"},
      {kTokenLogit, "token_logit", "1"},
      {kLogits, "logits", "1, 1, V"},
  };
  form.caches = {
      {CacheGroup::kKeysValues, {"kv_cache_0", "2*n, K, C, D", "new_kv_cache_0", ""}},
      {CacheGroup::kConv, {"conv_state_in", "n, channels, taps", "conv_state_out", ""}},
  };
  form.layout = {StateLayout::kUnified, CacheStorage::kState, SlotOrder::kSplit};
  form.update = CacheUpdate::kMask;
  form.head = HeadKind::kArgmax;
  return form;
}

Contract CoreMlLlm() {
  Contract contract;
  contract.name = "coreml-llm";
  contract.description = "john-rocky/CoreML-LLM: body chunks over hidden states, host-side rotary tables and masks";
  contract.forms = {CoreMlLlmDefault(), CoreMlLlmQwen35(), CoreMlLlmGemma(), CoreMlLlmLfm2()};
  contract.decode_function = "infer";
  contract.prefill_function = "prefill_b{T}";
  contract.head_package = "chunk_head";
  contract.head_sidecars = true;
  return contract;
}

Contract HuggingFace() {
  ContractForm form;
  form.inputs = {
      {kTokenIds, "inputIds", "1, ?"},
      {kMask, "causalMask", "1, 1, ?, ?"},
  };
  form.outputs = {{kLogits, "logits", "1, ?, V"}};
  form.caches = {
      {CacheGroup::kKeys, {"keyCache", "n, K, C, D", "", ""}},
      {CacheGroup::kValues, {"valueCache", "n, K, C, D", "", ""}},
      {CacheGroup::kConv, {"convCache", "n, 1, channels, taps", "", ""}},
  };
  ContractForm two_masks = form;
  two_masks.families = {"gemma3", "gemma4"};
  two_masks.inputs = {
      {kTokenIds, "inputIds", "1, ?"},
      {kMask, "fullAttentionMask", "1, 1, ?, ?"},
      {kSlidingMask, "slidingAttentionMask", "1, 1, ?, ?"},
  };
  Contract contract;
  contract.name = "hf";
  contract.description = "huggingface/swift-transformers: one package with flexible lengths and two states";
  contract.forms = {form, two_masks};
  contract.flexible_length = true;
  contract.mask_fill = -65504;
  return contract;
}

Contract Anemll() {
  ContractForm form;
  form.inputs = {
      {kTokenIds, "input_ids", "1, T"},      {kHidden, "hidden_states", "1, 1, h", {}, PackageRole::kHead},
      {kHidden, "hidden_states", "1, T, h"}, {kPositionIds, "position_ids", "T"},
      {kMask, "causal_mask", "1, 1, T, C"},  {kPosition, "current_pos", "1"},
  };
  form.outputs = {
      {kHidden, "hidden_states", "1, T, h", {}, PackageRole::kEmbedding},
      {kHidden, "output_hidden_states", "1, T, h"},
      {kLogits, "logits{n}", "1, 1, V"},
  };
  // ANEMLL's PyTorch name is model.model.kv_cache_0; MIL names have no dots.
  form.caches = {{CacheGroup::kKeysValues, {"model_model_kv_cache_0", "2*n, K, C, D", "", ""}}};
  form.separate_embedding = true;
  form.separate_head = true;
  form.layout = {StateLayout::kUnified, CacheStorage::kState, SlotOrder::kSplit};
  Contract contract;
  contract.name = "anemll";
  contract.description =
      "Anemll/Anemll: embeddings, body chunks and head, with meta.yaml; one state through all chunks";
  contract.forms = {form};
  contract.decode_function = "infer";
  contract.prefill_function = "prefill";
  contract.body_package = "{prefix}_FFN_PF_chunk_{k1}of{n}";
  contract.embedding_package = "{prefix}_embeddings";
  contract.head_package = "{prefix}_lm_head";
  contract.state_over_all_layers = true;
  contract.meta_yaml = true;
  return contract;
}

}  // namespace

std::span<const Contract> KnownContracts() {
  static const std::vector<Contract> contracts = {Simple(), CoreMlLlm(), HuggingFace(), Anemll()};
  return contracts;
}

}  // namespace milwright
