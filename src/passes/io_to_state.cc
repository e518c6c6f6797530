// io-to-state: a cache that the host copies from an output back to an input becomes a state.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "analysis/dataflow.h"
#include "analysis/effects.h"
#include "analysis/state_analysis.h"
#include "passes/edit.h"
#include "passes/entries.h"

namespace milwright {
namespace {

// One cache of one function. Without an output the function only reads it.
struct Cache {
  Value* input = nullptr;
  Value* output = nullptr;
  bool whole = true;
  UpdateForm form = UpdateForm::kReadModifyWrite;
};

class Converter {
 public:
  Converter(Function& function, const PassArguments& arguments, bool allow_rounding, PassReport& report)
      : function_(function), arguments_(arguments), allow_rounding_(allow_rounding), report_(report) {}

  Status Convert(const Cache& cache) {
    MW_RETURN_IF_ERROR(CheckType(cache));
    // Where the rows go is found before anything changes.
    Value* updated = cache.whole ? cache.output : nullptr;
    if (!cache.whole && cache.form == UpdateForm::kSliceUpdate) {
      MW_ASSIGN_OR_RETURN(updated, LastUpdate(cache));
    }
    const std::string name = cache.input->name;
    cache.input->name = function_.UniqueName(name + "_input");
    Value* state = function_.AddInput(name, Type::State({DataType::kFp16, cache.input->type.shape()}));
    Operation* read = nullptr;
    MW_ASSIGN_OR_RETURN(Value * content, InsertRead(cache, state, &read));
    if (cache.output != nullptr) {
      if (updated == cache.input) updated = content;
      if (updated == nullptr) {
        MW_ASSIGN_OR_RETURN(updated, WriteRows(cache, content, name));
      }
      MW_RETURN_IF_ERROR(InsertWrite(state, updated, read));
      MW_RETURN_IF_ERROR(DropOutput(cache.output));
    } else {
      report_.notes.push_back(fmt::format("{}: '{}' is only read", function_.name, name));
    }
    function_.EraseInput(cache.input);
    return Status::Ok();
  }

 private:
  Status CheckType(const Cache& cache) {
    const Type& type = cache.input->type;
    if (!IsStatic(type.shape()) || type.rank() == 0) {
      return Refuse(fmt::format("'{}' of '{}' is {}; a state has a fixed shape", cache.input->name, function_.name,
                                TypeToString(type)));
    }
    if (type.dtype() == DataType::kFp16) return Status::Ok();
    if (type.dtype() != DataType::kFp32) {
      return Refuse(
          fmt::format("'{}' of '{}' is {}; a state holds fp16", cache.input->name, function_.name, TypeToString(type)));
    }
    if (!allow_rounding_) {
      return Refuse(
          fmt::format("'{}' of '{}' is fp32 and a state holds fp16; allow-rounding:true rounds it at every "
                      "write",
                      cache.input->name, function_.name));
    }
    report_.notes.push_back(
        fmt::format("{}: '{}' is rounded to fp16 at every write", function_.name, cache.input->name));
    return Status::Ok();
  }

  // The operation of the body that first uses `value`.
  Operation* FirstUser(const Value& value) {
    const auto order = ProgramOrder(function_);
    Operation* first = nullptr;
    for (const Use& use : value.uses()) {
      Operation* user = use.op != nullptr ? use.op : use.block->parent();
      user = AncestorIn(function_.body(), user);
      if (user != nullptr && (first == nullptr || order.at(user) < order.at(first))) first = user;
    }
    return first;
  }

  Result<Value*> InsertRead(const Cache& cache, Value* state, Operation** read) {
    if (cache.input->uses().empty()) return static_cast<Value*>(nullptr);
    // Only an output that is the input itself has no user: the read then stands at the end.
    Builder builder(function_.body(), FirstUser(*cache.input));
    Value* content = builder.ReadState(state);
    *read = content != nullptr ? content->producer() : nullptr;
    if (cache.input->type.dtype() != DataType::kFp16) {
      content = builder.Op("cast", {{"x", content}, {"dtype", Literal::String("fp32")}}, state->name + "_fp32");
      if (content != nullptr) *read = content->producer();
    }
    MW_RETURN_IF_ERROR(builder.status());
    cache.input->ReplaceAllUsesWith(content);
    return content;
  }

  // The last of the updates that put the rows of `cache.output` into the cache.
  Result<Value*> LastUpdate(const Cache& cache) {
    Value* current = cache.input;
    size_t updates = 0;
    while (true) {
      Operation* next = nullptr;
      for (const Use& use : current->uses()) {
        if (use.op == nullptr || use.op->type() != "slice_update" || use.input != "x") continue;
        if (next != nullptr) {
          return Refuse(fmt::format("{} and {} both update '{}': what the host keeps is not clear",
                                    OperationPath(*next), OperationPath(*use.op), cache.input->name));
        }
        next = use.op;
      }
      if (next == nullptr) break;
      if (next->parent() != &function_.body()) {
        return Refuse(fmt::format("{} updates '{}' in a nested block", OperationPath(*next), cache.input->name));
      }
      current = next->output();
      ++updates;
    }
    const Operation* joined = PeelViews(cache.output)->producer();
    const bool is_rows =
        updates == 1 && PeelViews(current->producer()->InputValue("update")) == PeelViews(cache.output);
    const size_t pieces =
        joined != nullptr && joined->type() == "concat" && !is_rows ? joined->FindInput("values")->arguments.size() : 1;
    if (pieces != updates) {
      return Refuse(fmt::format("'{}' holds {} pieces, but '{}' is updated {} times", cache.output->name, pieces,
                                cache.input->name, updates));
    }
    report_.assumptions.push_back(fmt::format("{}: the host wrote '{}' into '{}' where the program itself puts it",
                                              function_.name, cache.output->name, cache.input->name));
    return current;
  }

