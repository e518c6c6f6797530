// Constants, control flow, lists and states. The interpreter runs const, cond, while_loop and the state ops itself; the
// list ops are pure functions of list values.
#include <fmt/format.h>

#include <algorithm>

#include "ops/op.h"

namespace milwright {
namespace {

Result<std::vector<Type>> InferDeclared(const OpContext& ctx) {
  std::vector<Type> types;
  for (const Type* type : ctx.declared()) types.push_back(*type);
  return types;
}

// The type of a const is that of its "val", which the verifier of the reader has checked against the declaration.
Result<std::vector<Type>> InferConst(const OpContext& ctx) { return InferDeclared(ctx); }

Result<std::vector<Type>> InferReadState(const OpContext& ctx) { return std::vector<Type>{ctx.TypeOf("input").tensor}; }

Result<std::vector<Type>> CheckWritten(const OpContext& ctx, std::string_view state, std::string_view data) {
  const TensorType& wrapped = ctx.TypeOf(state).tensor;
  const TensorType& written = ctx.TypeOf(data).tensor;
  if (!(wrapped == written)) {
    return ctx.Error(
        fmt::format("the state holds {}, but the written value is {}", TypeToString(wrapped), TypeToString(written)));
  }
  return std::vector<Type>{};
}

Result<std::vector<Type>> InferWriteState(const OpContext& ctx) { return CheckWritten(ctx, "input", "data"); }

// coremltools' in-memory form of write_state followed by read_state; files hold the pair, but texts may hold this.
Result<std::vector<Type>> InferUpdateState(const OpContext& ctx) {
  MW_RETURN_IF_ERROR(CheckWritten(ctx, "state", "value"));
  return std::vector<Type>{ctx.TypeOf("state").tensor};
}

Result<std::vector<Type>> InferLoop(const OpContext& ctx) {
  std::vector<Type> types;
  for (const OpContext::Argument& argument : ctx.Arguments("loop_vars")) types.push_back(*argument.type);
  // A variable may change shape from turn to turn: then its declared type has unknown sizes.
  for (size_t i = 0; i < types.size() && i < ctx.declared().size(); ++i) types[i] = *ctx.declared()[i];
  return types;
}

// ---- lists: values with `elements`, all of the list's element type ----

Result<std::vector<Type>> InferMakeList(const OpContext& ctx) {
  const auto dtype = DataTypeParameter(ctx, "dtype");
  if (!dtype.ok()) return dtype.status();
  Shape shape;
  for (const OpContext::Argument& size : ctx.Arguments("elem_shape")) {
    const bool known = size.value != nullptr && size.value->type.dtype() != DataType::kString;
    if (size.type->rank() == 1 && known) {
      for (int64_t value : size.value->tensor.ToInts()) shape.push_back(value);
    } else {
      shape.push_back(known ? size.value->tensor.GetInt(0) : kUnknownDim);
    }
  }
  const bool fixed = ctx.Known("init_length") && !ctx.Bool("dynamic_length", true);
  // A dynamic list is declared with its initial length, which its ops may outgrow (op-semantics.md, section 3).
  const int64_t length = fixed || ctx.Known("init_length") ? ctx.Int("init_length", 1) : kUnknownDim;
  return std::vector<Type>{Type::List(Type::Tensor(*dtype, std::move(shape)), length)};
}

// An element that was never written: zeros, or only a type while a size of its shape is not known.
Result<Literal> ZeroElement(const Type& type) {
  Literal element;
  element.type = type;
  if (IsStatic(type.shape())) {
    MW_ASSIGN_OR_RETURN(element.tensor, Tensor::Zeros(type.tensor));
  }
  return element;
}

Result<std::vector<Literal>> EvaluateMakeList(const OpContext& ctx, const std::vector<Type>& types) {
  constexpr int64_t kMaxLength = 1 << 24;
  const int64_t length = ctx.Int("init_length", 1);
  if (length < 0 || length > kMaxLength) return ctx.Error(fmt::format("a list of {} elements cannot be made", length));
  Literal list;
  list.type = types.front();
  list.type.length = length;
  MW_ASSIGN_OR_RETURN(const Literal zero, ZeroElement(list.type.elements.front()));
  list.elements.assign(static_cast<size_t>(length), zero);
  return std::vector<Literal>{std::move(list)};
}

const Type& ElementType(const OpContext& ctx) { return ctx.TypeOf("ls").elements.front(); }

Result<std::vector<Type>> InferListRead(const OpContext& ctx) { return std::vector<Type>{ElementType(ctx)}; }

Result<std::vector<Type>> InferListGather(const OpContext& ctx) {
  const Type& element = ElementType(ctx);
  Shape shape = element.shape();
  const Shape& indices = ctx.ShapeOf("indices");
  shape.insert(shape.begin(), indices.empty() ? 1 : indices.front());
  return std::vector<Type>{Type::Tensor(element.dtype(), std::move(shape))};
}

Result<std::vector<Type>> InferListSame(const OpContext& ctx) { return std::vector<Type>{ctx.TypeOf("ls")}; }

Result<std::vector<Type>> InferListLength(const OpContext&) {
  return std::vector<Type>{Type::Scalar(DataType::kInt32)};
}

Result<size_t> ElementIndex(const OpContext& ctx, const Literal& list, int64_t index) {
  if (index < 0 || index >= static_cast<int64_t>(list.elements.size())) {
    return Status(ErrorCode::kRuntime, fmt::format("{}: index {} is outside a list of {} elements",
                                                   ctx.definition().name, index, list.elements.size()));
  }
  if (!IsStatic(list.elements[static_cast<size_t>(index)].type.shape())) {
    return Status(ErrorCode::kRuntime, fmt::format("{}: element {} was never written, and its shape is not known",
                                                   ctx.definition().name, index));
  }
  return static_cast<size_t>(index);
}

Result<std::vector<Literal>> EvaluateListRead(const OpContext& ctx, const std::vector<Type>&) {
  const Literal& list = *ctx.ValueOf("ls");
  MW_ASSIGN_OR_RETURN(const size_t index, ElementIndex(ctx, list, ctx.Int("index")));
  return std::vector<Literal>{list.elements[index]};
}

Result<std::vector<Literal>> EvaluateListGather(const OpContext& ctx, const std::vector<Type>& types) {
  const Literal& list = *ctx.ValueOf("ls");
  TensorType type = types.front().tensor;
  std::vector<std::byte> bytes;
  const std::vector<int64_t> indices = ctx.Ints("indices");
  type.shape.front() = static_cast<int64_t>(indices.size());
  for (int64_t i : indices) {
    MW_ASSIGN_OR_RETURN(const size_t index, ElementIndex(ctx, list, i));
    const Tensor& element = list.elements[index].tensor;
    // The declared element shape may leave sizes open; the elements themselves settle them.
    for (size_t axis = 1; axis < type.shape.size(); ++axis) {
      if (type.shape[axis] == kUnknownDim) type.shape[axis] = element.shape()[axis - 1];
    }
    if (!std::equal(type.shape.begin() + 1, type.shape.end(), element.shape().begin(), element.shape().end())) {
      return ctx.Error(fmt::format("element {} has shape {}, which does not stack to {}", index,
                                   ShapeToString(element.shape()), ShapeToString(type.shape)));
    }
    bytes.insert(bytes.end(), element.bytes().begin(), element.bytes().end());
  }
  return One(Tensor::FromBytes(type, std::move(bytes)));
}

Result<std::vector<Literal>> EvaluateListLength(const OpContext& ctx, const std::vector<Type>&) {
  return std::vector<Literal>{Literal::Int32(static_cast<int64_t>(ctx.ValueOf("ls")->elements.size()))};
}

// Stores one element, growing a dynamic list to index + 1 (Apple's own unit test does so).
Status StoreElement(const OpContext& ctx, Literal& list, int64_t index, Literal element) {
  constexpr int64_t kMaxLength = 1 << 24;
  if (index < 0 || index >= kMaxLength) {
    return {ErrorCode::kRuntime, fmt::format("{}: index {} cannot be written", ctx.definition().name, index)};
  }
  if (index >= static_cast<int64_t>(list.elements.size())) {
    MW_ASSIGN_OR_RETURN(const Literal zero, ZeroElement(element.type));
    list.elements.resize(static_cast<size_t>(index) + 1, zero);
    list.type.length = index + 1;
  }
  list.elements[static_cast<size_t>(index)] = std::move(element);
  return Status::Ok();
}

Result<std::vector<Literal>> EvaluateListWrite(const OpContext& ctx, const std::vector<Type>&) {
  Literal list = *ctx.ValueOf("ls");
  MW_RETURN_IF_ERROR(StoreElement(ctx, list, ctx.Int("index"), *ctx.ValueOf("value")));
  return std::vector<Literal>{std::move(list)};
}

Result<std::vector<Literal>> EvaluateListScatter(const OpContext& ctx, const std::vector<Type>&) {
  Literal list = *ctx.ValueOf("ls");
  const Tensor& value = *ctx.TensorOf("value");
  const std::vector<int64_t> indices = ctx.Ints("indices");
  if (value.rank() < 1 || value.shape().front() != static_cast<int64_t>(indices.size())) {
    return ctx.Error(fmt::format("{} indices for a value of shape {}", indices.size(), ShapeToString(value.shape())));
  }
  const TensorType element{value.dtype(), Shape(value.shape().begin() + 1, value.shape().end())};
  MW_ASSIGN_OR_RETURN(const int64_t size, ByteSize(element));
  for (size_t k = 0; k < indices.size(); ++k) {
    const auto bytes = value.bytes().subspan(k * static_cast<size_t>(size), static_cast<size_t>(size));
    MW_ASSIGN_OR_RETURN(Tensor slice, Tensor::FromBytes(element, {bytes.begin(), bytes.end()}));
    MW_RETURN_IF_ERROR(StoreElement(ctx, list, indices[k], Literal(std::move(slice))));
  }
  return std::vector<Literal>{std::move(list)};
}

}  // namespace

std::vector<OpDefinition> ControlFlowOps() {
  constexpr std::string_view kUpdateTypes = "T=fp16|fp32|int8|int16|int32|uint8|uint16|bool";
  return {
      Op(Opset::kIOS15, "const()", InferConst, nullptr),
      Op(Opset::kIOS15, "cond(bool pred)", InferDeclared, nullptr, Effect::kNone, 2),
      Op(Opset::kIOS15, "while_loop(any... loop_vars)", InferLoop, nullptr, Effect::kNone, 2),
      Op(Opset::kIOS15,
         "make_list(int32 init_length=1, const bool dynamic_length=true, any... elem_shape, const string "
         "dtype=\"fp32\")",
         InferMakeList, EvaluateMakeList),
      Op(Opset::kIOS15, "list_gather(list ls, int32 indices)", InferListGather, EvaluateListGather),
      Op(Opset::kIOS15, "list_length(list ls)", InferListLength, EvaluateListLength),
      Op(Opset::kIOS15, "list_read(list ls, int32 index)", InferListRead, EvaluateListRead),
      Op(Opset::kIOS15, "list_scatter(list ls, int32 indices, T value) where T=fp16|fp32|bool|int32", InferListSame,
         EvaluateListScatter),
      Op(Opset::kIOS15, "list_write(list ls, int32 index, T value) where T=fp16|fp32|bool|int32", InferListSame,
         EvaluateListWrite),
      Op(Opset::kIOS18, "read_state(state input)", InferReadState, nullptr, Effect::kReadsState),
      Op(Opset::kIOS18, fmt::format("write_state(state input, T data) where {}", kUpdateTypes), InferWriteState,
         nullptr, Effect::kWritesState),
      Op(Opset::kIOS18, fmt::format("coreml_update_state(state state, T value) where {}", kUpdateTypes),
         InferUpdateState, nullptr, Effect::kWritesState),
  };
}

}  // namespace milwright
