#include "mini_program.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/builder.h"
#include "support/small_model.h"

namespace milwright::testing {
namespace {

std::optional<Shape> KnownShape(const StateFeatures& state) {
  if (!state.shape.has_value() || state.shape->size() < 3) return std::nullopt;
  Shape shape;
  for (const auto& size : *state.shape) shape.push_back(size.value_or(2));
  return shape;
}

// Writes one function; every state gets inputs of its own.
class FunctionBuilder {
 public:
  FunctionBuilder(Function& function, int64_t rows) : function_(function), b_(function.body()), rows_(rows) {}

  // False when the state's kind of use is not known.
  bool AddState(const StateFeatures& features) {
    const auto shape = KnownShape(features);
    if (!shape.has_value()) return false;
    state_ = function_.AddInput(features.name, Type::State({DataType::kFp16, *shape}));
    name_ = features.name;
    shape_ = *shape;
    if (features.role == "kv") return AddKv(features.update);
    if (features.role == "conv") return AddConv(features.update);
    if (features.role == "recurrent" && features.update == "read_modify_write") return AddRecurrent();
    return false;
  }

  // A slice of the last state, as output beside its other reader.
  void ExposeSlice() {
    Shape end = shape_;
    end[0] = 1;
    Value* slice = b_.Op("slice_by_index", {{"x", last_read_},
                                            {"begin", Literal::Int32s(std::vector<int64_t>(shape_.size(), 0))},
                                            {"end", Literal::Int32s(end)}});
    outputs_.push_back(b_.Op("softmax", {{"x", slice}, {"axis", Literal::Int32(-1)}}));
    outputs_.push_back(slice);
  }

  bool AddWeights(const std::string& format);

  Status Finish() {
    function_.body().SetOutputs(outputs_);
    return b_.status();
  }

 private:
  Value* NewInput(std::string_view what, Shape shape, DataType dtype = DataType::kFp16) {
    return function_.AddInput(fmt::format("{}_{}", name_, what), Type::Tensor(dtype, std::move(shape)));
  }
  Shape With(size_t axis, int64_t size) const {
    Shape shape = shape_;
    shape[axis] = size;
    return shape;
  }
  Value* Concat(const std::vector<Value*>& values, int64_t axis) {
    return b_.Op("concat", {{"values", values}, {"axis", Literal::Int32(axis)}, {"interleave", Literal::Bool(false)}});
  }
  Value* Shifted(Value* old, size_t axis, int64_t rows) {
    std::vector<int64_t> begin(shape_.size(), 0);
    begin[axis] = rows;
    Value* kept =
        b_.Op("slice_by_index", {{"x", old}, {"begin", Literal::Int32s(begin)}, {"end", Literal::Int32s(shape_)}});
    return Concat({kept, NewInput("new", With(axis, rows))}, static_cast<int64_t>(axis));
  }
  Value* Assigned(Value* old, Value* begin, Value* end, Shape update) {
    return b_.Op("slice_update",
                 {{"x", old}, {"update", NewInput("new", std::move(update))}, {"begin", begin}, {"end", end}});
  }
  Value* StaticSlot(Value* old, size_t axis, int64_t size) {
    const Shape end = With(axis, size);
    return Assigned(old, b_.Const(Literal::Int32s(std::vector<int64_t>(shape_.size(), 0))),
                    b_.Const(Literal::Int32s(end)), end);
  }
  void WriteAndRead(Value* updated) {
    if (updated != nullptr) b_.WriteState(state_, updated);
    last_read_ = b_.ReadState(state_);
  }

