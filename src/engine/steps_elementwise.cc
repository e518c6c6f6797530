// Element by element: float functions of one and two operands on fp32 lines, everything else number by number.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/plan_builder.h"
#include "milwright/half.h"
#include "ops/axes.h"

namespace milwright::engine {
namespace {

// Operands that are not contiguous fp32 are gathered in pieces of this size.
constexpr int64_t kPiece = 512;

// ---- float functions ----

using UnaryLine = void (*)(const float* x, int64_t n, const std::array<float, 2>& numbers, float* y);
using BinaryLine = void (*)(const float* x, const float* y, int64_t n, float* result);

template <typename F>
constexpr UnaryLine Unary(F) {
  return [](const float* x, int64_t n, const std::array<float, 2>& numbers, float* y) {
    for (int64_t i = 0; i < n; ++i) y[i] = F{}(x[i], numbers[0], numbers[1]);
  };
}
template <typename F>
constexpr BinaryLine Binary(F) {
  return [](const float* x, const float* y, int64_t n, float* result) {
    for (int64_t i = 0; i < n; ++i) result[i] = F{}(x[i], y[i]);
  };
}

float Sigmoid(float x) { return 1.0F / (1.0F + std::exp(-x)); }
float Minimum(float x, float y) { return std::isnan(x) || x < y ? x : y; }
float Maximum(float x, float y) { return std::isnan(x) || x > y ? x : y; }
float GeluTanh(float x) {
  constexpr float kSqrtTwoOverPi = 0.7978845608028654F;
  return 0.5F * x * (1.0F + std::tanh(kSqrtTwoOverPi * (x + 0.044715F * x * x * x)));
}

struct UnaryEntry {
  std::string_view kind;
  UnaryLine line;
  std::array<std::string_view, 2> numbers;  ///< parameters behind x
};

const UnaryEntry kUnary[] = {
    {"abs", Unary([](float x, float, float) { return std::fabs(x); }), {}},
    {"ceil", Unary([](float x, float, float) { return std::ceil(x); }), {}},
    {"clip", Unary([](float x, float a, float b) { return Minimum(Maximum(x, a), b); }), {"alpha", "beta"}},
    {"cos", Unary([](float x, float, float) { return std::cos(x); }), {}},
    {"erf", Unary([](float x, float, float) { return std::erf(x); }), {}},
    {"exp", Unary([](float x, float, float) { return std::exp(x); }), {}},
    {"exp2", Unary([](float x, float, float) { return std::exp2(x); }), {}},
    {"floor", Unary([](float x, float, float) { return std::floor(x); }), {}},
    {"inverse", Unary([](float x, float e, float) { return 1.0F / (x + e); }), {"epsilon"}},
    {"log", Unary([](float x, float e, float) { return std::log(x + e); }), {"epsilon"}},
    {"relu", Unary([](float x, float, float) { return Maximum(x, 0.0F); }), {}},
    {"round", Unary([](float x, float, float) { return std::nearbyint(x); }), {}},
    {"rsqrt", Unary([](float x, float e, float) { return 1.0F / std::sqrt(x + e); }), {"epsilon"}},
    {"sigmoid", Unary([](float x, float, float) { return Sigmoid(x); }), {}},
    {"silu", Unary([](float x, float, float) { return x * Sigmoid(x); }), {}},
    {"sin", Unary([](float x, float, float) { return std::sin(x); }), {}},
    {"sqrt", Unary([](float x, float, float) { return std::sqrt(x); }), {}},
    {"square", Unary([](float x, float, float) { return x * x; }), {}},
    {"tanh", Unary([](float x, float, float) { return std::tanh(x); }), {}},
};
const UnaryEntry kIdentity = {"identity", Unary([](float x, float, float) { return x; }), {}};
const UnaryEntry kGelu[] = {
    {"EXACT", Unary([](float x, float, float) { return 0.5F * x * (1.0F + std::erf(x * 0.7071067811865476F)); }), {}},
    {"TANH_APPROXIMATION", Unary([](float x, float, float) { return GeluTanh(x); }), {}},
    {"SIGMOID_APPROXIMATION", Unary([](float x, float, float) { return x * Sigmoid(1.702F * x); }), {}},
};

struct BinaryEntry {
  std::string_view kind;
  BinaryLine line;
};

const BinaryEntry kBinary[] = {
    {"add", Binary([](float x, float y) { return x + y; })},
    {"sub", Binary([](float x, float y) { return x - y; })},
    {"mul", Binary([](float x, float y) { return x * y; })},
    {"real_div", Binary([](float x, float y) { return x / y; })},
    {"maximum", Binary([](float x, float y) { return Maximum(x, y); })},
    {"minimum", Binary([](float x, float y) { return Minimum(x, y); })},
    {"pow", Binary([](float x, float y) { return std::pow(x, y); })},
};

// One operand of a line as contiguous floats: where they lie, or gathered piece by piece.
class LineReader {
 public:
  LineReader(const std::byte* data, DataType dtype, int64_t stride, int64_t n)
      : data_(data), dtype_(dtype), stride_(stride) {
    if (stride_ == 0) {
      float value = 0;
      std::memcpy(&value, data_, dtype == DataType::kFp32 ? 4 : 0);
      if (dtype == DataType::kFp16) value = HalfToFloat(*reinterpret_cast<const uint16_t*>(data_));
      std::fill_n(piece_.begin(), std::min(n, kPiece), value);
    }
  }

