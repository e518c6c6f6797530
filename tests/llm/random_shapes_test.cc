// Shapes that no checkpoint at hand has, with random weights: whatever the sizes, all layouts compute the same network,
// calls of several tokens give what calls of one give, and the engine gives what the reference gives.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "golden.h"
#include "llm/compress_folder.h"
#include "llm/families.h"
#include "milwright/engine.h"
#include "support/random_checkpoint.h"
#include "support/test_util.h"

namespace milwright::testing {
namespace {

using nlohmann::json;

/// A family's config and what its variants change: JSON merge patches (RFC 7396) of the part that describes the
/// decoder.
struct FamilyShapes {
  const char* config;
  std::vector<const char*> variants;
};

const std::vector<FamilyShapes>& AllShapes() {
  static const std::vector<FamilyShapes> shapes = {
      {R"({"model_type": "llama", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
           "num_attention_heads": 6, "num_key_value_heads": 2, "vocab_size": 131, "max_position_embeddings": 128,
           "rms_norm_eps": 1e-5, "rope_theta": 10000, "hidden_act": "silu", "tie_word_embeddings": false})",
       {R"({})", R"({"num_key_value_heads": 6, "attention_bias": true, "mlp_bias": true})",
        R"({"num_key_value_heads": 1, "head_dim": 10})", R"({"num_hidden_layers": 1, "intermediate_size": 33})",
        R"({"hidden_size": 30, "num_attention_heads": 1, "num_key_value_heads": 1, "tie_word_embeddings": true})",
        R"({"rope_scaling": {"rope_type": "linear", "factor": 4}})",
        R"({"rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
                             "original_max_position_embeddings": 32}})"}},
      {R"({"model_type": "mistral", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
           "num_attention_heads": 6, "num_key_value_heads": 3, "vocab_size": 131, "max_position_embeddings": 128,
           "rms_norm_eps": 1e-5, "rope_theta": 10000, "hidden_act": "silu", "sliding_window": 5})",
       {R"({})", R"({"sliding_window": null})", R"({"sliding_window": 1})", R"({"sliding_window": 100})",
        R"({"head_dim": 24, "num_key_value_heads": 1})"}},
      {R"({"model_type": "qwen2", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
           "num_attention_heads": 6, "num_key_value_heads": 2, "vocab_size": 131, "max_position_embeddings": 128,
           "rms_norm_eps": 1e-6, "rope_theta": 10000, "hidden_act": "silu", "tie_word_embeddings": true})",
       {R"({})", R"({"num_attention_heads": 7, "num_key_value_heads": 1, "hidden_size": 56})",
        R"({"use_sliding_window": true, "sliding_window": 6, "max_window_layers": 1})",
        R"({"tie_word_embeddings": false, "vocab_size": 257})"}},
      {R"({"model_type": "qwen3", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
           "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 20, "vocab_size": 131,
           "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "rope_theta": 10000, "hidden_act": "silu"})",
       {R"({})", R"({"head_dim": 96, "num_attention_heads": 3, "num_key_value_heads": 3})", R"({"head_dim": 2})",
        R"({"attention_bias": true, "num_hidden_layers": 5})", R"({"vocab_size": 2, "intermediate_size": 1})"}},
      {R"({"model_type": "phi3", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
           "num_attention_heads": 6, "num_key_value_heads": 2, "vocab_size": 131, "max_position_embeddings": 128,
           "rms_norm_eps": 1e-5, "rope_theta": 10000, "hidden_act": "silu", "sliding_window": null})",
       {R"({})", R"({"partial_rotary_factor": 0.5, "num_key_value_heads": 6})", R"({"sliding_window": 7})",
        R"({"original_max_position_embeddings": 16, "rope_scaling": {"type": "longrope",
             "long_factor": [1, 2, 3, 4], "short_factor": [1, 1.5, 2, 2.5]}})"}},
      {R"({"model_type": "smollm3", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 5,
           "num_attention_heads": 6, "num_key_value_heads": 2, "vocab_size": 131, "max_position_embeddings": 128,
           "rms_norm_eps": 1e-6, "rope_theta": 10000, "hidden_act": "silu"})",
       {R"({})", R"({"no_rope_layers": [0, 0, 0, 0, 0]})", R"({"no_rope_layer_interval": 2, "attention_bias": true})"}},
      {R"({"model_type": "gemma3_text", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 5,
           "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 12, "vocab_size": 131,
           "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "rope_theta": 1000000, "rope_local_base_freq": 10000,
           "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 12, "sliding_window": 6,
           "sliding_window_pattern": 2})",
       {R"({})", R"({"sliding_window": 3, "sliding_window_pattern": 6})", R"({"final_logit_softcapping": 5.0})",
        R"({"layer_types": ["full_attention", "full_attention", "full_attention", "full_attention",
                            "sliding_attention"]})"}},
      {R"({"model_type": "gemma4", "text_config": {"model_type": "gemma4_text", "hidden_size": 48,
           "intermediate_size": 80, "num_hidden_layers": 6, "num_attention_heads": 6, "num_key_value_heads": 2,
           "head_dim": 12, "global_head_dim": 20, "vocab_size": 131, "hidden_size_per_layer_input": 10,
           "vocab_size_per_layer_input": 131, "max_position_embeddings": 128, "rms_norm_eps": 1e-6,
           "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 6, "num_kv_shared_layers": 2,
           "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention",
                           "sliding_attention", "full_attention"],
           "rope_parameters": {
             "full_attention": {"partial_rotary_factor": 0.4, "rope_theta": 1000000, "rope_type": "proportional"},
             "sliding_attention": {"rope_theta": 10000, "rope_type": "default"}}}})",
       {R"({})", R"({"num_kv_shared_layers": 0, "use_double_wide_mlp": true, "final_logit_softcapping": 9.0})",
        R"({"num_kv_shared_layers": 4, "use_double_wide_mlp": true, "sliding_window": 4})",
        R"({"hidden_size_per_layer_input": 0, "attention_k_eq_v": true, "num_global_key_value_heads": 1,
            "num_kv_shared_layers": 0})"}},
      {R"({"model_type": "qwen3_5_text", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 5,
           "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 131,
           "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "hidden_act": "silu", "full_attention_interval": 2,
           "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
           "linear_value_head_dim": 12, "linear_conv_kernel_dim": 4, "tie_word_embeddings": true,
           "rope_parameters": {"rope_type": "default", "rope_theta": 10000, "partial_rotary_factor": 0.5}})",
       {R"({})", R"({"linear_num_key_heads": 3, "linear_num_value_heads": 3, "linear_conv_kernel_dim": 2})",
        R"({"linear_num_key_heads": 1, "linear_num_value_heads": 5, "full_attention_interval": 5})"}},
      {R"({"model_type": "lfm2", "hidden_size": 48, "intermediate_size": 72, "num_hidden_layers": 4,
           "num_attention_heads": 6, "num_key_value_heads": 2, "vocab_size": 131, "max_position_embeddings": 128,
           "norm_eps": 1e-5, "rope_theta": 10000, "conv_L_cache": 3, "block_auto_adjust_ff_dim": false,
           "layer_types": ["conv", "full_attention", "conv", "full_attention"]})",
       {R"({})", R"({"conv_L_cache": 4, "conv_bias": true})",
        R"({"layer_types": ["full_attention", "conv", "conv", "conv"], "num_key_value_heads": 6})",
        R"({"block_auto_adjust_ff_dim": true, "block_multiple_of": 16})"}},
      {R"({"model_type": "gpt2", "n_embd": 48, "n_head": 6, "n_layer": 3, "n_positions": 64, "vocab_size": 131,
           "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new"})",
       {R"({})", R"({"n_head": 1, "n_inner": 50})", R"({"n_layer": 1, "n_head": 16})"}},
  };
  return shapes;
}