  // Rows that the program only appends for its own use: the host wrote them at a position that the program is not told.
  Result<Value*> WriteRows(const Cache& cache, Value* content, const std::string& name) {
    const std::string position_name = arguments_.String("position");
    const Shape& shape = cache.input->type.shape();
    const Shape& rows = cache.output->type.shape();
    std::optional<size_t> axis;
    bool fits = rows.size() == shape.size();
    for (size_t i = 0; fits && i < shape.size(); ++i) {
      if (rows[i] == shape[i]) continue;
      fits = !axis.has_value() && rows[i] < shape[i] && rows[i] > 0;
      axis = i;
    }
    if (!fits || !axis.has_value() || content == nullptr) {
      return Refuse(fmt::format("'{}' of '{}', {}, are no rows of {}", cache.output->name, function_.name,
                                ShapeToString(rows), ShapeToString(shape)));
    }
    if (position_name.empty()) {
      return Refuse(
          fmt::format("'{}' of '{}' gives only new rows, and the program does not know where the host writes "
                      "them; position:INPUT names (or adds) the int32 input that tells",
                      cache.output->name, function_.name));
    }
    MW_ASSIGN_OR_RETURN(Value * position, PositionInput(function_, position_name, report_));
    report_.assumptions.push_back(fmt::format("{}: the host wrote '{}' into '{}' at '{}' along axis {}", function_.name,
                                              cache.output->name, name, position_name, *axis));
    Operation* producer = cache.output->producer();
    Builder builder(function_.body(), producer != nullptr ? function_.body().Next(producer) : nullptr);
    Value* at = AsVector(builder, position);
    Value* behind = builder.Op("add", {{"x", at}, {"y", Literal::Int32s({rows[*axis]})}}, position_name + "_end");
    std::vector<VectorEntry> begin(shape.size(), VectorEntry{0, nullptr});
    std::vector<VectorEntry> end;
    for (const int64_t size : shape) end.push_back({size, nullptr});
    begin[*axis] = {std::nullopt, at};
    end[*axis] = {std::nullopt, behind};
    Value* updated = builder.Op("slice_update",
                                {{"x", content},
                                 {"update", cache.output},
                                 {"begin", MakeVector(builder, begin, cache.output->name + "_begin")},
                                 {"end", MakeVector(builder, end, cache.output->name + "_end")}},
                                cache.output->name + "_written");
    MW_RETURN_IF_ERROR(builder.status());
    return updated;
  }

  // As early as may be: behind what makes the value, and behind the read of the old content.
  Status InsertWrite(Value* state, Value* value, Operation* read) {
    const auto order = ProgramOrder(function_);
    Block& body = function_.body();
    Operation* made = AncestorIn(body, value->producer());
    Operation* anchor = read;
    if (made != nullptr && (anchor == nullptr || order.at(made) > order.at(anchor))) anchor = made;
    Operation* first = body.operations().empty() ? nullptr : body.operations().front().get();
    Builder builder(body, anchor != nullptr ? body.Next(anchor) : first);
    if (value->type.dtype() != DataType::kFp16) {
      value = builder.Op("cast", {{"x", value}, {"dtype", Literal::String("fp16")}}, state->name + "_fp16");
    }
    builder.WriteState(state, value);
    return builder.status();
  }

  Status DropOutput(Value* output) {
    std::vector<Value*> outputs = function_.body().outputs();
    std::erase(outputs, output);
    if (outputs.empty()) {
      return Refuse(fmt::format("'{}' is the only output of '{}', and a function has at least one", output->name,
                                function_.name));
    }
    function_.body().SetOutputs(std::move(outputs));
    EraseUnused(output);
    return Status::Ok();
  }