  // Elements [at, at + n), n at most kPiece.
  const float* Read(const kernels::Kernels& kernels, int64_t at, int64_t n) {
    if (stride_ == 0) return piece_.data();
    if (dtype_ == DataType::kFp32) {
      const auto* floats = reinterpret_cast<const float*>(data_) + at * stride_;
      if (stride_ == 1) return floats;
      for (int64_t i = 0; i < n; ++i) piece_[static_cast<size_t>(i)] = floats[i * stride_];
    } else {
      const auto* halves = reinterpret_cast<const uint16_t*>(data_) + at * stride_;
      if (stride_ == 1) {
        kernels.half_to_float(halves, n, piece_.data());
      } else {
        for (int64_t i = 0; i < n; ++i) piece_[static_cast<size_t>(i)] = HalfToFloat(halves[i * stride_]);
      }
    }
    return piece_.data();
  }

 private:
  const std::byte* data_;
  DataType dtype_;
  int64_t stride_;
  alignas(64) std::array<float, kPiece> piece_;
};

// Walks lines along the innermost of `axes`; the outermost is limited to [begin, end). line(offsets, length).
template <size_t N, typename Line>
void WalkLines(const LoopAxes& axes, int64_t begin, int64_t end, Line&& line) {
  if (begin >= end) return;
  std::array<int64_t, N> offsets{};
  for (size_t k = 0; k < N; ++k) offsets[k] = begin * axes[0].strides[k];
  if (axes.size() == 1) {
    line(offsets, end - begin);
    return;
  }
  std::array<int64_t, kMaxAxes> position{};
  position[0] = begin;
  const size_t last = axes.size() - 1;
  while (true) {
    line(offsets, axes[last].size);
    size_t axis = last;
    while (axis-- > 0) {
      for (size_t k = 0; k < N; ++k) offsets[k] += axes[axis].strides[k];
      const int64_t limit = axis == 0 ? end : axes[axis].size;
      if (++position[axis] < limit) break;
      if (axis == 0) return;
      for (size_t k = 0; k < N; ++k) offsets[k] -= axes[axis].strides[k] * axes[axis].size;
      position[axis] = 0;
    }
  }
}

// y = f(x) or f(x, y) on floats, rounded to fp16 where the result is declared so.
class FloatStep final : public Step {
 public:
  FloatStep(const std::vector<View>& operands, View result, bool round, UnaryLine unary, std::array<float, 2> numbers,
            BinaryLine binary)
      : operands_(operands.begin(), operands.end()),
        result_(result),
        round_(round),
        unary_(unary),
        numbers_(numbers),
        binary_(binary) {
    std::vector<Dims> strides{result_.strides};
    for (View& operand : operands_) {
      operand = BroadcastTo(operand, result_.shape);
      strides.push_back(operand.strides);
    }
    if (operands_.size() == 1) strides.push_back(operands_[0].strides);
    axes_ = JoinedAxes(result_.shape, strides);
  }