  bool AddKv(const std::string& update) {
    const size_t axis = shape_.size() - 2;
    Value* old = b_.ReadState(state_);
    Value* updated = nullptr;
    if (update == "slice_update_dynamic") {
      Value* position = NewInput("position", {1}, DataType::kInt32);
      Value* end = b_.Op("add", {{"x", position}, {"y", Literal::Int32(rows_)}});
      const auto place = [&](Value* row, const Shape& rest) {
        return Concat({b_.Const(Literal::Int32s({rest.begin(), rest.begin() + static_cast<int64_t>(axis)})), row,
                       b_.Const(Literal::Int32s({rest.back()}))},
                      0);
      };
      updated = Assigned(old, place(position, Shape(shape_.size(), 0)), place(end, shape_), With(axis, rows_));
    } else if (update == "slice_assign_static_slot") {
      updated = StaticSlot(old, axis, rows_);
    } else if (update == "mask_blend") {
      Shape ones(shape_.size(), 1);
      ones[axis] = shape_[axis];
      Value* mask = NewInput("mask", ones);
      Value* keep = b_.Op("sub", {{"x", Literal::Float(DataType::kFp16, 1)}, {"y", mask}});
      Value* fresh = NewInput("new", With(axis, 1));
      updated = b_.Op(
          "add", {{"x", b_.Op("mul", {{"x", old}, {"y", keep}})}, {"y", b_.Op("mul", {{"x", fresh}, {"y", mask}})}});
    } else if (update == "shift_concat") {
      updated = Shifted(old, axis, rows_);
    } else {
      return false;
    }
    WriteAndRead(updated);
    Value* q = NewInput("q", With(axis, rows_));
    const auto product = [&](Value* x, Value* y, bool transpose) {
      return b_.Op(
          "matmul",
          {{"x", x}, {"y", y}, {"transpose_x", Literal::Bool(false)}, {"transpose_y", Literal::Bool(transpose)}});
    };
    Value* weights = b_.Op("softmax", {{"x", product(q, last_read_, true)}, {"axis", Literal::Int32(-1)}});
    outputs_.push_back(product(weights, last_read_, false));
    return true;
  }

  // The window of a depthwise convolution: [..., channels, taps], the first slot of it.
  bool AddConv(const std::string& update) {
    const size_t axis = shape_.size() - 1;
    const int64_t channels = shape_[axis - 1];
    const int64_t taps = shape_[axis];
    Value* old = b_.ReadState(state_);
    Value* updated = nullptr;
    if (update == "shift_concat") {
      updated = Shifted(old, axis, 1);
    } else if (update == "shift_matmul") {
      std::vector<float> shift(static_cast<size_t>(taps * taps), 0);
      for (int64_t i = 0; i + 1 < taps; ++i) shift[static_cast<size_t>((i + 1) * taps + i)] = 1;
      std::vector<float> last(static_cast<size_t>(taps), 0);
      last.back() = 1;
      Value* moved = b_.Op("matmul", {{"x", old},
                                      {"y", Literal(Halves({taps, taps}, shift))},
                                      {"transpose_x", Literal::Bool(false)},
                                      {"transpose_y", Literal::Bool(false)}});
      Value* fresh = b_.Op("mul", {{"x", NewInput("new", With(axis, 1))}, {"y", Literal(Halves({taps}, last))}});
      updated = b_.Op("add", {{"x", moved}, {"y", fresh}});
    } else if (update == "slice_assign_static_slot") {
      updated = StaticSlot(old, 0, 1);
    } else if (update != "read_only") {
      return false;
    }
    WriteAndRead(updated);
    Shape end = shape_;
    for (size_t i = 0; i + 2 < shape_.size(); ++i) end[i] = 1;
    Value* slot = b_.Op("slice_by_index", {{"x", last_read_},
                                           {"begin", Literal::Int32s(std::vector<int64_t>(shape_.size(), 0))},
                                           {"end", Literal::Int32s(end)}});
    Value* window = b_.Op("reshape", {{"x", slot}, {"shape", Literal::Int32s({1, channels, taps})}});
    const std::vector<float> filter(static_cast<size_t>(channels * taps), 0.5F);
    outputs_.push_back(b_.Op("conv", {{"x", window},
                                      {"weight", Literal(Halves({channels, 1, taps}, filter))},
                                      {"strides", Literal::Int32s({1})},
                                      {"pad_type", Literal::String("valid")},
                                      {"pad", Literal::Int32s({0, 0})},
                                      {"dilations", Literal::Int32s({1})},
                                      {"groups", Literal::Int32(channels)}}));
    return true;
  }

  // s = s * decay + k v^T, y = q s
  bool AddRecurrent() {
    const size_t rank = shape_.size();
    Value* decay = NewInput("decay", With(rank - 1, 1));
    Value* k = NewInput("k", With(rank - 1, 1));
    Value* v = NewInput("v", With(rank - 2, 1));
    Value* kept = b_.Op("mul", {{"x", b_.ReadState(state_)}, {"y", decay}});
    WriteAndRead(b_.Op(
        "add",
        {{"x", kept},
         {"y",
          b_.Op("matmul",
                {{"x", k}, {"y", v}, {"transpose_x", Literal::Bool(false)}, {"transpose_y", Literal::Bool(false)}})}}));
    Shape query = With(rank - 2, 1);
    query[rank - 1] = shape_[rank - 2];
    outputs_.push_back(b_.Op("matmul", {{"x", NewInput("q", query)},
                                        {"y", last_read_},
                                        {"transpose_x", Literal::Bool(false)},
                                        {"transpose_y", Literal::Bool(false)}}));
    return true;
  }