struct Form {
  const char* layout;
  CacheUpdate update;
  int64_t chunks;
};

constexpr Form kForms[] = {
    {"kv-pair", CacheUpdate::kSlice, 1},
    {"by-role", CacheUpdate::kRing, 1},
    {"unified:interleaved", CacheUpdate::kMask, 2},
    {"per-layer", CacheUpdate::kSlice, 3},
    {"explicit-io:new", CacheUpdate::kSlice, 1},
    {"by-role", CacheUpdate::kShift, 1},
    {"unified:split", CacheUpdate::kSlice, 2},
    {"explicit-io:whole", CacheUpdate::kSlice, 2},
    {"by-role", CacheUpdate::kSlice, 1},
    {"kv-pair", CacheUpdate::kMask, 1},
};

constexpr const char* kFormats[] = {
    "int8",        "int4:block32", "lut4:group16", "lut6",         "int8:block16", "sparse:0.5", "int4:asym",
    "lut2:group8", "int8:tensor",  "lut3:group4",  "int4:channel", "lut8:scale",   "lut1",       "int4:block8:asym"};

/// What int8 activations do, beside fp16: they err by some 0.7 % of the values' size (largest of a block / 127 /
/// sqrt(12), the largest being three times the size) where fp16 errs by 0.03 %, but in 5 places of a layer instead of
/// 30: 25 / sqrt(6) = 10 times as much, and twice that for the largest of many logits.
constexpr double kInt8Factor = 20;

