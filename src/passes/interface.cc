// Passes on what hosts see: names of features, opsets, functions of a package.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/errors.h"
#include "format/package.h"
#include "ops/infer.h"
#include "passes/entries.h"
#include "passes/upgrade_constexpr.h"

namespace milwright {
namespace {

bool IsIdentifier(std::string_view name) {
  const auto word = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '@' || c == '.'; };
  return !name.empty() && std::isdigit(static_cast<unsigned char>(name.front())) == 0 &&
         std::ranges::all_of(name, word);
}

// The value of `function` that carries `name`, function inputs included.
Value* FindValue(const Function& function, std::string_view name) {
  if (Value* input = function.FindInput(name); input != nullptr) return input;
  Value* found = nullptr;
  ForEachOperation(function.body(), [&](const Operation& op) {
    for (const auto& output : op.outputs()) {
      if (output->name == name) found = output.get();
    }
    for (const auto& block : op.blocks()) {
      for (const auto& input : block->inputs()) {
        if (input->name == name) found = input.get();
      }
    }
  });
  return found;
}

bool IsFeature(const Function& function, const Value& value) {
  const auto& outputs = function.body().outputs();
  const bool is_input = value.producer() == nullptr && value.owner_block() == nullptr;
  return is_input || std::ranges::find(outputs, &value) != outputs.end();
}

void RenameFeature(std::vector<FeatureDescription>& features, const std::string& from, const std::string& to) {
  for (FeatureDescription& feature : features) {
    if (feature.name == from) feature.name = to;
  }
}

Status RenameIn(Function& function, FunctionDescription* description, const std::string& from, const std::string& to) {
  Value* value = FindValue(function, from);
  if (value == nullptr || !IsFeature(function, *value)) return Status::Ok();
  if (Value* holder = FindValue(function, to); holder != nullptr) {
    if (IsFeature(function, *holder)) {
      return Refuse(fmt::format("the name '{}' belongs to another feature of '{}'", to, function.name));
    }
    holder->name = function.UniqueName(to + "_value");
  }
  value->name = to;
  if (description == nullptr) return Status::Ok();
  for (auto* features : {&description->inputs, &description->outputs, &description->states}) {
    RenameFeature(*features, from, to);
  }
  if (description->predicted_feature_name == from) description->predicted_feature_name = to;
  return Status::Ok();
}

bool HasFeature(const ModelSpec& model, const std::string& name) {
  return std::ranges::any_of(model.program.functions(), [&name](const auto& function) {
    const Value* value = FindValue(*function, name);
    return value != nullptr && IsFeature(*function, *value);
  });
}

int32_t SpecificationVersion(const ModelSpec& model) {
  int32_t version = static_cast<int32_t>(Opset::kIOS15);
  for (const auto& function : model.program.functions())
    version = std::max(version, static_cast<int32_t>(function->opset));
  // Several functions in one package came with iOS18.
  if (model.program.functions().size() > 1) version = std::max(version, static_cast<int32_t>(Opset::kIOS18));
  return version;
}

// Brings `function` to `opset`: every op must exist there and give the types it is declared with.
Status MoveToOpset(Function& function, Opset opset, PassReport& report) {
  if (opset < Opset::kIOS18 && !function.States().empty()) {
    return Refuse(fmt::format("function '{}' has the state '{}', and states need iOS18", function.name,
                              function.States().front()->name));
  }
  if (opset < Opset::kIOS16) {
    std::vector<Value*> features = function.TensorInputs();
    features.insert(features.end(), function.body().outputs().begin(), function.body().outputs().end());
    for (const Value* feature : features) {
      if (feature->type.dtype() == DataType::kFp16)
        return Refuse(
            fmt::format("'{}' of '{}' is fp16, and fp16 inputs and outputs need iOS16", feature->name, function.name));
    }
  }
  if (opset >= Opset::kIOS18 && function.opset < Opset::kIOS18) {
    MW_RETURN_IF_ERROR(UpgradeConstexpr(function, &report.notes));
  }
  function.opset = opset;
  Status failure;
  ForEachOperation(function.body(), [&](const Operation& op) {
    if (!failure.ok()) return;
    const auto types = InferOperation(op, opset);
    if (!types.ok()) failure = Refuse(fmt::format("{}: {}", OperationPath(op), types.status().message()));
    for (size_t i = 0; failure.ok() && i < std::min(types->size(), op.outputs().size()); ++i) {
      if (TypesAgree((*types)[i], op.output(i)->type)) continue;
      failure = Refuse(fmt::format("{}: '{}' is {}, but {} makes it {}", OperationPath(op), op.output(i)->name,
                                   TypeToString(op.output(i)->type), OpsetName(opset), TypeToString((*types)[i])));
    }
  });
  return failure;
}

}  // namespace

