// The op registry: one entry per op version, from which verifier, builder, printer, interpreter and docs all read.
//
// Adding an op: add one OpDefinition to the family file it belongs to (src/ops/<family>.cc): a schema line, a type
// inference function and a reference kernel. Nothing else has to know about it.
#ifndef MILWRIGHT_OPS_OP_H_
#define MILWRIGHT_OPS_OP_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mil/literal.h"
#include "mil/program.h"
#include "milwright/status.h"
#include "milwright/tensor.h"

namespace milwright {

class OpContext;

/// Types of the outputs, from the types and the known contents of the inputs.
using InferFunction = Result<std::vector<Type>> (*)(const OpContext&);
/// The reference kernel: values of the outputs. `types` is what inference gave for these inputs; a kernel whose shape
/// depends on data (non_zero) may refine it. Every result is rounded to its declared type; sums are in fp32.
using EvaluateFunction = Result<std::vector<Literal>> (*)(const OpContext&, const std::vector<Type>& types);

/// What an op does besides computing its outputs.
enum class Effect : uint8_t { kNone, kReadsState, kWritesState, kRandom };

/// A set of data types as a bit mask over DataType numbers.
struct TypeSet {
  uint64_t bits = 0;
  [[nodiscard]] bool Contains(DataType type) const { return (bits >> static_cast<unsigned>(type) & 1U) != 0; }
};

struct ParameterSpec {
  enum class Kind : uint8_t { kTensor, kVariadic, kList, kState, kAny };
  std::string name;
  Kind kind = Kind::kTensor;
  std::string domain;  ///< "T": a type variable of the op, equal for all parameters that name it; or "" for fixed types
  TypeSet types;
  bool optional = false;
  bool constant = false;                 ///< must be known without running
  bool attribute = false;                ///< stands in the attributes, not the inputs (constexpr ops before iOS18)
  std::optional<Literal> default_value;  ///< what an absent optional parameter means; nullopt: the kernel decides
};

struct OpDefinition {
  std::string name;
  Opset since = Opset::kIOS15;
  std::vector<ParameterSpec> parameters;
  InferFunction infer = nullptr;
  EvaluateFunction evaluate = nullptr;  ///< null for ops that the interpreter itself runs (states, control flow, const)
  Effect effect = Effect::kNone;
  int blocks = 0;  ///< nested blocks it must have (cond, while_loop: 2)

  [[nodiscard]] const ParameterSpec* Find(std::string_view parameter) const;
};

/// Makes a definition from a schema line, e.g.
///   "gather(T x, I indices, const int32 axis=0, const int32 batch_dims=0) where T=fp16|fp32|int32, I=int32|int16"
/// Grammar of a parameter: [const] [attr] TYPES[...] NAME[? | =DEFAULT], where TYPES is a type variable declared after
/// `where`, data types joined by `|`, `list`, `state` or `any` (any number of arguments of any type); `...` marks a
/// variadic parameter; `?` an optional one without a stated default; DEFAULT is a number, true, false, "text", or a
/// list [1, 2]. A default takes the data type of the parameter, or that of `x` when it ranges over several float types.
/// Aborts at start-up on a malformed line: the lines are part of the program.
OpDefinition Op(Opset since, std::string_view schema, InferFunction infer, EvaluateFunction evaluate,
                Effect effect = Effect::kNone, int blocks = 0);

/// All definitions, newest version of an op first.
class OpRegistry {
 public:
  /// The table of every family; built once, immutable.
  static const OpRegistry& Get();

  /// The definition of `op` in force in `opset`: the newest version not newer than it. Null: not in that opset.
  [[nodiscard]] const OpDefinition* Find(std::string_view op, Opset opset) const;
  /// Whether any opset knows the op, and since when.
  [[nodiscard]] std::optional<Opset> FirstOpset(std::string_view op) const;
  [[nodiscard]] std::vector<std::string_view> Names() const;
  /// All versions of one op, newest first.
  [[nodiscard]] std::span<const OpDefinition> Versions(std::string_view op) const;

 private:
  OpRegistry();
  std::map<std::string, std::vector<OpDefinition>, std::less<>> by_name_;
};

/// What inference and kernels see of an operation: input types, and contents where known. It does not depend on the IR,
/// so the interpreter (all contents known), the verifier (constants known) and tests use the same functions.
class OpContext {
 public:
  /// One argument: its type, and its content when known.
  struct Argument {
    const Type* type = nullptr;
    const Literal* value = nullptr;
  };

  OpContext(const OpDefinition& definition, Opset opset) : definition_(&definition), opset_(opset) {}
  void Bind(std::string_view parameter, std::vector<Argument> arguments);
  /// The output types as declared by the program; used by ops whose type is not a function of the inputs.
  void BindDeclared(std::vector<const Type*> types) { declared_ = std::move(types); }

  [[nodiscard]] const OpDefinition& definition() const { return *definition_; }
  [[nodiscard]] Opset opset() const { return opset_; }
  [[nodiscard]] const std::vector<const Type*>& declared() const { return declared_; }

