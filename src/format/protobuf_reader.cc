#include "format/protobuf_reader.h"

#include <fmt/format.h>
#include <google/protobuf/arena.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/utf8.h"
#include "format/protobuf_description.h"
#include "format/protobuf_types.h"
#include "format/protobuf_wire.h"
#include "model.pb.h"

namespace milwright {
namespace {

namespace mil = pb::MILSpec;

// The fields of Model that hold other kinds of model (package-format.md, section 2).
constexpr std::pair<int, std::string_view> kOtherKinds[] = {
    {200, "pipelineClassifier"},
    {201, "pipelineRegressor"},
    {202, "pipeline"},
    {300, "glmRegressor"},
    {301, "supportVectorRegressor"},
    {302, "treeEnsembleRegressor"},
    {303, "neuralNetworkRegressor"},
    {304, "bayesianProbitRegressor"},
    {400, "glmClassifier"},
    {401, "supportVectorClassifier"},
    {402, "treeEnsembleClassifier"},
    {403, "neuralNetworkClassifier"},
    {404, "kNearestNeighborsClassifier"},
    {500, "neuralNetwork"},
    {501, "itemSimilarityRecommender"},
    {555, "customModel"},
    {556, "linkedModel"},
    {560, "classConfidenceThresholding"},
    {600, "oneHotEncoder"},
    {601, "imputer"},
    {602, "featureVectorizer"},
    {603, "dictVectorizer"},
    {604, "scaler"},
    {606, "categoricalMapping"},
    {607, "normalizer"},
    {609, "arrayFeatureExtractor"},
    {610, "nonMaximumSuppression"},
    {900, "identity"},
    {2000, "textClassifier"},
    {2001, "wordTagger"},
    {2002, "visionFeaturePrint"},
    {2003, "soundAnalysisPreprocessing"},
    {2004, "gazetteer"},
    {2005, "wordEmbedding"},
    {2006, "audioFeaturePrint"},
    {3000, "serializedModel"},
};

std::string_view OtherKind(int field) {
  const auto* const found = std::ranges::find(kOtherKinds, field, [](const auto& kind) { return kind.first; });
  return found != std::end(kOtherKinds) ? found->second : std::string_view();
}

// "neuralNetwork" -> "a neural network"
std::string KindInWords(std::string_view kind) {
  std::string words = std::string_view("aeiou").find(kind[0]) != std::string_view::npos ? "an " : "a ";
  for (const char c : kind) {
    if (std::isupper(static_cast<unsigned char>(c)) != 0) words += ' ';
    words += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return words;
}

// Reads one function: its values by name, with the scopes of nested blocks.
class FunctionReader {
 public:
  FunctionReader(Function* function, const BlobLoader& load_blob) : function_(function), load_blob_(load_blob) {}

  Status Read(const mil::Function& proto, const mil::Block& body) {
    for (const mil::NamedValueType& input : proto.inputs()) {
      Result<Type> type = ReadValueType(input);
      if (!type.ok()) return type.status().WithContext(function_->name);
      if (const Status status = Define(function_->AddInput(input.name(), *std::move(type))); !status.ok()) {
        return status.WithContext(function_->name);
      }
    }
    body_ = &body;
    return ReadBlock(body, &function_->body());
  }

 private:
  static Result<Type> ReadValueType(const mil::NamedValueType& proto) {
    MW_RETURN_IF_ERROR(CheckAllKnown(proto));
    Result<Type> type = ReadType(proto.type());
    if (!type.ok()) return type.status().WithContext(fmt::format("type of '{}'", proto.name()));
    return type;
  }

  // Makes `value` visible to what follows in its block.
  Status Define(Value* value) {
    if (value->name.empty()) return Invalid("a value without a name");
    if (!values_.emplace(value->name, value).second) {
      return Invalid(fmt::format("the name '{}' is defined twice", value->name));
    }
    scope_.push_back(value);
    return {};
  }

  Result<Value*> Find(const std::string& name) {
    if (const auto found = values_.find(name); found != values_.end()) return found->second;
    if (DefinedSomewhere(*body_, name)) {
      return Invalid(fmt::format("the value '{}' is used before it is defined, or outside its block", name));
    }
    return Invalid(fmt::format("the value '{}' is not defined", name));
  }

  static bool DefinedSomewhere(const mil::Block& block, const std::string& name) {
    const auto named = [&name](const mil::NamedValueType& value) { return value.name() == name; };
    return std::ranges::any_of(block.inputs(), named) ||
           std::ranges::any_of(block.operations(), [&](const mil::Operation& op) {
             return std::ranges::any_of(op.outputs(), named) ||
                    std::ranges::any_of(op.blocks(), [&](const mil::Block& b) { return DefinedSomewhere(b, name); });
           });
  }

  // Where a block stands, for messages.
  static std::string PlaceOf(const Block& block) {
    if (block.parent() == nullptr) return block.function()->name;
    return fmt::format("{}/block{}", OperationPath(*block.parent()), block.parent()->blocks().size() - 1);
  }

  Status ReadBlock(const mil::Block& proto, Block* block) {
    const size_t outer = scope_.size();
    MW_RETURN_IF_ERROR(ReadBlockParts(proto, block));
    block->unknown_fields = UnknownFieldsOf(proto);
    for (; scope_.size() > outer; scope_.pop_back()) values_.erase(scope_.back()->name);
    return {};
  }

  Status ReadBlockParts(const mil::Block& proto, Block* block) {
    for (const mil::NamedValueType& input : proto.inputs()) {
      Result<Type> type = ReadValueType(input);
      if (!type.ok()) return type.status().WithContext(PlaceOf(*block));
      if (const Status status = Define(block->AddInput(input.name(), *std::move(type))); !status.ok()) {
        return status.WithContext(PlaceOf(*block));
      }
    }
    for (const mil::Operation& op : proto.operations()) MW_RETURN_IF_ERROR(ReadOperation(op, block));
    std::vector<Value*> outputs;
    for (const std::string& name : proto.outputs()) {
      const Result<Value*> value = Find(name);
      if (!value.ok()) return value.status().WithContext(PlaceOf(*block) + ": block output");
      outputs.push_back(*value);
    }
    block->SetOutputs(std::move(outputs));
    Result<AttributeMap> attributes = ReadAttributes(proto.attributes(), load_blob_);
    if (!attributes.ok()) return attributes.status().WithContext(PlaceOf(*block));
    block->attributes = *std::move(attributes);
    return {};
  }

  Status ReadOperation(const mil::Operation& proto, Block* block) {
    Operation* op = block->Insert(std::make_unique<Operation>(proto.type()));
    Result<AttributeMap> attributes = ReadAttributes(proto.attributes(), load_blob_);
    if (!attributes.ok()) return attributes.status().WithContext(PathOf(*op, proto));
    op->attributes = *std::move(attributes);
    op->unknown_fields = UnknownFieldsOf(proto);
    if (const Status status = ReadInputs(proto, op); !status.ok()) return status.WithContext(PathOf(*op, proto));
    for (const mil::Block& block_proto : proto.blocks()) MW_RETURN_IF_ERROR(ReadBlock(block_proto, op->AddBlock()));
    for (const mil::NamedValueType& output : proto.outputs()) {
      Result<Type> type = ReadValueType(output);
      if (!type.ok()) return type.status().WithContext(PathOf(*op, proto));
      if (const Status status = Define(op->AddOutput(output.name(), *std::move(type))); !status.ok()) {
        return status.WithContext(PathOf(*op, proto));
      }
    }
    return {};
  }

  // Before the outputs are there, an op without the attribute "name" would go by its type.
  static std::string PathOf(const Operation& op, const mil::Operation& proto) {
    std::string path = OperationPath(op);
    if (op.outputs().empty() && op.FindAttribute("name") == nullptr && proto.outputs_size() > 0) {
      path += fmt::format(" giving '{}'", proto.outputs(0).name());
    }
    return path;
  }

  Status ReadInputs(const mil::Operation& proto, Operation* op) {
    std::vector<const mil::InputsEntry*> entries;
    for (const mil::InputsEntry& entry : proto.inputs()) entries.push_back(&entry);
    std::ranges::stable_sort(entries, {},
                             [](const mil::InputsEntry* entry) -> const std::string& { return entry->key(); });
    for (size_t i = 0; i < entries.size(); ++i) {
      const std::string& key = entries[i]->key();
      if (i > 0 && entries[i - 1]->key() == key) return Invalid(fmt::format("the parameter '{}' is given twice", key));
      MW_RETURN_IF_ERROR(CheckAllKnown(*entries[i], entries[i]->value()));
      Result<std::vector<Operand>> operands = ReadOperands(entries[i]->value());
      if (!operands.ok()) return operands.status().WithContext(fmt::format("parameter '{}'", key));
      op->SetInput(key, *std::move(operands));
    }
    return {};
  }

  Result<std::vector<Operand>> ReadOperands(const mil::Argument& proto) {
    std::vector<Operand> operands;
    for (const auto& binding : proto.arguments()) {
      MW_RETURN_IF_ERROR(CheckAllKnown(binding));
      switch (binding.binding_case()) {
        case mil::Argument::Binding::kName: {
          MW_ASSIGN_OR_RETURN(Value * value, Find(binding.name()));
          operands.emplace_back(value);
          break;
        }
        case mil::Argument::Binding::kValue: {
          MW_ASSIGN_OR_RETURN(Literal literal, ReadLiteral(binding.value(), load_blob_));
          operands.emplace_back(Literal::Share(std::move(literal)));
          break;
        }
        case mil::Argument::Binding::BINDING_NOT_SET:
          return Invalid("an argument that is neither a name nor a value");
      }
    }
    return operands;
  }

  Function* function_;
  const BlobLoader& load_blob_;
  const mil::Block* body_ = nullptr;
  std::unordered_map<std::string, Value*> values_;  ///< what is visible here
  std::vector<Value*> scope_;                       ///< the same, in order of definition
};

Result<std::unique_ptr<Function>> ReadFunction(const std::string& name, const mil::Function& proto,
                                               const BlobLoader& load_blob) {
  if (proto.block_specializations_size() != 1) {
    return Invalid(
        fmt::format("{}: {} block specializations; exactly one is expected", name, proto.block_specializations_size()));
  }
  const mil::BlockEntry& entry = proto.block_specializations(0);
  MW_RETURN_IF_ERROR(CheckAllKnown(entry).WithContext(name));
  if (entry.key() != proto.opset()) {
    return Invalid(fmt::format("{}: the body is for opset '{}', but the function's opset is '{}'", name, entry.key(),
                               proto.opset()));
  }
  const std::optional<Opset> opset = OpsetFromName(proto.opset());
  if (!opset || OpsetKey(*opset) != proto.opset()) {
    return Invalid(
        fmt::format("{}: unknown opset '{}'; CoreML5 (iOS15) to CoreML9 (iOS26) are known", name, proto.opset()));
  }
  auto function = std::make_unique<Function>(name, *opset);
  Result<AttributeMap> attributes = ReadAttributes(proto.attributes(), load_blob);
  if (!attributes.ok()) return attributes.status().WithContext(name);
  function->attributes = *std::move(attributes);
  function->unknown_fields = UnknownFieldsOf(proto);
  MW_RETURN_IF_ERROR(FunctionReader(function.get(), load_blob).Read(proto, entry.value()));
  return function;
}

Result<Program> ReadProgram(const mil::Program& proto, const BlobLoader& load_blob) {
  Program program;
  program.version = proto.version();
  program.doc_string = proto.docstring();
  Result<AttributeMap> attributes = ReadAttributes(proto.attributes(), load_blob);
  if (!attributes.ok()) return attributes.status().WithContext("program");
  program.attributes = *std::move(attributes);
  program.unknown_fields = UnknownFieldsOf(proto);
  if (proto.functions().empty()) return Invalid("the program has no function");
  std::set<std::string_view> names;
  for (const mil::FunctionsEntry& entry : proto.functions()) {
    if (!names.insert(entry.key()).second)
      return Invalid(fmt::format("the function '{}' is defined twice", entry.key()));
    MW_RETURN_IF_ERROR(CheckAllKnown(entry).WithContext("program"));
    MW_ASSIGN_OR_RETURN(auto function, ReadFunction(entry.key(), entry.value(), load_blob));
    program.AddFunction(std::move(function));
  }
  return program;
}

Result<ModelSpec> ReadModel(std::span<const std::byte> bytes, const BlobLoader& load_blob) {
  if (bytes.empty()) return Status(ErrorCode::kUnreadable, "the file is empty");
  const std::optional<int> other = FindTopLevelField(bytes, [](int field) { return !OtherKind(field).empty(); });
  if (other) {
    return Status(ErrorCode::kUnreadable, fmt::format("the model is {} ({}), not an ML Program",
                                                      KindInWords(OtherKind(*other)), OtherKind(*other)));
  }
  google::protobuf::Arena arena;
  auto* proto = google::protobuf::Arena::CreateMessage<pb::Model>(&arena);
  if (const Status status = ParseMessage(bytes, proto); !status.ok()) {
    return status.WithContext("not a readable Core ML model");
  }
  if (!proto->has_mlprogram()) return Status(ErrorCode::kUnreadable, "there is no ML Program in it");
  ModelSpec model;
  model.specification_version = proto->specificationversion();
  model.is_updatable = proto->isupdatable();
  model.unknown_fields = UnknownFieldsOf(*proto);
  MW_ASSIGN_OR_RETURN(model.description, ReadDescription(proto->description()));
  MW_ASSIGN_OR_RETURN(model.program, ReadProgram(proto->mlprogram(), load_blob));
  return model;
}

}  // namespace

Result<ModelSpec> ReadModelProtobuf(std::span<const std::byte> bytes, const std::string& name,
                                    const BlobLoader& load_blob) {
  Result<ModelSpec> model = ReadModel(bytes, load_blob);
  if (!model.ok()) {
    // Names and types in the message are the file's: keep it one line of bounded length.
    constexpr size_t kMaxMessage = 1000;
    std::string message = EscapeForMessage(model.status().message());
    if (message.size() > kMaxMessage) message.replace(kMaxMessage, std::string::npos, "...");
    return Status(model.status().code(), fmt::format("{}: {}", name, message));
  }
  model->source = name;
  return model;
}

}  // namespace milwright
