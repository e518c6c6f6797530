#include "support/random_checkpoint.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "base/file_io.h"
#include "format/safetensors.h"
#include "llm/checkpoint.h"
#include "llm/families.h"
#include "llm/model_plan.h"

namespace milwright::testing {

const std::string_view kQwen3Config =
    R"({"model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072,
  "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
  "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "rope_theta": 1000000, "hidden_act": "silu",
  "tie_word_embeddings": true})";

namespace {

constexpr size_t kBlock = 1 << 20;

/// Block of bf16 numbers of either sign, 0.5 to 2 in size. Each tensor starts elsewhere in it.
std::vector<uint16_t> RandomBlock() {
  std::mt19937 random(1);
  std::vector<uint16_t> block(kBlock);
  for (uint16_t& value : block) value = static_cast<uint16_t>(0x3F00U | (random() & 0x80FFU));
  return block;
}

uint16_t ToBf16(float value) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16); }
float FromBf16(uint16_t value) { return std::bit_cast<float>(static_cast<uint32_t>(value) << 16); }

Result<Tensor> RandomTensor(const TensorType& type, const TensorRule& rule, const std::vector<uint16_t>& block,
                            size_t turn) {
  MW_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Zeros(type));
  const auto out = tensor.MutableAs<uint16_t>();
  if (type.shape.size() == 1) {
    const float middle = rule.pattern.ends_with("bias") ? 0.0F : 1.0F;
    for (size_t i = 0; i < out.size(); ++i) out[i] = ToBf16(middle + FromBf16(block[(turn + i) % kBlock]) / 8);
    return tensor;
  }
  const auto inputs = static_cast<double>(rule.transposed ? type.shape.front() : type.shape.back());
  const auto halvings = static_cast<uint16_t>(std::lround(std::log2(inputs) / 2));  // 1 / sqrt(inputs)
  for (size_t done = 0; done < out.size();) {
    const size_t from = (done + turn) % kBlock;
    const size_t count = std::min(kBlock - from, out.size() - done);
    for (size_t i = 0; i < count; ++i) out[done + i] = static_cast<uint16_t>(block[from + i] - (halvings << 7U));
    done += count;
  }
  return tensor;
}

}  // namespace

Status WriteRandomCheckpoint(const std::string& folder, std::string_view config) {
  MW_RETURN_IF_ERROR(WriteFileAtomically(folder + "/config.json", config));
  MW_ASSIGN_OR_RETURN(const ModelPlan plan, ReadModelPlan(folder + "/config.json", 512));
  const Family& family = *FindFamily(plan.family);
  const std::vector<uint16_t> block = RandomBlock();
  std::vector<SafetensorsEntry> entries;
  for (const TensorRule& rule : family.tensors) {
    for (int64_t layer = kNoLayer; layer < plan.layer_count(); ++layer) {
      const bool of_layer = rule.pattern.find("{i}") != std::string_view::npos;
      const Symbols symbols = PlanSymbols(plan, layer);
      if (of_layer != (layer != kNoLayer) || !ConditionHolds(rule.when, symbols)) continue;
      std::string name = ExpandPattern(rule.pattern, symbols);
      if (const size_t at = name.find("{p}"); at != std::string::npos) name.replace(at, 3, family.prefixes.front());
      MW_ASSIGN_OR_RETURN(Shape shape, EvaluateShape(rule.shape, symbols));
      const TensorType type{DataType::kBf16, std::move(shape)};
      entries.push_back({name, type, [type, &rule, &block, turn = entries.size() * 977] {
                           return RandomTensor(type, rule, block, turn);
                         }});
    }
  }
  return WriteSafetensors(folder + "/model.safetensors", entries);
}

}  // namespace milwright::testing
