// ModelSpec: a program with the description that hosts read: features, states, functions, metadata.
#ifndef MILWRIGHT_MIL_MODEL_H_
#define MILWRIGHT_MIL_MODEL_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mil/program.h"

namespace milwright {

/// A multi-array feature (ArrayFeatureType): default shape, and how it may vary.
struct ArrayFeature {
  DataType dtype = DataType::kInvalid;  ///< fp16, fp32, fp64 (DOUBLE), int8 or int32
  Shape shape;                          ///< empty: not stated
  std::vector<Shape> enumerated_shapes;
  struct Range {
    uint64_t lower = 0;
    int64_t upper = -1;  ///< -1: no limit
    bool operator==(const Range&) const = default;
  };
  std::vector<Range> shape_range;  ///< one per dimension; empty: not a range
  std::optional<double> default_value;
  DataType default_value_type = DataType::kInvalid;  ///< int32, fp32 or fp64: which field carries the default

  [[nodiscard]] bool IsFlexible() const { return !enumerated_shapes.empty() || !shape_range.empty(); }
  bool operator==(const ArrayFeature&) const = default;
};

/// An image feature (ImageFeatureType); milwright feeds it as a [1, channels, height, width] fp32 array.
struct ImageFeature {
  int64_t width = 0;
  int64_t height = 0;
  int32_t color_space = 0;                                      ///< 10 grayscale, 20 RGB, 30 BGR, 40 grayscale fp16
  std::vector<std::pair<uint64_t, uint64_t>> enumerated_sizes;  ///< width, height
  std::optional<std::pair<ArrayFeature::Range, ArrayFeature::Range>> size_range;  ///< width, height

  bool operator==(const ImageFeature&) const = default;
};

struct FeatureType {
  enum class Kind : uint8_t { kMultiArray, kState, kImage, kInt64, kDouble, kString, kDictionary, kSequence, kUnset };
  Kind kind = Kind::kUnset;
  bool optional = false;
  ArrayFeature array;          ///< kMultiArray, kState
  ImageFeature image;          ///< kImage
  bool key_is_string = false;  ///< kDictionary, kSequence: string rather than int64 elements
  std::string unknown_fields;

  bool operator==(const FeatureType&) const = default;
};

struct FeatureDescription {
  std::string name;
  std::string short_description;
  FeatureType type;
  std::string unknown_fields;

  bool operator==(const FeatureDescription&) const = default;
};

/// Inputs, outputs and states of one function as hosts see them.
struct FunctionDescription {
  std::string name;
  std::vector<FeatureDescription> inputs;
  std::vector<FeatureDescription> outputs;
  std::vector<FeatureDescription> states;
  std::string predicted_feature_name;
  std::string predicted_probabilities_name;
  std::string unknown_fields;

  bool operator==(const FunctionDescription&) const = default;
};

struct Metadata {
  std::string short_description;
  std::string version;
  std::string author;
  std::string license;
  std::map<std::string, std::string> user_defined;
  std::string unknown_fields;

  bool operator==(const Metadata&) const = default;
};

struct ModelDescription {
  /// Exactly one, named "main", when `multi_function` is false: the file then has top-level input, output and state.
  std::vector<FunctionDescription> functions;
  bool multi_function = false;
  std::string default_function;  ///< multi-function models only
  Metadata metadata;
  std::vector<FeatureDescription> training_inputs;
  std::string unknown_fields;

  [[nodiscard]] const FunctionDescription* Find(std::string_view function) const;
  FunctionDescription* Find(std::string_view function);
  bool operator==(const ModelDescription&) const = default;
};

/// Everything a package says (Apple calls it the model specification). Weight bytes are borrowed from the mapped file,
/// which the tensors keep alive.
struct ModelSpec {
  int32_t specification_version = 9;
  bool is_updatable = false;
  ModelDescription description;
  Program program;
  std::string unknown_fields;
  std::string source;  ///< the path it was read from, for messages; not part of equality

  [[nodiscard]] ModelSpec Clone() const;
  /// The function to run when none is named: the default function, else "main", else the only one; null if unclear.
  [[nodiscard]] Function* DefaultFunction() const;
};

/// Equality of everything but `source`.
bool ModelsEqual(const ModelSpec& a, const ModelSpec& b, std::string* why = nullptr);

/// Builds the description entry of `function` from its inputs, outputs and states (array features, no flexibility).
FunctionDescription DescribeFunction(const Function& function);

}  // namespace milwright

#endif  // MILWRIGHT_MIL_MODEL_H_