  Status Run(Frame& frame) const override {
    ForParts(frame, axes_[0].size, result_.count(), [&](int64_t begin, int64_t end) { RunRange(frame, begin, end); });
    return Status::Ok();
  }

 private:
  void RunRange(const Frame& frame, int64_t begin, int64_t end) const {
    const kernels::Kernels& kernels = *frame.kernels;
    auto* result = frame.At<float>(result_);
    const int64_t x_bytes = operands_[0].dtype == DataType::kFp32 ? 4 : 2;
    const std::byte* x = frame.At<std::byte>(operands_[0], x_bytes);
    const View& second = operands_.back();
    const int64_t y_bytes = second.dtype == DataType::kFp32 ? 4 : 2;
    const std::byte* y = frame.At<std::byte>(second, y_bytes);
    const auto& steps = axes_.back().strides;
    WalkLines<3>(axes_, begin, end, [&](const std::array<int64_t, 3>& at, int64_t n) {
      float* out = result + at[0];
      LineReader x_line(x + at[1] * x_bytes, operands_[0].dtype, n == 1 ? 1 : steps[1], n);
      if (binary_ == nullptr) {
        for (int64_t i = 0; i < n; i += kPiece) {
          const int64_t piece = std::min(kPiece, n - i);
          unary_(x_line.Read(kernels, i, piece), piece, numbers_, out + i);
        }
      } else {
        LineReader y_line(y + at[2] * y_bytes, second.dtype, n == 1 ? 1 : steps[2], n);
        for (int64_t i = 0; i < n; i += kPiece) {
          const int64_t piece = std::min(kPiece, n - i);
          binary_(x_line.Read(kernels, i, piece), y_line.Read(kernels, i, piece), piece, out + i);
        }
      }
      if (round_) kernels.round_to_half(out, n);
    });
  }

