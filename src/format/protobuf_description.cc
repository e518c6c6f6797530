#include "format/protobuf_description.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/errors.h"
#include "format/protobuf_wire.h"

namespace milwright {
namespace {

namespace pb = CoreML::Specification;
using Features = google::protobuf::RepeatedPtrField<pb::FeatureDescription>;

// Array data types of features, and the same in MIL.
constexpr std::pair<pb::ArrayFeatureType::ArrayDataType, DataType> kArrayTypes[] = {
    {pb::ArrayFeatureType::INVALID_ARRAY_DATA_TYPE, DataType::kInvalid},
    {pb::ArrayFeatureType::FLOAT16, DataType::kFp16},
    {pb::ArrayFeatureType::FLOAT32, DataType::kFp32},
    {pb::ArrayFeatureType::DOUBLE, DataType::kFp64},
    {pb::ArrayFeatureType::INT8, DataType::kInt8},
    {pb::ArrayFeatureType::INT32, DataType::kInt32},
};

Result<Shape> ReadShape(const google::protobuf::RepeatedField<int64_t>& sizes) {
  Shape shape(sizes.begin(), sizes.end());
  if (std::ranges::any_of(shape, [](int64_t size) { return size < 0; })) {
    return Invalid(fmt::format("a shape with a negative size: {}", ShapeToString(shape)));
  }
  return shape;
}

ArrayFeature::Range ReadRange(const pb::SizeRange& proto) { return {proto.lowerbound(), proto.upperbound()}; }

void WriteRange(const ArrayFeature::Range& range, pb::SizeRange* proto) {
  proto->set_lowerbound(range.lower);
  proto->set_upperbound(range.upper);
}

Result<ArrayFeature> ReadArray(const pb::ArrayFeatureType& proto) {
  ArrayFeature array;
  const auto* const type =
      std::ranges::find(kArrayTypes, proto.datatype(), [](const auto& pair) { return pair.first; });
  if (type == std::end(kArrayTypes)) {
    return Invalid(fmt::format("unknown array data type {}", static_cast<int>(proto.datatype())));
  }
  array.dtype = type->second;
  MW_ASSIGN_OR_RETURN(array.shape, ReadShape(proto.shape()));
  for (const auto& shape : proto.enumeratedshapes().shapes()) {
    MW_ASSIGN_OR_RETURN(Shape sizes, ReadShape(shape.shape()));
    array.enumerated_shapes.push_back(std::move(sizes));
  }
  for (const pb::SizeRange& range : proto.shaperange().sizeranges()) array.shape_range.push_back(ReadRange(range));
  switch (proto.defaultOptionalValue_case()) {
    case pb::ArrayFeatureType::kIntDefaultValue:
      array.default_value = proto.intdefaultvalue();
      array.default_value_type = DataType::kInt32;
      break;
    case pb::ArrayFeatureType::kFloatDefaultValue:
      array.default_value = proto.floatdefaultvalue();
      array.default_value_type = DataType::kFp32;
      break;
    case pb::ArrayFeatureType::kDoubleDefaultValue:
      array.default_value = proto.doubledefaultvalue();
      array.default_value_type = DataType::kFp64;
      break;
    case pb::ArrayFeatureType::DEFAULTOPTIONALVALUE_NOT_SET:
      break;
  }
  return array;
}

void WriteArray(const ArrayFeature& array, pb::ArrayFeatureType* proto) {
  proto->mutable_shape()->Add(array.shape.begin(), array.shape.end());
  const auto* const type = std::ranges::find(kArrayTypes, array.dtype, [](const auto& pair) { return pair.second; });
  if (type != std::end(kArrayTypes)) proto->set_datatype(type->first);
  for (const Shape& shape : array.enumerated_shapes) {
    proto->mutable_enumeratedshapes()->add_shapes()->mutable_shape()->Add(shape.begin(), shape.end());
  }
  for (const ArrayFeature::Range& range : array.shape_range) {
    WriteRange(range, proto->mutable_shaperange()->add_sizeranges());
  }
  if (!array.default_value) return;
  switch (array.default_value_type) {
    case DataType::kInt32:
      proto->set_intdefaultvalue(static_cast<int32_t>(*array.default_value));
      break;
    case DataType::kFp32:
      proto->set_floatdefaultvalue(static_cast<float>(*array.default_value));
      break;
    default:
      proto->set_doubledefaultvalue(*array.default_value);
  }
}

ImageFeature ReadImage(const pb::ImageFeatureType& proto) {
  ImageFeature image;
  image.width = proto.width();
  image.height = proto.height();
  image.color_space = proto.colorspace();
  for (const auto& size : proto.enumeratedsizes().sizes()) {
    image.enumerated_sizes.emplace_back(size.width(), size.height());
  }
  if (proto.has_imagesizerange()) {
    image.size_range = {ReadRange(proto.imagesizerange().widthrange()),
                        ReadRange(proto.imagesizerange().heightrange())};
  }
  return image;
}

void WriteImage(const ImageFeature& image, pb::ImageFeatureType* proto) {
  proto->set_width(image.width);
  proto->set_height(image.height);
  proto->set_colorspace(static_cast<pb::ImageFeatureType::ColorSpace>(image.color_space));
  for (const auto& [width, height] : image.enumerated_sizes) {
    auto* size = proto->mutable_enumeratedsizes()->add_sizes();
    size->set_width(width);
    size->set_height(height);
  }
  if (image.size_range) {
    WriteRange(image.size_range->first, proto->mutable_imagesizerange()->mutable_widthrange());
    WriteRange(image.size_range->second, proto->mutable_imagesizerange()->mutable_heightrange());
  }
}

// What the IR has no field for, below `proto`: unknown fields at any depth, and the length limits of a sequence.
std::string LeftoverOf(const pb::FeatureType& proto) {
  pb::FeatureType leftover = proto;
  KeepUnknownFieldsOnly(&leftover);
  if (proto.sequencetype().has_sizerange()) {
    *leftover.mutable_sequencetype()->mutable_sizerange() = proto.sequencetype().sizerange();
  }
  return leftover.SerializeAsString();
}

Result<FeatureType> ReadFeatureType(const pb::FeatureType& proto) {
  FeatureType type;
  type.optional = proto.isoptional();
  type.unknown_fields = LeftoverOf(proto);
  switch (proto.Type_case()) {
    case pb::FeatureType::kMultiArrayType: {
      type.kind = FeatureType::Kind::kMultiArray;
      MW_ASSIGN_OR_RETURN(type.array, ReadArray(proto.multiarraytype()));
      break;
    }
    case pb::FeatureType::kStateType: {
      type.kind = FeatureType::Kind::kState;
      MW_ASSIGN_OR_RETURN(type.array, ReadArray(proto.statetype().arraytype()));
      break;
    }
    case pb::FeatureType::kImageType:
      type.kind = FeatureType::Kind::kImage;
      type.image = ReadImage(proto.imagetype());
      break;
    case pb::FeatureType::kInt64Type:
      type.kind = FeatureType::Kind::kInt64;
      break;
    case pb::FeatureType::kDoubleType:
      type.kind = FeatureType::Kind::kDouble;
      break;
    case pb::FeatureType::kStringType:
      type.kind = FeatureType::Kind::kString;
      break;
    case pb::FeatureType::kDictionaryType:
      type.kind = FeatureType::Kind::kDictionary;
      type.key_is_string = proto.dictionarytype().has_stringkeytype();
      break;
    case pb::FeatureType::kSequenceType:
      type.kind = FeatureType::Kind::kSequence;
      type.key_is_string = proto.sequencetype().has_stringtype();
      break;
    case pb::FeatureType::TYPE_NOT_SET:
      break;
  }
  return type;
}

void WriteFeatureType(const FeatureType& type, pb::FeatureType* proto) {
  switch (type.kind) {
    case FeatureType::Kind::kMultiArray:
      WriteArray(type.array, proto->mutable_multiarraytype());
      break;
    case FeatureType::Kind::kState:
      WriteArray(type.array, proto->mutable_statetype()->mutable_arraytype());
      break;
    case FeatureType::Kind::kImage:
      WriteImage(type.image, proto->mutable_imagetype());
      break;
    case FeatureType::Kind::kInt64:
      proto->mutable_int64type();
      break;
    case FeatureType::Kind::kDouble:
      proto->mutable_doubletype();
      break;
    case FeatureType::Kind::kString:
      proto->mutable_stringtype();
      break;
    case FeatureType::Kind::kDictionary:
      if (type.key_is_string) {
        proto->mutable_dictionarytype()->mutable_stringkeytype();
      } else {
        proto->mutable_dictionarytype()->mutable_int64keytype();
      }
      break;
    case FeatureType::Kind::kSequence:
      if (type.key_is_string) {
        proto->mutable_sequencetype()->mutable_stringtype();
      } else {
        proto->mutable_sequencetype()->mutable_int64type();
      }
      break;
    case FeatureType::Kind::kUnset:
      break;
  }
  proto->set_isoptional(type.optional);
  if (!type.unknown_fields.empty()) proto->MergeFromString(type.unknown_fields);
}

Result<std::vector<FeatureDescription>> ReadFeatures(const Features& protos, std::string_view what) {
  std::vector<FeatureDescription> features;
  for (const pb::FeatureDescription& proto : protos) {
    FeatureDescription feature;
    feature.name = proto.name();
    feature.short_description = proto.shortdescription();
    feature.unknown_fields = UnknownFieldsOf(proto);
    Result<FeatureType> type = ReadFeatureType(proto.type());
    if (!type.ok()) return type.status().WithContext(fmt::format("description of {} '{}'", what, proto.name()));
    feature.type = *std::move(type);
    features.push_back(std::move(feature));
  }
  return features;
}

void WriteFeatures(const std::vector<FeatureDescription>& features, Features* protos) {
  for (const FeatureDescription& feature : features) {
    pb::FeatureDescription* proto = protos->Add();
    proto->set_name(feature.name);
    proto->set_shortdescription(feature.short_description);
    WriteFeatureType(feature.type, proto->mutable_type());
    SetUnknownFields(feature.unknown_fields, proto);
  }
}

// ModelDescription and FunctionDescription share these fields under equal names.
template <typename Proto>
Result<FunctionDescription> ReadFunction(std::string name, const Proto& proto) {
  FunctionDescription function;
  function.name = std::move(name);
  MW_ASSIGN_OR_RETURN(function.inputs, ReadFeatures(proto.input(), "input"));
  MW_ASSIGN_OR_RETURN(function.outputs, ReadFeatures(proto.output(), "output"));
  MW_ASSIGN_OR_RETURN(function.states, ReadFeatures(proto.state(), "state"));
  function.predicted_feature_name = proto.predictedfeaturename();
  function.predicted_probabilities_name = proto.predictedprobabilitiesname();
  return function;
}

template <typename Proto>
void WriteFunction(const FunctionDescription& function, Proto* proto) {
  WriteFeatures(function.inputs, proto->mutable_input());
  WriteFeatures(function.outputs, proto->mutable_output());
  WriteFeatures(function.states, proto->mutable_state());
  proto->set_predictedfeaturename(function.predicted_feature_name);
  proto->set_predictedprobabilitiesname(function.predicted_probabilities_name);
}

Result<Metadata> ReadMetadata(const pb::Metadata& proto) {
  Metadata metadata;
  metadata.short_description = proto.shortdescription();
  metadata.version = proto.versionstring();
  metadata.author = proto.author();
  metadata.license = proto.license();
  for (const auto& entry : proto.userdefined()) {
    if (!metadata.user_defined.emplace(entry.key(), entry.value()).second) {
      return Invalid(fmt::format("metadata: the key '{}' is given twice", entry.key()));
    }
  }
  metadata.unknown_fields = UnknownFieldsOf(proto);
  return metadata;
}

void WriteMetadata(const Metadata& metadata, pb::Metadata* proto) {
  proto->set_shortdescription(metadata.short_description);
  proto->set_versionstring(metadata.version);
  proto->set_author(metadata.author);
  proto->set_license(metadata.license);
  for (const auto& [key, value] : metadata.user_defined) {
    auto* entry = proto->add_userdefined();
    entry->set_key(key);
    entry->set_value(value);
  }
  SetUnknownFields(metadata.unknown_fields, proto);
}

}  // namespace

Result<ModelDescription> ReadDescription(const pb::ModelDescription& proto) {
  ModelDescription description;
  description.multi_function = !proto.functions().empty();
  if (description.multi_function) {
    if (!proto.input().empty() || !proto.output().empty() || !proto.state().empty() ||
        !proto.predictedfeaturename().empty() || !proto.predictedprobabilitiesname().empty()) {
      return Invalid("description: a model with several functions has its features in the functions only");
    }
    std::set<std::string_view> names;
    for (const pb::FunctionDescription& function : proto.functions()) {
      Result<FunctionDescription> read = ReadFunction(function.name(), function);
      if (!read.ok()) return read.status().WithContext(fmt::format("function '{}'", function.name()));
      read->unknown_fields = UnknownFieldsOf(function);
      if (!names.insert(function.name()).second) {
        return Invalid(fmt::format("description: the function '{}' is described twice", function.name()));
      }
      description.functions.push_back(*std::move(read));
    }
  } else {
    MW_ASSIGN_OR_RETURN(FunctionDescription main, ReadFunction("main", proto));
    description.functions.push_back(std::move(main));
  }
  description.default_function = proto.defaultfunctionname();
  MW_ASSIGN_OR_RETURN(description.metadata, ReadMetadata(proto.metadata()));
  MW_ASSIGN_OR_RETURN(description.training_inputs, ReadFeatures(proto.traininginput(), "training input"));
  description.unknown_fields = UnknownFieldsOf(proto);
  return description;
}

void WriteDescription(const ModelDescription& description, pb::ModelDescription* proto) {
  if (description.multi_function) {
    for (const FunctionDescription& function : description.functions) {
      pb::FunctionDescription* written = proto->add_functions();
      written->set_name(function.name);
      WriteFunction(function, written);
      SetUnknownFields(function.unknown_fields, written);
    }
  } else if (!description.functions.empty()) {
    WriteFunction(description.functions.front(), proto);
  }
  proto->set_defaultfunctionname(description.default_function);
  WriteMetadata(description.metadata, proto->mutable_metadata());
  WriteFeatures(description.training_inputs, proto->mutable_traininginput());
  SetUnknownFields(description.unknown_fields, proto);
}

}  // namespace milwright