  [[nodiscard]] bool Has(std::string_view parameter) const { return Find(parameter) != nullptr; }
  /// Arguments of a variadic parameter (or the one argument); empty when absent.
  [[nodiscard]] std::span<const Argument> Arguments(std::string_view parameter) const;
  /// Type of a parameter that must be present (the verifier has checked that).
  [[nodiscard]] const Type& TypeOf(std::string_view parameter) const;
  [[nodiscard]] DataType DTypeOf(std::string_view parameter) const { return TypeOf(parameter).dtype(); }
  [[nodiscard]] const Shape& ShapeOf(std::string_view parameter) const { return TypeOf(parameter).shape(); }
  /// Content: the bound value, else the schema's default, else null.
  [[nodiscard]] const Literal* ValueOf(std::string_view parameter) const;
  /// Content as a tensor; null when unknown or not a tensor.
  [[nodiscard]] const Tensor* TensorOf(std::string_view parameter) const;

  // Contents of scalar and vector parameters with their defaults applied; `fallback` when absent without a default.
  [[nodiscard]] bool Known(std::string_view parameter) const { return ValueOf(parameter) != nullptr; }
  [[nodiscard]] int64_t Int(std::string_view parameter, int64_t fallback = 0) const;
  [[nodiscard]] double Double(std::string_view parameter, double fallback = 0) const;
  [[nodiscard]] bool Bool(std::string_view parameter, bool fallback = false) const;
  [[nodiscard]] std::string String(std::string_view parameter, std::string_view fallback = {}) const;
  [[nodiscard]] std::vector<int64_t> Ints(std::string_view parameter, std::vector<int64_t> fallback = {}) const;

  /// An error about this op, to return from inference or a kernel.
  [[nodiscard]] Status Error(std::string message) const;

 private:
  struct Bound {
    std::string_view parameter;
    std::vector<Argument> arguments;
  };
  [[nodiscard]] const Bound* Find(std::string_view parameter) const;
  const OpDefinition* definition_;
  Opset opset_;
  std::vector<Bound> bound_;
  std::vector<const Type*> declared_;
};

// ---- helpers shared by the family files ----

/// NumPy broadcasting; an unknown size meets 1 or the same unknown as unknown, and n > 1 as n.
Result<Shape> BroadcastShapes(const Shape& a, const Shape& b);
/// Whether two sizes are known and not the same.
inline bool KnownToDiffer(int64_t a, int64_t b) { return a != kUnknownDim && b != kUnknownDim && a != b; }
/// `axis` counted from the end when negative; an error when outside [-rank, rank).
Result<int64_t> NormalizeAxis(int64_t axis, int64_t rank);
/// Data type by MIL name in a parameter such as cast's `dtype`; fp16 where it says "fp16".
Result<DataType> DataTypeParameter(const OpContext& ctx, std::string_view parameter);
/// The floats of an optional parameter; empty when absent.
std::vector<float> FloatsOf(const OpContext& ctx, std::string_view parameter);
/// One output equal in type to parameter `x`.
Result<std::vector<Type>> InferSameAsX(const OpContext& ctx);
/// Row-major strides of a static shape.
std::vector<int64_t> Strides(const Shape& shape);
/// Wraps one tensor as the result list of a kernel.
Result<std::vector<Literal>> One(Result<Tensor> tensor);

/// The entries of each family; OpRegistry::Get collects them.
std::vector<OpDefinition>
ElementwiseOps();  // elementwise.cc: unary and binary arithmetic, comparison, logic, cast, select
std::vector<OpDefinition> ActivationOps();  // activation.cc
std::vector<OpDefinition> ReductionOps();   // reduction.cc
std::vector<OpDefinition> SortOps();        // sort.cc: argsort, topk, non_maximum_suppression
std::vector<OpDefinition>
CreationOps();  // creation.cc: fill, one_hot, range_1d, random_*, non_zero, band_part, shape, classify
std::vector<OpDefinition> ShapeOps();     // shape.cc: reshape, transpose, expand_dims, squeeze, reverse, ...
std::vector<OpDefinition> AssemblyOps();  // assembly.cc: concat, stack, split, tile, pad
std::vector<OpDefinition> SpaceOps();     // space.cc: depth_to_space, pixel_shuffle, space_to_batch and inverses
std::vector<OpDefinition> SliceOps();   // slice.cc: slice_by_index, slice_by_size, slice_update, crop, sliding_windows
std::vector<OpDefinition> GatherOps();  // gather.cc: gather*, scatter*
std::vector<OpDefinition> LinearOps();  // linear.cc: linear, matmul, einsum, scaled_dot_product_attention
std::vector<OpDefinition> ConvolutionOps();    // convolution.cc
std::vector<OpDefinition> PoolOps();           // pool.cc
std::vector<OpDefinition> NormalizationOps();  // normalization.cc
std::vector<OpDefinition> ResizeOps();         // resize.cc: resize*, upsample*
std::vector<OpDefinition> ResampleOps();       // resample.cc: crop_resize, affine, resample
std::vector<OpDefinition> QuantizeOps();       // quantize.cc: quantize, dequantize
std::vector<OpDefinition> ConstexprOps();      // constexpr.cc: compressed weights
std::vector<OpDefinition> RecurrentOps();      // recurrent.cc
std::vector<OpDefinition> ControlFlowOps();    // control_flow.cc: const, cond, while_loop, lists, identity, states

}  // namespace milwright

#endif  // MILWRIGHT_OPS_OP_H_