  Function& function_;
  const PassArguments& arguments_;
  bool allow_rounding_;
  PassReport& report_;
};

Value* FindOutput(const Function& function, const std::string& name) {
  const auto& outputs = function.body().outputs();
  const auto it = std::ranges::find(outputs, name, &Value::name);
  return it != outputs.end() ? *it : nullptr;
}

// inputs:A+B;outputs:X+Y says itself which output goes back to which input.
Result<std::vector<Cache>> GivenCaches(const Function& function, const std::vector<std::string>& inputs,
                                       const std::vector<std::string>& outputs) {
  if (inputs.size() != outputs.size()) {
    return Usage(fmt::format("{} inputs, but {} outputs: they are paired in order", inputs.size(), outputs.size()));
  }
  std::vector<Cache> caches;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Value* input = function.FindInput(inputs[i]);
    Value* output = FindOutput(function, outputs[i]);
    if (input == nullptr || output == nullptr) continue;
    if (!input->type.IsTensor() || !(input->type == output->type)) {
      return Refuse(fmt::format("'{}' is {} and '{}' is {}: one cannot become the other", inputs[i],
                                TypeToString(input->type), outputs[i], TypeToString(output->type)));
    }
    caches.push_back({input, output});
  }
  return caches;
}

// Which caches the options choose, by the names of their inputs: over all functions, since these share states.
Result<std::vector<std::string>> ChooseCaches(const ModelSpec& model, const PassArguments& arguments) {
  std::vector<std::string> all;
  std::set<std::string> of_role;
  const std::vector<std::string> roles = arguments.List("roles");
  for (const std::string& role : roles) {
    if (!StateRoleFromName(role).has_value()) {
      return Usage(fmt::format("'{}' is no role; the roles are kv, conv, recurrent, accumulator, unknown", role));
    }
  }
  for (const auto& function : model.program.functions()) {
    const FunctionStates states = AnalyzeStates(*function);
    for (const CachePair& pair : states.cache_pairs) {
      const std::string& name = pair.input->name;
      if (std::ranges::find(all, name) == all.end()) all.push_back(name);
      if (std::ranges::find(roles, StateRoleName(pair.role)) != roles.end()) of_role.insert(name);
    }
  }
  if (!arguments.Has("inputs") && !arguments.Has("roles") && !arguments.Has("indices")) {
    if (all.empty()) return Refuse("no input is a cache that an output carries on");
    return all;
  }
  std::set<std::string> chosen = of_role;
  for (const std::string& name : arguments.List("inputs")) {
    if (std::ranges::find(all, name) == all.end()) {
      return Refuse(
          fmt::format("'{}' is no cache: no output of its type is made from it. inputs:{};outputs:NAME names "
                      "one; the caches found are: {}",
                      name, name, all.empty() ? "none" : fmt::format("{}", fmt::join(all, ", "))));
    }
    chosen.insert(name);
  }
  for (const std::string& text : arguments.List("indices")) {
    size_t index = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
    if (error != std::errc() || end != text.data() + text.size() || index >= all.size()) {
      return Usage(fmt::format("'{}' is no index of a cache; there are {}", text, all.size()));
    }
    chosen.insert(all[index]);
  }
  std::vector<std::string> names;
  std::ranges::copy_if(all, std::back_inserter(names), [&](const std::string& name) { return chosen.contains(name); });
  if (names.empty()) return Refuse(fmt::format("no cache has the role {}", fmt::join(roles, " or ")));
  return names;
}

// The caches of `function` among `names`; one that it takes but does not give out is only read.
std::vector<Cache> CachesOf(const Function& function, const std::vector<std::string>& names) {
  std::vector<Cache> caches;
  const FunctionStates states = AnalyzeStates(function);
  for (const std::string& name : names) {
    Value* input = function.FindInput(name);
    if (input == nullptr || !input->type.IsTensor()) continue;
    const auto pair = std::ranges::find(states.cache_pairs, input, &CachePair::input);
    if (pair != states.cache_pairs.end()) {
      caches.push_back({input, pair->output, pair->whole, pair->form});
    } else {
      caches.push_back({input});
    }
  }
  return caches;
}

}  // namespace

Status IoToState(ModelSpec& model, const PassArguments& arguments, PassReport& report) {
  MW_ASSIGN_OR_RETURN(const bool allow_rounding, BoolOption(arguments, "allow-rounding", false));
  std::vector<std::string> names = arguments.List("inputs");
  if (!arguments.Has("outputs")) {
    MW_ASSIGN_OR_RETURN(names, ChooseCaches(model, arguments));
  }
  size_t converted = 0;
  for (const auto& function : model.program.functions()) {
    // The types are checked before the opset changes, so that a refusal speaks of the cache.
    std::vector<Cache> caches;
    if (arguments.Has("outputs")) {
      MW_ASSIGN_OR_RETURN(caches, GivenCaches(*function, names, arguments.List("outputs")));
    } else {
      caches = CachesOf(*function, names);
    }
    converted += caches.size();
    if (caches.empty()) continue;
    MW_RETURN_IF_ERROR(EnsureOpset(model, Opset::kIOS18, report));
    Converter converter(*function, arguments, allow_rounding, report);
    for (const Cache& cache : caches) MW_RETURN_IF_ERROR(converter.Convert(cache));
  }
  if (converted == 0) return Refuse(fmt::format("no function has the inputs {}", fmt::join(names, ", ")));
  for (const std::string& name : names) {
    const bool any = std::ranges::any_of(model.program.functions(),
                                         [&name](const auto& f) { return f->FindInput(name) != nullptr; });
    if (any) MW_RETURN_IF_ERROR(CheckSharedState(model.program, name));
  }
  RefreshDescription(model);
  return Status::Ok();
}

}  // namespace milwright