  InlineVector<View, 2> operands_;
  View result_;
  bool round_;
  UnaryLine unary_;
  std::array<float, 2> numbers_;
  BinaryLine binary_;
  LoopAxes axes_;
};

bool IsHeldAsFloat(const View& view) { return view.dtype == DataType::kFp32 || view.dtype == DataType::kFp16; }

// Result strides: those of the first operand of the result's shape that fills its memory, so that layouts persist.
Shape ResultStrides(const std::vector<View>& operands, const Shape& shape) {
  for (const View& operand : operands) {
    if (operand.shape == shape && IsPermutedDense(operand)) return operand.strides;
  }
  return DenseStrides(shape);
}

Result<bool> LowerFloats(PlanBuilder& builder, const Node& node, const std::vector<GraphValue*>& values,
                         UnaryLine unary, std::array<float, 2> numbers, BinaryLine binary) {
  std::vector<View> operands;
  for (GraphValue* value : values) {
    MW_ASSIGN_OR_RETURN(View view, builder.ViewOf(value));
    if (!IsHeldAsFloat(view)) return false;
    operands.push_back(view);
  }
  const Shape strides = ResultStrides(operands, node.output()->shape());
  const View result = builder.Allocate(node.output(), &strides);
  std::vector<View> used = operands;
  used.push_back(result);
  const bool round = node.output()->dtype() == DataType::kFp16;
  builder.Emit(std::make_unique<FloatStep>(std::move(operands), result, round, unary, numbers, binary), node, used);
  return true;
}

Result<bool> LowerUnary(PlanBuilder& builder, const Node& node) {
  if (!IsFloat(node.output()->dtype())) return false;
  const UnaryEntry* entry = nullptr;
  std::array<float, 2> numbers{};
  const OpContext context = node.Context();
  if (node.kind == "gelu") {
    const auto it = std::ranges::find(kGelu, context.String("mode", "EXACT"), &UnaryEntry::kind);
    if (it == std::end(kGelu)) return false;
    entry = &*it;
  } else {
    entry = &*std::ranges::find(kUnary, node.kind, &UnaryEntry::kind);
    for (size_t i = 0; i < 2 && !entry->numbers[i].empty(); ++i) {
      // Numbers have the type of x: an epsilon of 1e-12 is 0 in fp16 (op-semantics.md, section 3).
      const auto number = static_cast<float>(context.Double(entry->numbers[i]));
      numbers[i] = node.Arg("x")->dtype() == DataType::kFp16 ? RoundToHalf(number) : number;
    }
  }
  return LowerFloats(builder, node, {node.Arg("x")}, entry->line, numbers, nullptr);
}

// ---- numbers of any type ----

double LoadDouble(const std::byte* data, DataType dtype, int64_t i) {
  switch (dtype) {
    case DataType::kFp32:
      return reinterpret_cast<const float*>(data)[i];
    case DataType::kFp16:
      return HalfToFloat(reinterpret_cast<const uint16_t*>(data)[i]);
    case DataType::kInt32:
      return reinterpret_cast<const int32_t*>(data)[i];
    case DataType::kUInt32:
      return reinterpret_cast<const uint32_t*>(data)[i];
    case DataType::kInt16:
      return reinterpret_cast<const int16_t*>(data)[i];
    case DataType::kUInt16:
      return reinterpret_cast<const uint16_t*>(data)[i];
    case DataType::kInt8:
      return reinterpret_cast<const int8_t*>(data)[i];
    default:
      return reinterpret_cast<const uint8_t*>(data)[i];
  }
}

// Stores an integer result (the low bits), or a number that comes from floats (truncated, saturated, NaN to 0).
void StoreInt(std::byte* data, DataType dtype, int64_t i, int64_t value) {
  switch (dtype) {
    case DataType::kFp32:
      reinterpret_cast<float*>(data)[i] = static_cast<float>(value);
      return;
    case DataType::kInt32:
    case DataType::kUInt32:
      reinterpret_cast<uint32_t*>(data)[i] = static_cast<uint32_t>(value);
      return;
    case DataType::kInt16:
    case DataType::kUInt16:
      reinterpret_cast<uint16_t*>(data)[i] = static_cast<uint16_t>(value);
      return;
    case DataType::kBool:
      reinterpret_cast<uint8_t*>(data)[i] = value != 0 ? 1 : 0;
      return;
    default:
      reinterpret_cast<uint8_t*>(data)[i] = static_cast<uint8_t>(value);
      return;
  }
}

template <typename T>
int64_t Saturated(double value) {
  if (std::isnan(value)) return 0;
  return static_cast<int64_t>(std::clamp(std::trunc(value), static_cast<double>(std::numeric_limits<T>::lowest()),
                                         static_cast<double>(std::numeric_limits<T>::max())));
}

int64_t ToInteger(DataType dtype, double value) {
  switch (dtype) {
    case DataType::kInt32:
      return Saturated<int32_t>(value);
    case DataType::kUInt32:
      return Saturated<uint32_t>(value);
    case DataType::kInt16:
      return Saturated<int16_t>(value);
    case DataType::kUInt16:
      return Saturated<uint16_t>(value);
    case DataType::kInt8:
      return Saturated<int8_t>(value);
    case DataType::kBool:
      return value != 0 ? 1 : 0;
    default:
      return Saturated<uint8_t>(value);
  }
}

bool IsHandled(DataType dtype) {
  switch (dtype) {
    case DataType::kFp32:
    case DataType::kFp16:
    case DataType::kInt32:
    case DataType::kUInt32:
    case DataType::kInt16:
    case DataType::kUInt16:
    case DataType::kInt8:
    case DataType::kUInt8:
    case DataType::kBool:
      return true;
    default:
      return false;
  }
}

// All integer types that programs compute with fit a double exactly, and so do their sums; products may not, and wrap.
using NumberFunction = double (*)(double x, double y, double z);

struct NumberEntry {
  std::string_view kind;
  NumberFunction function;
  std::array<std::string_view, 3> operands;
};

const NumberEntry kNumbers[] = {
    {"add", [](double x, double y, double) { return x + y; }, {"x", "y"}},
    {"sub", [](double x, double y, double) { return x - y; }, {"x", "y"}},
    {"maximum", [](double x, double y, double) { return std::max(x, y); }, {"x", "y"}},
    {"minimum", [](double x, double y, double) { return std::min(x, y); }, {"x", "y"}},
    {"equal", [](double x, double y, double) { return x == y ? 1.0 : 0.0; }, {"x", "y"}},
    {"not_equal", [](double x, double y, double) { return x != y ? 1.0 : 0.0; }, {"x", "y"}},
    {"greater", [](double x, double y, double) { return x > y ? 1.0 : 0.0; }, {"x", "y"}},
    {"greater_equal", [](double x, double y, double) { return x >= y ? 1.0 : 0.0; }, {"x", "y"}},
    {"less", [](double x, double y, double) { return x < y ? 1.0 : 0.0; }, {"x", "y"}},
    {"less_equal", [](double x, double y, double) { return x <= y ? 1.0 : 0.0; }, {"x", "y"}},
    {"logical_and", [](double x, double y, double) { return x != 0 && y != 0 ? 1.0 : 0.0; }, {"x", "y"}},
    {"logical_or", [](double x, double y, double) { return x != 0 || y != 0 ? 1.0 : 0.0; }, {"x", "y"}},
    {"logical_xor", [](double x, double y, double) { return (x != 0) != (y != 0) ? 1.0 : 0.0; }, {"x", "y"}},
    {"logical_not", [](double x, double, double) { return x == 0 ? 1.0 : 0.0; }, {"x"}},
    {"select", [](double cond, double a, double b) { return cond != 0 ? a : b; }, {"cond", "a", "b"}},
    {"cast", [](double x, double, double) { return x; }, {"x"}},
};

class NumberStep final : public Step {
 public:
  NumberStep(std::vector<View> operands, View result, bool from_float, bool round, NumberFunction function)
      : result_(result), from_float_(from_float), round_(round), function_(function) {
    while (operands.size() < 3) operands.push_back(operands.front());
    std::vector<Dims> strides{result_.strides};
    for (View& operand : operands) {
      operand = BroadcastTo(operand, result_.shape);
      strides.push_back(operand.strides);
    }
    std::ranges::copy(operands, operands_.begin());
    axes_ = JoinedAxes(result_.shape, strides);
  }