Status Rename(ModelSpec& model, const PassArguments& arguments, PassReport&) {
  if (arguments.values().empty()) return Usage("name what to rename: rename=OLD:NEW;OLD:NEW");
  // Each goes through a name of its own, so that two features may swap theirs.
  std::vector<std::pair<std::string, std::string>> first;
  std::vector<std::pair<std::string, std::string>> second;
  for (const auto& [from, to] : arguments.values()) {
    if (!IsIdentifier(to)) return Usage(fmt::format("'{}' is no name that a package may use", to));
    if (!HasFeature(model, from)) return Refuse(fmt::format("no function has an input, output or state '{}'", from));
    const std::string between = fmt::format("milwright.rename.{}", first.size());
    first.emplace_back(from, between);
    second.emplace_back(between, to);
  }
  for (const auto& steps : {first, second}) {
    for (const auto& [from, to] : steps) {
      for (const auto& function : model.program.functions()) {
        MW_RETURN_IF_ERROR(RenameIn(*function, model.description.Find(function->name), from, to));
      }
    }
  }
  return Status::Ok();
}

Status SetOpset(ModelSpec& model, const PassArguments& arguments, PassReport& report) {
  const auto opset = OpsetFromName(arguments.String("opset"));
  if (!opset.has_value()) {
    return Usage(
        fmt::format("'{}' is no opset; the opsets are iOS15, iOS16, iOS17, iOS18, iOS26", arguments.String("opset")));
  }
  for (const auto& function : model.program.functions()) {
    MW_RETURN_IF_ERROR(MoveToOpset(*function, *opset, report));
  }
  model.specification_version = SpecificationVersion(model);
  return Status::Ok();
}

Status ExtractFunction(ModelSpec& model, const PassArguments& arguments, PassReport&) {
  const std::string name = arguments.String("function");
  if (model.program.FindFunction(name) == nullptr) return Refuse(fmt::format("the package has no function '{}'", name));
  std::vector<std::string> others;
  for (const auto& function : model.program.functions()) {
    if (function->name != name) others.push_back(function->name);
  }
  for (const std::string& other : others) {
    model.program.EraseFunction(other);
    std::erase_if(model.description.functions, [&other](const auto& description) { return description.name == other; });
  }
  // A package of one function is called main and carries its features at the top level.
  model.program.functions().front()->name = "main";
  for (FunctionDescription& description : model.description.functions) description.name = "main";
  model.description.multi_function = false;
  model.description.default_function.clear();
  model.specification_version = SpecificationVersion(model);
  return Status::Ok();
}

Status MergeFunctions(ModelSpec& model, const PassArguments& arguments, PassReport& report) {
  MW_ASSIGN_OR_RETURN(const ModelSpec other, OpenModel(arguments.String("with")));
  const auto rename_only = [](ModelSpec& target, const std::string& name) {
    if (name.empty() || target.program.functions().size() != 1) return;
    target.program.functions().front()->name = name;
    if (!target.description.functions.empty()) target.description.functions.front().name = name;
  };
  ModelSpec added = other.Clone();
  rename_only(model, arguments.String("this"));
  rename_only(added, arguments.String("as"));
  for (const auto& function : added.program.functions()) {
    if (model.program.FindFunction(function->name) != nullptr) {
      return Refuse(
          fmt::format("both packages have a function '{}'; name them with this:NAME;as:NAME", function->name));
    }
    for (const Value* state : function->States()) {
      for (const auto& mine : model.program.functions()) {
        const Value* twin = mine->FindInput(state->name);
        if (twin != nullptr && !(twin->type == state->type)) {
          return Refuse(fmt::format(
              "state '{}' is {} in '{}', but {} in '{}'; functions of a package share states by name", state->name,
              TypeToString(twin->type), mine->name, TypeToString(state->type), function->name));
        }
      }
    }
    model.program.AddFunction(CloneFunction(*function));
    if (const FunctionDescription* description = added.description.Find(function->name); description != nullptr) {
      model.description.functions.push_back(*description);
    }
    report.notes.push_back(fmt::format("added function '{}'", function->name));
  }
  for (const auto& function : model.program.functions()) {
    MW_RETURN_IF_ERROR(MoveToOpset(*function, std::max(function->opset, Opset::kIOS18), report));
  }
  const std::string chosen = arguments.String("default");
  model.description.multi_function = true;
  if (!chosen.empty()) model.description.default_function = chosen;
  if (model.description.default_function.empty())
    model.description.default_function = model.program.functions().front()->name;
  if (model.program.FindFunction(model.description.default_function) == nullptr) {
    return Usage(fmt::format("there is no function '{}' to be the default", chosen));
  }
  model.specification_version = SpecificationVersion(model);
  return Status::Ok();
}

}  // namespace milwright
