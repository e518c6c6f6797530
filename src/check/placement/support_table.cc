#include "check/placement/support_table.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "analysis/effects.h"
#include "analysis/weight_report.h"

namespace milwright {
namespace {

constexpr std::string_view kStudy = "ane-placement.md A (751K study, M4, macOS 27.0.1)";

// Parameters that say where or how much rather than carry data; their int32 is no int32 tensor on the ANE.
constexpr std::array<std::string_view, 9> kIndexParameters = {"indices", "begin", "end",  "size",        "shape",
                                                              "reps",    "axes",  "axis", "output_shape"};

bool IsIndexParameter(std::string_view name) {
  return std::ranges::find(kIndexParameters, name) != kIndexParameters.end();
}

// Whether a predicate holds for the type of any output or of any data operand that is known only at run time.
template <typename Predicate>
bool AnyData(const Operation& op, Predicate predicate) {
  for (const Input& input : op.inputs()) {
    if (IsIndexParameter(input.name)) continue;
    for (const Operand& operand : input.arguments) {
      if (operand.constant() == nullptr && operand.type().IsTensor() && predicate(operand.type())) return true;
    }
  }
  return std::ranges::any_of(op.outputs(),
                             [&](const auto& output) { return output->type.IsTensor() && predicate(output->type); });
}

template <DataType... kTypes>
bool HasData(const Operation& op) {
  return AnyData(op, [](const Type& type) { return ((type.dtype() == kTypes) || ...); });
}

template <int64_t kLargest>
bool HasDimensionAbove(const Operation& op) {
  return AnyData(op, [](const Type& type) {
    return std::ranges::any_of(type.shape(), [](int64_t size) { return size > kLargest; });
  });
}

// Sizes of the kernel of a convolution (from its weight) or pool: outermost first.
Shape KernelSizes(const Operation& op) {
  if (const Input* weight = op.FindInput("weight"); weight != nullptr && !weight->arguments.empty()) {
    const Shape& shape = weight->arguments.front().type().shape();
    return shape.size() > 2 ? Shape(shape.begin() + 2, shape.end()) : Shape();
  }
  const Literal* sizes = op.InputConstant("kernel_sizes");
  return sizes != nullptr ? sizes->tensor.ToInts() : Shape();
}

// The content of a constant scalar parameter; nullopt when absent or known only at run time.
std::optional<int64_t> ConstantInt(const Operation& op, std::string_view parameter) {
  const Literal* literal = op.InputConstant(parameter);
  if (literal == nullptr || literal->tensor.size() != 1) return std::nullopt;
  return literal->tensor.GetInt(0);
}

// 1xK above 15, Kx1 above 31, any other above 16. A kernel of one dimension counts as 1xK.
bool ConvKernelTooLarge(const Operation& op) {
  const Shape kernel = KernelSizes(op);
  if (kernel.empty()) return false;
  const int64_t width = kernel.back();
  const int64_t height = kernel.size() > 1 ? kernel[kernel.size() - 2] : 1;
  if (height == 1) return width > 15;
  return width == 1 ? height > 31 : std::max(width, height) > 16;
}

bool PoolWiderThan8(const Operation& op) {
  const Shape kernel = KernelSizes(op);
  return !kernel.empty() && kernel.back() > 8;
}
bool PoolLargerThan14(const Operation& op) {
  return std::ranges::any_of(KernelSizes(op), [](int64_t size) { return size > 14; });
}

bool MatmulInnerAbove32768(const Operation& op) {
  const Input* x = op.FindInput("x");
  if (x == nullptr || x->arguments.empty()) return false;
  const Shape& shape = x->arguments.front().type().shape();
  const bool swap = ConstantInt(op, "transpose_x").value_or(0) != 0;
  if (shape.size() < (swap ? 2U : 1U)) return false;
  return shape[shape.size() - (swap ? 2 : 1)] > 32768;
}

bool IsDynamic(const Operation& op, std::string_view parameter) {
  const Input* input = op.FindInput(parameter);
  return input != nullptr &&
         std::ranges::any_of(input->arguments, [](const Operand& operand) { return operand.constant() == nullptr; });
}
bool HasDynamicIndices(const Operation& op) { return IsDynamic(op, "indices"); }
bool HasDynamicStart(const Operation& op) { return IsDynamic(op, "begin"); }
bool HasDynamicBounds(const Operation& op) { return IsDynamic(op, "begin") || IsDynamic(op, "end"); }

bool CastsToInt8(const Operation& op) { return !op.outputs().empty() && op.output()->type.dtype() == DataType::kInt8; }
bool CastsFloats(const Operation& op) {
  return !op.outputs().empty() && IsFloat(op.output()->type.dtype()) && op.InputValue("x") != nullptr &&
         IsFloat(op.InputValue("x")->type.dtype());
}

// A weight whose scales or tables go by blocks along the input dimension.
bool HasPerBlockWeight(const Operation& op) {
  for (const Input& input : op.inputs()) {
    for (const Operand& operand : input.arguments) {
      const Operation* producer = operand.value != nullptr ? operand.value->producer() : nullptr;
      Weight weight;
      if (producer != nullptr && producer->type().starts_with("constexpr_") && DescribeWeight(*producer, &weight) &&
          weight.format.name.find("per_block") != std::string::npos) {
        return true;
      }
    }
  }
  return false;
}

// Anything but writes of states reads the result.
bool FeedsMoreThanStates(const Operation& op) {
  return std::ranges::any_of(op.outputs(), [](const auto& output) {
    return output->uses().empty() || std::ranges::any_of(output->uses(), [](const Use& use) {
             return use.op == nullptr || !IsStateWrite(*use.op);
           });
  });
}

bool IsWideDepthwise(const Operation& op) {
  const Input* weight = op.FindInput("weight");
  if (weight == nullptr || weight->arguments.empty()) return false;
  const Shape& shape = weight->arguments.front().type().shape();
  return shape.size() > 1 && shape[1] == 1 && shape[0] >= 1024 && ConstantInt(op, "groups") == shape[0];
}

bool TakesMoreThan40(const Operation& op) {
  return op.FindInput("k") != nullptr && ConstantInt(op, "k").value_or(41) > 40;
}

bool PadsByOtherThanMeasured(const Operation& op) {
  const Literal* mode = op.InputConstant("mode");
  const std::string text = mode != nullptr ? mode->AsString() : "constant";
  return text != "constant" && text != "reflect" && text != "replicate";
}

bool IsOlderThanMeasured(std::string_view target) { return target != "ane-macos27-m4"; }
bool IsMacOs26(std::string_view target) { return target == "ane-macos26"; }

constexpr AneSupport kNo = AneSupport::kNo;
constexpr AneSupport kYes = AneSupport::kYes;
constexpr AneSupport kUnknown = AneSupport::kUnknown;

std::vector<AneSupportRule> MakeRules() {
  constexpr SupportBasis kMeasured = SupportBasis::kMeasured;
  constexpr SupportBasis kReported = SupportBasis::kReported;
  constexpr SupportBasis kInferred = SupportBasis::kInferred;
  return {
      // What holds for every op.
      {"dimension-65536", "", HasDimensionAbove<65536>, nullptr, kNo, kMeasured, "a dimension above 65536 is refused",
       kStudy},
      {"dimension-16384", "", HasDimensionAbove<16384>, IsOlderThanMeasured, kUnknown, kReported,
       "a dimension above 16384 was refused by older systems", "ane-placement.md A, conflicts (older sources)",
       "up to 65536 is taken on an M4 under macOS 27.0.1"},
      {"per-block-weight", "", HasPerBlockWeight, nullptr, kNo, kReported,
       "weights quantized per block are refused: only per channel and per tensor", "coremltools issue 2510",
       "placed, with wrong numbers, in coreai-models issue 279"},

      // Operations that the ANE never takes.
      {"function-not-on-ane", "asin acos tan sinh cosh atanh mod reduce_prod cumsum", nullptr, nullptr, kNo, kMeasured,
       "a function that the ANE does not have", kStudy},
      {"sequence-op",
       "lstm gru rnn band_part one_hot non_zero range_1d random_normal sliding_windows crop_resize scatter "
       "scatter_along_axis",
       nullptr, nullptr, kNo, kMeasured, "a sequence or structure operation that the ANE does not have", kStudy},
      {"argmax-argsort", "reduce_argmax reduce_argmin argsort", nullptr, nullptr, kNo, kMeasured, "its result is int32",
       kStudy},
      {"random-or-scatter", "random_uniform random_bernoulli random_categorical scatter_nd", nullptr, nullptr, kNo,
       kInferred, "of a kind that the ANE does not have (random_normal, scatter)", kStudy},

      // Indices.
      {"gather-dynamic-index", "gather gather_nd gather_along_axis", HasDynamicIndices, nullptr, kNo, kMeasured,
       "gather with indices known only at run time", kStudy},
      {"gather-constant-index", "gather gather_nd gather_along_axis", nullptr, nullptr, kYes, kMeasured,
       "gather with constant indices", kStudy},
      {"slice-by-size-dynamic", "slice_by_size", HasDynamicStart, nullptr, kNo, kMeasured,
       "slice_by_size with a start known only at run time", kStudy},
      {"slice-update-standalone", "slice_update", FeedsMoreThanStates, nullptr, kNo, kReported,
       "the result of slice_update feeds something besides the write of a state",
       "ANEMLL (\"Cannot support standalone slice_update\")"},
      {"slice-update-state", "slice_update", nullptr, nullptr, kYes, kReported,
       "slice_update whose result only goes to states", "ANEMLL"},
      {"topk-40", "topk", TakesMoreThan40, nullptr, kUnknown, kReported, "k above 40, which was the largest measured",
       "ane-placement.md A", "on the CPU for large k (CoreML-LLM, inferred)"},
      {"topk", "topk", nullptr, nullptr, kYes, kMeasured, "topk up to k = 40, width 32000", kStudy,
       "its indices are int32, and every other int32 tensor is refused (same study)"},

      // Data types.
      {"int32-tensor", "", HasData<DataType::kInt32>, nullptr, kNo, kMeasured, "works on, or gives, an int32 tensor",
       kStudy},
      {"cast-int8", "cast", CastsToInt8, nullptr, kNo, kMeasured, "cast to int8", kStudy},
      {"cast-float", "cast", CastsFloats, nullptr, kYes, kMeasured, "cast between fp16 and fp32", kStudy},
      {"quantize", "quantize dequantize", nullptr, nullptr, kYes, kMeasured, "quantize and dequantize (int8)", kStudy},
      {"narrow-integer", "", HasData<DataType::kInt16, DataType::kUInt16, DataType::kInt8, DataType::kUInt8>, nullptr,
       kUnknown, kInferred, "computes on 8 or 16 bit integers, which nobody measured", kStudy},
      {"fp32-compute", "", HasData<DataType::kFp32>, nullptr, kNo, kReported,
       "computes in fp32, which the GPU and the CPU do", "coremltools guide, \"Typed Execution Workflow Example\"",
       "fp32 inputs get casts and go to the ANE (751K study): for fp16 programs"},

      // Sizes of kernels and products.
      {"conv-kernel-size", "conv conv_transpose", ConvKernelTooLarge, nullptr, kNo, kMeasured,
       "kernel wider than 15 (1xK), higher than 31 (Kx1) or larger than 16 (square)", kStudy},
      {"depthwise-1024", "conv", IsWideDepthwise, IsMacOs26, kUnknown, kReported,
       "depthwise convolution of 1024 or more channels", "CoreML-LLM: on the CPU in LFM2.5 (1x3, macOS 26)",
       "a depthwise convolution of kernel 4 is on the ANE in Qwen3.5 prefill (same repository)"},
      {"max-pool-width", "max_pool", PoolWiderThan8, nullptr, kNo, kMeasured, "max_pool wider than 8", kStudy},
      {"avg-pool-size", "avg_pool", PoolLargerThan14, nullptr, kUnknown, kMeasured,
       "avg_pool larger than 14, the largest measured", kStudy},
      {"matmul-inner", "matmul linear", MatmulInnerAbove32768, nullptr, kNo, kMeasured, "inner dimension above 32768",
       kStudy},
      {"pad-mode", "pad", PadsByOtherThanMeasured, nullptr, kUnknown, kMeasured, "a mode of pad that nobody measured",
       kStudy},
      {"slice-dynamic", "slice_by_index", HasDynamicBounds, nullptr, kUnknown, kInferred,
       "slice_by_index with bounds known only at run time: only constant ones were measured", kStudy},

      // Everything else that was measured.
      {"elementwise",
       "abs add atan cast ceil clamped_relu clip cos elu equal erf exp exp2 floor floor_div gelu greater greater_equal "
       "inverse leaky_relu less less_equal linear_activation log logical_and logical_not logical_or logical_xor "
       "maximum "
       "minimum mul not_equal pow prelu real_div relu relu6 round rsqrt scaled_tanh select sigmoid sigmoid_hard sign "
       "silu sin softplus softplus_parametric softsign sqrt square sub tanh threshold thresholded_relu",
       nullptr, nullptr, kYes, kMeasured, "an elementwise function", kStudy},
      {"convolution", "conv conv_transpose", nullptr, nullptr, kYes, kMeasured,
       "convolution: 1 to 3 dimensions, grouped, dilated, transposed, weights known only at run time", kStudy},
      {"matmul", "matmul linear scaled_dot_product_attention", nullptr, nullptr, kYes, kMeasured,
       "matrix product or attention", kStudy},
      {"pool", "avg_pool max_pool l2_pool", nullptr, nullptr, kYes, kMeasured, "pooling", kStudy},
      {"normalization", "softmax layer_norm instance_norm batch_norm l2_norm local_response_norm", nullptr, nullptr,
       kYes, kMeasured, "softmax or a normalization", kStudy},
      {"reduction",
       "reduce_sum reduce_mean reduce_max reduce_min reduce_l1_norm reduce_l2_norm reduce_log_sum reduce_log_sum_exp "
       "reduce_sum_square",
       nullptr, nullptr, kYes, kMeasured, "a reduction (all but reduce_prod)", kStudy},
      {"data-movement",
       "reshape transpose concat split stack slice_by_index slice_by_size reverse tile pad space_to_depth "
       "depth_to_space "
       "space_to_batch batch_to_space pixel_shuffle pixel_unshuffle",
       nullptr, nullptr, kYes, kMeasured, "moves data by constant places", kStudy},
      {"reshape-like", "expand_dims squeeze flatten2d reshape_like identity", nullptr, nullptr, kYes, kInferred,
       "a reshape under another name", kStudy},
      {"resize",
       "resize resize_bilinear resize_nearest_neighbor upsample_bilinear upsample_nearest_neighbor affine resample",
       nullptr, nullptr, kYes, kMeasured, "resizing or resampling", kStudy},

      {"not-measured", "", nullptr, nullptr, kUnknown, kInferred, "no source speaks of this operation", kStudy},
  };
}

}  // namespace

std::string_view AneSupportName(AneSupport support) {
  switch (support) {
    case AneSupport::kNo:
      return "no";
    case AneSupport::kYes:
      return "yes";
    case AneSupport::kUnknown:
      return "unknown";
  }
  return "";
}

std::string_view SupportBasisName(SupportBasis basis) {
  switch (basis) {
    case SupportBasis::kMeasured:
      return "measured";
    case SupportBasis::kReported:
      return "reported";
    case SupportBasis::kInferred:
      return "inferred";
  }
  return "";
}

std::span<const AneSupportRule> AneSupportRules() {
  static const std::vector<AneSupportRule> rules = MakeRules();
  return rules;
}

const AneSupportRule& FindAneSupport(const Operation& op, std::string_view target) {
  const std::span<const AneSupportRule> rules = AneSupportRules();
  const auto found = std::ranges::find_if(rules, [&](const AneSupportRule& rule) {
    return (rule.ops.empty() || HasWord(rule.ops, op.type())) &&
           (rule.applies_to == nullptr || rule.applies_to(target)) && (rule.applies == nullptr || rule.applies(op));
  });
  return *found;
}

bool HasWord(std::string_view list, std::string_view word) {
  for (size_t place = list.find(word); place != std::string_view::npos; place = list.find(word, place + 1)) {
    const size_t end = place + word.size();
    if ((place == 0 || list[place - 1] == ' ') && (end == list.size() || list[end] == ' ')) return true;
  }
  return false;
}

const AneSupportRule* FindAneSupportRule(std::string_view id) {
  const std::span<const AneSupportRule> rules = AneSupportRules();
  const auto found = std::ranges::find(rules, id, &AneSupportRule::id);
  return found == rules.end() ? nullptr : &*found;
}

}  // namespace milwright