EngineLoader TwoThreads(bool strict) {
  EngineOptions options;
  options.threads = 2;
  options.numerics = strict ? Numerics::kStrict : Numerics::kFast;
  return FastEngine(options);
}

class RandomShapes : public ::testing::TestWithParam<size_t> {
 protected:
  BuildOptions Options(DataType compute, const Form& form, const std::string& functions) {
    BuildOptions options = QuickBuild(folder_.path(), fmt::format("{}/build{}", folder_.path(), builds_++));
    options.context_length = 37;
    options.compute = compute;
    options.layout = *ParseLayout(form.layout);
    options.update = form.update;
    options.chunks.count = form.chunks;
    options.functions = *ParseFunctions(functions);
    return options;
  }

  TemporaryFolder folder_;
  int builds_ = 0;
};

TEST_P(RandomShapes, AllFormsAgree) {
  const FamilyShapes& family = AllShapes()[GetParam()];
  double worst_layout = 0, worst_calls = 0, worst_strict = 0, worst_fast = 0;
  double worst_compressed_strict = 0, worst_compressed_fast = 0;
  const double strict_bound =
      kStrictBound * (std::string_view(family.config).find("qwen3_5") != std::string::npos ? kRecurrenceFactor : 1);
  size_t turn = GetParam();
  for (const char* variant : family.variants) {
    json config = json::parse(family.config);
    (config.contains("text_config") ? config["text_config"] : config).merge_patch(json::parse(variant));
    ASSERT_OK(WriteRandomCheckpoint(folder_.path(), config.dump()));
    const auto plan = ReadModelPlan(folder_.path() + "/config.json", 37);
    ASSERT_OK(plan);
    std::vector<int64_t> tokens(20);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int64_t>(i * i * 7 + 3) % plan->vocabulary;

    // The judge: fp32 caches as inputs and outputs, one token at a time.
    BuildOptions plain = Options(DataType::kFp32, {"explicit-io:whole", CacheUpdate::kSlice, 1}, "decode");
    ASSERT_OK(BuildCheckpoint(plain));
    const auto expected = RunFolder(plain.output, tokens, ReferenceEngine());
    ASSERT_OK(expected);
    BuildOptions calls = Options(DataType::kFp32, {"explicit-io:whole", CacheUpdate::kSlice, 1}, "decode,prefill:8");
    ASSERT_OK(BuildCheckpoint(calls));
    const auto several = RunFolder(calls.output, tokens, ReferenceEngine());
    ASSERT_OK(several);
    EXPECT_LE(Deviation(*several, *expected), 1e-4);  // sums in another order
    worst_calls = std::max(worst_calls, Deviation(*several, *expected));

    for (const size_t of_this : {turn, turn + 3, turn + 6}) {
      Form form = kForms[of_this % std::size(kForms)];
      const bool windowed = form.update == CacheUpdate::kRing || form.update == CacheUpdate::kShift;
      if (windowed && !plan->HasSliding()) form.update = CacheUpdate::kSlice;
      form.chunks = std::min(form.chunks, plan->layer_count());
      const int64_t length = plan->HasSliding() ? std::min<int64_t>(8, plan->window) : 8;
      const std::string functions = length == 1 ? "decode" : fmt::format("decode,prefill:{}", length);
      const GraphStyle style = of_this % 2 == 0 ? GraphStyle::kPlain : GraphStyle::kAne;
      SCOPED_TRACE(
          fmt::format("{} {} {} {} x{}", variant, form.layout, UpdateName(form.update), StyleName(style), form.chunks));
      BuildOptions wide = Options(DataType::kFp32, form, functions);
      wide.style = style;
      const auto built = BuildCheckpoint(wide);
      ASSERT_OK(built);
      const auto same = RunFolder(wide.output, tokens, ReferenceEngine());
      ASSERT_OK(same);
      // Caches in fp16 where they are states (matrix_test.cc derives the bound on rounding everything: caches are
      // less).
      const double layout = Deviation(*same, *expected);
      EXPECT_LE(layout, static_cast<double>(plan->layer_count()) * 16 * 0x1p-11);
      worst_layout = std::max(worst_layout, layout);

      BuildOptions half = Options(DataType::kFp16, form, functions);
      half.style = style;
      ASSERT_OK(BuildCheckpoint(half));
      const auto reference = RunFolder(half.output, tokens, ReferenceEngine());
      ASSERT_OK(reference);
      // How far rounding everything to fp16 takes this network: some amplify errors more than others.
      const double half_error = std::max(Deviation(*reference, *expected), kStrictBound);
      for (const bool strict : {true, false}) {
        const auto logits = RunFolder(half.output, tokens, TwoThreads(strict));
        ASSERT_OK(logits);
        const double error = Deviation(*logits, *reference);
        if (strict) {
          EXPECT_LE(error, strict_bound);
          worst_strict = std::max(worst_strict, error);
          continue;
        }
        // Fast rounds at some of the places where the reference does. Both are random walks away from fp32 with steps
        // of one size, so it is at most twice as far.
        const double fast = Deviation(*logits, *expected);
        EXPECT_LE(fast, 2 * half_error);
        worst_fast = std::max(worst_fast, fast);
      }

      // Compressed weights, whose blocks and groups do not divide these sizes.
      const char* format = kFormats[(of_this + GetParam()) % std::size(kFormats)];
      SCOPED_TRACE(format);
      CompressOptions compress;
      compress.format = *ParseCompression(format);
      compress.min_elements = 64;
      const std::string compressed = half.output + "-compressed";
      ASSERT_OK(CompressFolder(half.output, compressed, compress));
      const auto judge = RunFolder(compressed, tokens, ReferenceEngine());
      ASSERT_OK(judge);
      for (const bool strict : {true, false}) {
        const auto logits = RunFolder(compressed, tokens, TwoThreads(strict));
        ASSERT_OK(logits);
        const double error = Deviation(*logits, *judge);
        EXPECT_LE(error, strict ? strict_bound : kInt8Factor * half_error);
        double& worst = strict ? worst_compressed_strict : worst_compressed_fast;
        worst = std::max(worst, error);
      }
    }
    ++turn;
  }
  std::printf("%zu shapes: layouts %.1e, calls %.1e, strict %.1e, fast %.1e; compressed %.1e, %.1e\n",
              family.variants.size(), worst_layout, worst_calls, worst_strict, worst_fast, worst_compressed_strict,
              worst_compressed_fast);
}

INSTANTIATE_TEST_SUITE_P(Families, RandomShapes, ::testing::Range<size_t>(0, AllShapes().size()), [](const auto& info) {
  return json::parse(AllShapes()[info.param].config)["model_type"].template get<std::string>();
});

}  // namespace
}  // namespace milwright::testing