  Function& function_;
  Builder b_;
  int64_t rows_;
  Value* state_ = nullptr;
  Value* last_read_ = nullptr;
  std::string name_;
  Shape shape_;
  std::vector<Value*> outputs_;
};

// A product [1, 64] x [32, 64] with weights of `format`. True also for formats that say nothing ("unknown").
bool FunctionBuilder::AddWeights(const std::string& format) {
  name_ = "hidden";
  const auto palette = [this](int64_t row_groups, int64_t column_groups) {
    Tensor indices = *Tensor::VectorOf(DataType::kUInt4, std::vector<int64_t>(32 * 64, 1)).Reshaped({32, 64});
    const auto entries = static_cast<size_t>(row_groups * column_groups * 16);
    Tensor lut = Halves({row_groups, column_groups, 16, 1}, std::vector<float>(entries, 0.25F));
    return b_.Op("constexpr_lut_to_dense", {{"indices", Literal(indices)}, {"lut", Literal(lut)}});
  };
  const auto scaled = [this](const Binding& data, Shape scale) {
    Tensor scales = Halves(scale, std::vector<float>(static_cast<size_t>(scale[0] * scale[1]), 0.5F));
    return b_.Op("constexpr_blockwise_shift_scale", {data, {"scale", Literal(scales)}});
  };
  const auto integers = [&scaled](DataType dtype, Shape scale) {
    Tensor data = *Tensor::VectorOf(dtype, std::vector<int64_t>(32 * 64, 1)).Reshaped({32, 64});
    return scaled({"data", Literal(data)}, std::move(scale));
  };
  Value* weight = nullptr;
  if (format == "fp16") {
    weight = b_.Const(Literal(Halves({32, 64}, std::vector<float>(32 * 64, 0.5F))));
  } else if (format == "int4_per_block") {
    weight = integers(DataType::kInt4, {32, 2});
  } else if (format == "int4_per_channel") {
    weight = integers(DataType::kInt4, {32, 1});
  } else if (format == "int8_per_channel") {
    weight = integers(DataType::kInt8, {32, 1});
  } else if (format == "lut_per_row_block") {
    weight = palette(4, 2);
  } else if (format == "lut_plus_blockwise_scale") {
    weight = scaled({"data", palette(1, 1)}, {32, 2});
  } else if (format == "lut4_per_channel_scale") {
    weight = scaled({"data", palette(4, 1)}, {32, 1});
  } else if (format.ends_with("_per_grouped_channel")) {
    weight = palette(4, 1);
  } else if (format.ends_with("_per_tensor")) {
    weight = palette(1, 1);
  }
  if (weight == nullptr) return true;
  outputs_.push_back(b_.Op("linear", {{"x", NewInput("x", {1, 64})}, {"weight", weight}}));
  return outputs_.back() != nullptr;
}

}  // namespace

std::optional<ModelSpec> Rebuild(const ProgramFeatures& features) {
  if (features.states.empty() || features.Has("state_count_unknown") || features.flexible_inputs != "none") {
    return std::nullopt;
  }
  ModelSpec spec;
  for (size_t i = 0; i < features.functions.size(); ++i) {
    Function* function = spec.program.AddFunction(fmt::format("function_{}", i), Opset::kIOS18);
    FunctionBuilder builder(*function, features.functions[i].query_length.value_or(1));
    for (const StateFeatures& state : features.states) {
      if (!builder.AddState(state)) return std::nullopt;
    }
    if (features.Has("state_slice_is_output")) builder.ExposeSlice();
    if (!builder.AddWeights(features.weight_format)) return std::nullopt;
    const Status status = builder.Finish();
    EXPECT_TRUE(status.ok()) << status.message();
    if (!status.ok()) return std::nullopt;
    spec.description.functions.push_back(DescribeFunction(*function));
  }
  return spec;
}

}  // namespace milwright::testing