  Status Run(Frame& frame) const override {
    std::array<const std::byte*, 3> data{};
    for (size_t k = 0; k < 3; ++k) {
      data[k] = frame.At<std::byte>(operands_[k], BitWidth(operands_[k].dtype) / 8);
    }
    std::byte* out = frame.At<std::byte>(result_, BitWidth(result_.dtype) / 8);
    const auto& steps = axes_.back().strides;
    WalkLines<4>(axes_, 0, axes_[0].size, [&](const std::array<int64_t, 4>& at, int64_t n) {
      for (int64_t i = 0; i < n; ++i) {
        const double value = function_(LoadDouble(data[0], operands_[0].dtype, at[1] + i * steps[1]),
                                       LoadDouble(data[1], operands_[1].dtype, at[2] + i * steps[2]),
                                       LoadDouble(data[2], operands_[2].dtype, at[3] + i * steps[3]));
        const int64_t to = at[0] + i * steps[0];
        if (result_.dtype == DataType::kFp32) {
          const auto number = static_cast<float>(value);
          reinterpret_cast<float*>(out)[to] = round_ ? RoundToHalf(number) : number;
        } else {
          StoreInt(out, result_.dtype, to, from_float_ ? ToInteger(result_.dtype, value) : static_cast<int64_t>(value));
        }
      }
    });
    return Status::Ok();
  }

