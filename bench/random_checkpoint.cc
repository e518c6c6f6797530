#include "random_checkpoint.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "base/file_io.h"
#include "format/safetensors.h"
#include "llm/checkpoint.h"
#include "llm/families.h"
#include "llm/model_plan.h"

namespace milwright {
namespace {

constexpr char kConfig[] = R"({"model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072,
  "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
  "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "rope_theta": 1000000, "hidden_act": "silu",
  "tie_word_embeddings": true})";

/// bf16 numbers of size 2^-7 or so, of either sign: one random block, turned differently for each tensor.
Result<Tensor> RandomTensor(const TensorType& type, const std::vector<uint16_t>& block, size_t turn) {
  MW_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Zeros(type));
  const auto out = tensor.MutableAs<uint16_t>();
  for (size_t done = 0; done < out.size();) {
    const size_t from = (done + turn) % block.size();
    const size_t count = std::min(block.size() - from, out.size() - done);
    std::memcpy(out.data() + done, block.data() + from, 2 * count);
    done += count;
  }
  return tensor;
}

}  // namespace

Status WriteRandomCheckpoint(const std::string& folder) {
  MW_RETURN_IF_ERROR(WriteFileAtomically(folder + "/config.json", kConfig));
  MW_ASSIGN_OR_RETURN(const ModelPlan plan, ReadModelPlan(folder + "/config.json", 512));
  std::mt19937 random(1);
  std::vector<uint16_t> block(1 << 20);
  for (uint16_t& value : block) value = static_cast<uint16_t>(0x3C00U | (random() & 0x80FFU));
  std::vector<SafetensorsEntry> entries;
  for (const TensorRule& rule : FindFamily("qwen3")->tensors) {
    for (int64_t layer = kNoLayer; layer < plan.layer_count(); ++layer) {
      const bool of_layer = rule.pattern.find("{i}") != std::string_view::npos;
      const Symbols symbols = PlanSymbols(plan, layer);
      if (of_layer != (layer != kNoLayer) || !ConditionHolds(rule.when, symbols)) continue;
      std::string name = ExpandPattern(rule.pattern, symbols);
      name.replace(name.find("{p}"), 3, "model.");
      MW_ASSIGN_OR_RETURN(Shape shape, EvaluateShape(rule.shape, symbols));
      const TensorType type{DataType::kBf16, std::move(shape)};
      entries.push_back(
          {name, type, [type, &block, turn = entries.size() * 977] { return RandomTensor(type, block, turn); }});
    }
  }
  return WriteSafetensors(folder + "/model.safetensors", entries);
}

}  // namespace milwright