 private:
  std::array<View, 3> operands_;
  View result_;
  bool from_float_;
  bool round_;
  NumberFunction function_;
  LoopAxes axes_;
};

Result<bool> LowerNumbers(PlanBuilder& builder, const Node& node) {
  const auto entry = std::ranges::find(kNumbers, node.kind, &NumberEntry::kind);
  if (entry == std::end(kNumbers) || !IsHandled(node.output()->dtype())) return false;
  std::vector<View> operands;
  bool from_float = false;
  for (const std::string_view name : entry->operands) {
    if (name.empty()) continue;
    GraphValue* value = node.Arg(name);
    if (value == nullptr || !IsHandled(value->dtype())) return false;
    from_float = from_float || (node.kind == "cast" && IsFloat(value->dtype()));
    MW_ASSIGN_OR_RETURN(View view, builder.ViewOf(value));
    operands.push_back(view);
  }
  const View result = builder.Allocate(node.output());
  std::vector<View> used = operands;
  used.push_back(result);
  const bool round = node.output()->dtype() == DataType::kFp16;
  builder.Emit(std::make_unique<NumberStep>(std::move(operands), result, from_float, round, entry->function), node,
               used);
  return true;
}

Result<bool> LowerBinary(PlanBuilder& builder, const Node& node) {
  if (!IsFloat(node.output()->dtype()) || !IsFloat(node.Arg("x")->dtype()) || !IsFloat(node.Arg("y")->dtype())) {
    return LowerNumbers(builder, node);
  }
  const auto entry = std::ranges::find(kBinary, node.kind, &BinaryEntry::kind);
  if (entry == std::end(kBinary)) return false;
  BinaryLine line = entry->line;
  if (node.kind == "add") line = builder.kernels().add;
  if (node.kind == "mul") line = builder.kernels().mul;
  return LowerFloats(builder, node, {node.Arg("x"), node.Arg("y")}, nullptr, {}, line);
}

Result<bool> LowerCast(PlanBuilder& builder, const Node& node) {
  GraphValue* x = node.Arg("x");
  const DataType to = node.output()->dtype();
  if (!IsFloat(x->dtype()) || !IsFloat(to)) {
    return LowerNumbers(builder, node);
  }
  MW_ASSIGN_OR_RETURN(const View view, builder.ViewOf(x));
  if (!IsHeldAsFloat(view)) return false;
  // What is held may stay as it is unless it has to be rounded.
  if (to == DataType::kFp32 || x->dtype() == DataType::kFp16) {
    builder.Bind(node.output(), view);
    return true;
  }
  return LowerFloats(builder, node, {x}, kIdentity.line, {}, nullptr);
}

const std::vector<LoweringEntry>& Entries() {
  static const std::vector<LoweringEntry> entries = [] {
    std::vector<LoweringEntry> all;
    for (const UnaryEntry& entry : kUnary) all.push_back({entry.kind, LowerUnary});
    all.push_back({"gelu", LowerUnary});
    for (const BinaryEntry& entry : kBinary) all.push_back({entry.kind, LowerBinary});
    for (const NumberEntry& entry : kNumbers) {
      if (std::ranges::find(all, entry.kind, &LoweringEntry::kind) == all.end() && entry.kind != "cast") {
        all.push_back({entry.kind, LowerNumbers});
      }
    }
    all.push_back({"cast", LowerCast});
    return all;
  }();
  return entries;
}

}  // namespace

std::span<const LoweringEntry> ElementwiseLowerings() { return Entries(); }

}  // namespace milwright::engine
