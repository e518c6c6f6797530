#include "passes/equal.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <set>

#include "base/errors.h"
#include "exec/input_source.h"
#include "passes/memory_match.h"

namespace milwright {
namespace {

// Which is worse: shapes that differ, then failures, then errors.
bool Worse(const TensorDifference& x, const TensorDifference& y) {
  const auto rank = [](const TensorDifference& d) { return d.failures < 0 ? 2 : d.failures > 0 ? 1 : 0; };
  return std::pair(rank(x), x.max_error) > std::pair(rank(y), y.max_error);
}

// One side: a model with its host.
struct Side {
  const Model* model = nullptr;
  std::optional<InputSource> source;
  State state;
  std::map<std::string, std::set<std::string>, std::less<>> shifting;  // by function: states and caches that shift

  Status Restart(uint64_t seed) {
    MW_ASSIGN_OR_RETURN(state, model->MakeState());
    return source->Restart(seed);
  }

  Result<TensorMap> Step(const std::string& function) {
    MW_ASSIGN_OR_RETURN(const TensorMap inputs, source->Draw(function));
    PredictOptions options;
    options.function = function;
    auto outputs = model->Predict(inputs, &state, options);
    if (!outputs.ok()) return outputs;
    MW_RETURN_IF_ERROR(source->Accept(function, *outputs));
    return outputs;
  }

  [[nodiscard]] Result<Memory> Remembered(const std::string& function) const {
    Memory memory;
    const auto shift = shifting.find(function);
    const auto shifts = [&](const std::string& name) {
      return shift != shifting.end() && shift->second.contains(name);
    };
    for (const std::string& name : state.names()) {
      MW_ASSIGN_OR_RETURN(Tensor value, state.Read(name));
      memory.insert_or_assign(name, MemoryCell{std::move(value), shifts(name)});
    }
    for (const auto& [name, value] : source->caches()) memory.insert_or_assign(name, MemoryCell{value, shifts(name)});
    return memory;
  }
};

std::set<std::string> ShiftingOnes(const Function& function) {
  const auto shifts = [](UpdateForm form) {
    return form == UpdateForm::kShiftConcat || form == UpdateForm::kShiftMatmul;
  };
  std::set<std::string> names;
  const FunctionStates states = AnalyzeStates(function);
  for (const StateFacts& facts : states.states) {
    if (shifts(facts.form)) names.insert(facts.state->name);
  }
  for (const CachePair& pair : states.cache_pairs) {
    if (pair.whole && shifts(pair.form)) names.insert(pair.input->name);
  }
  return names;
}

class Comparison {
 public:
  Comparison(const Model& a, const Model& b, const CompareOptions& options) : options_(options) {
    a_.model = &a;
    b_.model = &b;
  }

  Result<CompareReport> Run() {
    MW_RETURN_IF_ERROR(MatchFunctions());
    MW_RETURN_IF_ERROR(MakeSources());
    for (const auto& [function, other] : functions_) MatchOutputs(*function, *other);
    for (const auto& [function, other] : functions_) {
      MW_RETURN_IF_ERROR(RunSequence(std::vector<size_t>(static_cast<size_t>(options_.steps), IndexOf(function))));
    }
    if (SharesMemory()) MW_RETURN_IF_ERROR(RunSequence(MixedSequence()));
    for (const ComparedValue& value : report_.values) {
      if (value.all_nan && value.compared > 0) Note(fmt::format("'{}' was NaN in every step", value.name_a));
    }
    return std::move(report_);
  }

 private:
  // ---- what matches what ----

  [[nodiscard]] const Program& ProgramA() const { return a_.model->spec().program; }
  [[nodiscard]] const Program& ProgramB() const { return b_.model->spec().program; }

  void Note(std::string text) {
    if (std::ranges::find(report_.notes, text) == report_.notes.end()) report_.notes.push_back(std::move(text));
  }
  void Fault(std::string text) {
    if (std::ranges::find(report_.faults, text) == report_.faults.end()) report_.faults.push_back(std::move(text));
  }

  size_t IndexOf(const Function* function) const {
    return static_cast<size_t>(
        std::ranges::find(functions_, function, &std::pair<const Function*, const Function*>::first) -
        functions_.begin());
  }

  static bool SameInterface(const Function& a, const Function& b) {
    const auto inputs_a = a.TensorInputs();
    const auto inputs_b = b.TensorInputs();
    return inputs_a.size() == inputs_b.size() && std::ranges::all_of(inputs_a, [&](const Value* input) {
             const Value* twin = b.FindInput(input->name);
             return twin != nullptr && twin->type == input->type;
           });
  }

  Status MatchFunctions() {
    if (!options_.functions.empty()) {
      for (const auto& [name, other] : options_.functions) {
        const Function* function = ProgramA().FindFunction(name);
        const Function* twin = ProgramB().FindFunction(other);
        if (function == nullptr) return Usage(fmt::format("'{}' has no function '{}'", SourceOf(a_), name));
        if (twin == nullptr) return Usage(fmt::format("'{}' has no function '{}'", SourceOf(b_), other));
        functions_.emplace_back(function, twin);
      }
      return Status::Ok();
    }
    const auto& in_a = ProgramA().functions();
    const auto& in_b = ProgramB().functions();
    const bool single = in_a.size() == 1 || in_b.size() == 1;
    std::set<const Function*> taken;
    for (const auto& function : in_a) {
      const Function* twin = ProgramB().FindFunction(function->name);
      if (twin == nullptr && in_a.size() == 1 && in_b.size() == 1) twin = in_b.front().get();
      if (twin == nullptr && single) {
        for (const auto& candidate : in_b) {
          if (twin == nullptr && !taken.contains(candidate.get()) && SameInterface(*function, *candidate))
            twin = candidate.get();
        }
      }
      if (twin != nullptr && taken.insert(twin).second) {
        functions_.emplace_back(function.get(), twin);
      } else if (single) {
        Note(fmt::format("function '{}' of A has no counterpart in B and is not compared", function->name));
      } else {
        Fault(fmt::format("function '{}' is missing in B", function->name));
      }
    }
    for (const auto& function : in_b) {
      if (!taken.contains(function.get()))
        Note(fmt::format("function '{}' of B has no counterpart in A and is not compared", function->name));
    }
    if (functions_.empty()) return Usage("the packages have no function in common; say which: A's name and B's name");
    return Status::Ok();
  }

  static const std::string& SourceOf(const Side& side) { return side.model->spec().source; }

  [[nodiscard]] std::string Renamed(const std::string& name) const {
    const auto it = options_.names.find(name);
    return it != options_.names.end() ? it->second : name;
  }

  [[nodiscard]] std::string Original(const std::string& name) const {
    for (const auto& [from, to] : options_.names) {
      if (to == name) return from;
    }
    return name;
  }

  static bool IsPlace(InputKind kind) {
    return kind == InputKind::kPosition || kind == InputKind::kPositionIds || kind == InputKind::kRingPosition;
  }
  static bool IsArbitrary(InputKind kind) {
    return kind == InputKind::kFree || kind == InputKind::kHidden || kind == InputKind::kTokenId;
  }

  // What one side keeps in a state, and the other takes as an input, is a cache there. It comes back from NAME_out or
  // NAME_new (contracts.md, "simple"), or from what the program shows; else nothing ever writes it.
  static void MatchStates(const Program& states, const Program& inputs,
                          const std::function<std::string(const std::string&)>& renamed, InputKindChoices& kinds) {
    const auto is_output = [&inputs](const std::string& name) {
      return std::ranges::any_of(inputs.functions(), [&name](const auto& function) {
        const auto& outputs = function->body().outputs();
        return std::ranges::find(outputs, name, &Value::name) != outputs.end();
      });
    };
    std::set<std::string> names;
    std::set<std::string> written;
    for (const auto& function : states.functions()) {
      for (const StateFacts& facts : AnalyzeStates(*function).states) {
        names.insert(renamed(facts.state->name));
        // Where nothing but its own content is written back, the other side may have dropped the write.
        const bool changes = !facts.writes.empty() && facts.form != UpdateForm::kWrittenBack;
        if (changes) written.insert(renamed(facts.state->name));
      }
    }
    for (const auto& function : inputs.functions()) {
      for (const Value* input : function->TensorInputs()) {
        if (!names.contains(input->name) || kinds.contains(input->name)) continue;
        std::optional<std::string> output;
        for (const char* suffix : {"_out", "_new"}) {
          if (is_output(input->name + suffix)) output = input->name + suffix;
        }
        const FunctionStates found = AnalyzeStates(*function);
        const bool shown = std::ranges::any_of(found.cache_pairs, [&](const CachePair& pair) {
          const std::string& from = pair.output->name;
          // NAME_out of another state is not this one's.
          const bool other = from.size() > 4 && names.contains(from.substr(0, from.size() - 4));
          return pair.input->name == input->name && !other;
        });
        if (!output.has_value() && (!shown || !written.contains(input->name))) output = "";
        if (output.has_value()) kinds[input->name] = {InputKind::kCache, {}, output};
      }
    }
  }

  // An input that only one side's program shows to be a cache, or that the sides bring back from other outputs, is one
  // on both sides when both have the output it comes back from; else it is none.
  void MatchCaches(const std::pair<const Function*, const Function*>& functions, const FunctionInputs& inputs_a,
                   const FunctionInputs& inputs_b, InputKindChoices& kinds_a, InputKindChoices& kinds_b) const {
    const auto has_output = [](const Function& function, const std::string& name, const Type& type) {
      const auto& outputs = function.body().outputs();
      return std::ranges::any_of(outputs, [&](const Value* v) { return v->name == name && v->type == type; });
    };
    const auto settle = [&](const InputFacts& cache, const std::string& output, const Function& other,
                            const InputFacts& twin, InputKindChoices& own, InputKindChoices& others) {
      if (has_output(other, output, cache.pair->output->type)) {
        others[twin.input->name] = {InputKind::kCache, {}, output};
        own[cache.input->name] = {InputKind::kCache, {}, cache.pair->output->name};
      } else {
        own[cache.input->name] = {InputKind::kFree, {}, {}};
        if (twin.kind == InputKind::kCache) others[twin.input->name] = {InputKind::kFree, {}, {}};
      }
    };
    for (const InputFacts& x : inputs_a.inputs) {
      const std::string name = Renamed(x.input->name);
      const auto y = std::ranges::find_if(inputs_b.inputs, [&](const InputFacts& f) { return f.input->name == name; });
      if (y == inputs_b.inputs.end() || (x.kind != InputKind::kCache && y->kind != InputKind::kCache)) continue;
      const bool both = x.kind == InputKind::kCache && y->kind == InputKind::kCache;
      if (both && x.pair.has_value() == y->pair.has_value() &&
          (!x.pair.has_value() || Renamed(x.pair->output->name) == y->pair->output->name)) {
        continue;
      }
      if (x.kind == InputKind::kCache && x.pair.has_value()) {
        settle(x, Renamed(x.pair->output->name), *functions.second, *y, kinds_a, kinds_b);
      } else if (y->pair.has_value()) {
        settle(*y, Original(y->pair->output->name), *functions.first, x, kinds_b, kinds_a);
      }
    }
  }

  // Pairs the inputs of two functions; B's get A's values.
  void MatchInputs(const FunctionInputs& inputs_a, const FunctionInputs& inputs_b, InputKindChoices& kinds_a,
                   InputKindChoices& kinds_b) {
    std::vector<const InputFacts*> left_a;
    std::set<const InputFacts*> left_b;
    for (const InputFacts& facts : inputs_b.inputs) {
      if (facts.kind != InputKind::kCache) left_b.insert(&facts);
    }
    const auto match = [&](const InputFacts& x, const InputFacts& y) {
      keys_[y.input->name] = x.input->name;
      left_b.erase(&y);
      // A ring in a buffer that is longer than its window shows only on the side that keeps it apart.
      const bool rings = x.kind == InputKind::kRingPosition || y.kind == InputKind::kRingPosition;
      if (rings && IsPlace(x.kind) && IsPlace(y.kind)) {
        const InputFacts& ring =
            y.kind != InputKind::kRingPosition || (x.window.has_value() && x.window < y.window) ? x : y;
        kinds_a[x.input->name] = {InputKind::kRingPosition, ring.window, {}};
        kinds_b[y.input->name] = {InputKind::kRingPosition, ring.window, {}};
        return;
      }
      // Two kinds that follow from the position fit each other whatever they are (a window that one side shifts and the
      // other keeps as a ring); where only one side shows its kind, the other takes it.
      if (x.kind == y.kind || (!IsArbitrary(x.kind) && !IsArbitrary(y.kind))) return;
      if (x.kind == InputKind::kFree || !IsArbitrary(y.kind)) {
        kinds_a[x.input->name] = {y.kind, y.window, {}};
      } else {
        kinds_b[y.input->name] = {x.kind, x.window, {}};
      }
    };
    for (const InputFacts& facts : inputs_a.inputs) {
      if (facts.kind == InputKind::kCache) continue;
      const std::string name = Renamed(facts.input->name);
      const auto twin =
          std::ranges::find_if(left_b, [&name](const InputFacts* other) { return other->input->name == name; });
      if (twin != left_b.end()) {
        match(facts, **twin);
      } else {
        left_a.push_back(&facts);
      }
    }
    for (const InputFacts* facts : left_a) {
      const InputFacts* twin = nullptr;
      for (const InputFacts& other : inputs_b.inputs) {
        if (twin == nullptr && left_b.contains(&other) && other.input->type == facts->input->type &&
            other.kind == facts->kind)
          twin = &other;
      }
      if (twin == nullptr) {
        Note(fmt::format("input '{}' of A has no counterpart in B", facts->input->name));
        continue;
      }
      Note(fmt::format("input '{}' of A is taken for '{}' of B", facts->input->name, twin->input->name));
      match(*facts, *twin);
    }
    for (const InputFacts* facts : left_b)
      Note(fmt::format("input '{}' of B has no counterpart in A and is drawn as {}", facts->input->name,
                       InputKindName(facts->kind)));
  }

  // The choices of the caller that name inputs of `program`.
  [[nodiscard]] InputKindChoices ChoicesFor(const Program& program) const {
    InputKindChoices choices;
    for (const auto& [name, choice] : options_.kinds) {
      for (const auto& function : program.functions()) {
        if (function->FindInput(name) != nullptr) choices.insert_or_assign(name, choice);
      }
    }
    return choices;
  }

  Status MakeSources() {
    for (const auto& [name, choice] : options_.kinds) {
      if (!ChoicesFor(ProgramA()).contains(name) && !ChoicesFor(ProgramB()).contains(name))
        return Usage(fmt::format("--input-kind names '{}', but no function has an input of that name", name));
    }
    InputKindChoices kinds_a = ChoicesFor(ProgramA());
    InputKindChoices kinds_b = ChoicesFor(ProgramB());
    MatchStates(
        ProgramA(), ProgramB(), [this](const std::string& name) { return Renamed(name); }, kinds_b);
    MatchStates(
        ProgramB(), ProgramA(), [this](const std::string& name) { return Original(name); }, kinds_a);
    for (const auto& [function, other] : functions_) {
      MW_ASSIGN_OR_RETURN(FunctionInputs inputs_a, FindInputKinds(*function, kinds_a));
      MW_ASSIGN_OR_RETURN(FunctionInputs inputs_b, FindInputKinds(*other, kinds_b));
      MatchCaches({function, other}, inputs_a, inputs_b, kinds_a, kinds_b);
      MW_ASSIGN_OR_RETURN(inputs_a, FindInputKinds(*function, kinds_a));
      MW_ASSIGN_OR_RETURN(inputs_b, FindInputKinds(*other, kinds_b));
      MatchInputs(inputs_a, inputs_b, kinds_a, kinds_b);
    }
    MW_RETURN_IF_ERROR(MakeSource(a_, kinds_a));
    MW_RETURN_IF_ERROR(MakeSource(b_, kinds_b));
    for (const auto& [name, key] : keys_) b_.source->SetKey(name, key);
    return Status::Ok();
  }

  Status MakeSource(Side& side, const InputKindChoices& kinds) const {
    MW_ASSIGN_OR_RETURN(InputSource source,
                        InputSource::Make(side.model->spec(), {options_.seed, kinds, options_.query_length}));
    side.source = std::move(source);
    for (const auto& function : side.model->spec().program.functions())
      side.shifting.emplace(function->name, ShiftingOnes(*function));
    return Status::Ok();
  }

  [[nodiscard]] static std::set<std::string> CacheOutputs(const Side& side, const Function& function) {
    std::set<std::string> names;
    for (const InputFacts& facts : side.source->Inputs(function.name)->inputs) {
      if (facts.kind == InputKind::kCache && facts.pair.has_value()) names.insert(facts.pair->output->name);
    }
    return names;
  }

  void MatchOutputs(const Function& function, const Function& other) {
    const std::set<std::string> caches_a = CacheOutputs(a_, function);
    const std::set<std::string> caches_b = CacheOutputs(b_, other);
    std::vector<const Value*> left_a;
    std::vector<const Value*> left_b(other.body().outputs().begin(), other.body().outputs().end());
    auto& pairs = outputs_[function.name];
    for (const Value* output : function.body().outputs()) {
      const std::string name = Renamed(output->name);
      const auto twin = std::ranges::find(left_b, name, &Value::name);
      const bool cache = caches_a.contains(output->name) || caches_b.contains(name);
      if (twin != left_b.end() && (!cache || (*twin)->type == output->type)) {
        pairs.emplace(output->name, name);
        left_b.erase(twin);
      } else if (!caches_a.contains(output->name)) {
        left_a.push_back(output);
      }
    }
    std::erase_if(left_b, [&](const Value* output) { return caches_b.contains(output->name); });
    for (const Value* output : left_a) {
      const auto twin = std::ranges::find_if(left_b, [&](const Value* value) { return value->type == output->type; });
      if (twin == left_b.end()) {
        Fault(fmt::format("output '{}' of '{}' is missing in B", output->name, function.name));
        continue;
      }
      Note(fmt::format("output '{}' of A is taken for '{}' of B", output->name, (*twin)->name));
      pairs.emplace(output->name, (*twin)->name);
      left_b.erase(twin);
    }
    for (const Value* output : left_b)
      Note(fmt::format("output '{}' of B has no counterpart in A and is not compared", output->name));
  }

  // ---- running ----

  // Whether functions may see what others have written.
  [[nodiscard]] bool SharesMemory() const {
    if (functions_.size() < 2) return false;
    std::set<std::string> seen;
    for (const auto& [function, other] : functions_) {
      std::set<std::string> own;
      for (const Value* state : function->States()) own.insert(state->name);
      for (const InputFacts& facts : a_.source->Inputs(function->name)->inputs) {
        if (facts.kind == InputKind::kCache) own.insert(facts.input->name);
      }
      for (const std::string& name : own) {
        if (!seen.insert(name).second) return true;
      }
    }
    return false;
  }

  // Two steps of each function, the longest query first; the rest of the steps go to the last.
  [[nodiscard]] std::vector<size_t> MixedSequence() const {
    std::vector<size_t> order(functions_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::stable_sort(order, [this](size_t x, size_t y) {
      return a_.source->QueryLength(functions_[x].first->name) > a_.source->QueryLength(functions_[y].first->name);
    });
    std::vector<size_t> sequence;
    for (size_t i = 0; i < static_cast<size_t>(options_.steps); ++i)
      sequence.push_back(order[std::min(i / 2, order.size() - 1)]);
    return sequence;
  }

  Status RunSequence(const std::vector<size_t>& sequence) {
    uint64_t seed = options_.seed;
    size_t since_restart = 0;
    const Function* last = nullptr;
    MW_RETURN_IF_ERROR(a_.Restart(seed));
    MW_RETURN_IF_ERROR(b_.Restart(seed));
    for (size_t step = 0; step < sequence.size(); ++step) {
      const auto& [function, other] = functions_[sequence[step]];
      if (since_restart > 0 && !(a_.source->HasRoom(function->name) && b_.source->HasRoom(other->name))) {
        MW_RETURN_IF_ERROR(CompareEnd(*last, step - 1));
        ++seed;
        MW_RETURN_IF_ERROR(a_.Restart(seed));
        MW_RETURN_IF_ERROR(b_.Restart(seed));
        since_restart = 0;
      }
      auto expected = a_.Step(function->name);
      if (!expected.ok()) return expected.status().WithContext(fmt::format("step {} of '{}'", step, function->name));
      auto actual = b_.Step(other->name);
      if (!actual.ok()) {
        Fault(fmt::format("step {} of '{}' fails in B: {}", step, function->name, actual.status().message()));
        return Status::Ok();
      }
      for (const auto& [name_a, name_b] : outputs_[function->name]) {
        const Tensor& wanted = expected->at(name_a);
        Record(function->name, false, name_a, name_b, wanted,
               CompareTensors(actual->at(name_b), wanted, options_.tolerance), wanted.shape(), step);
      }
      last = function;
      ++since_restart;
      ++report_.steps;
    }
    return last != nullptr ? CompareEnd(*last, sequence.size() - 1) : Status::Ok();
  }

  Status CompareEnd(const Function& function, size_t step) {
    const Function* other = functions_[IndexOf(&function)].second;
    MW_ASSIGN_OR_RETURN(const Memory memory_a, a_.Remembered(function.name));
    MW_ASSIGN_OR_RETURN(const Memory memory_b, b_.Remembered(other->name));
    std::vector<std::string> notes;
    for (MemoryDifference& entry :
         CompareMemory(memory_a, memory_b, options_.names, a_.source->position(), options_.tolerance, notes)) {
      Record(function.name, true, entry.name_a, entry.name_b, memory_a.find(entry.name_a)->second.value,
             std::move(entry.difference), entry.shape, step);
    }
    for (std::string& note : notes) Note(std::move(note));
    return Status::Ok();
  }

  void Record(const std::string& function, bool is_memory, const std::string& name_a, const std::string& name_b,
              const Tensor& wanted, TensorDifference difference, const Shape& shape, size_t step) {
    auto entry = std::ranges::find_if(report_.values, [&](const ComparedValue& value) {
      return value.function == function && value.is_memory == is_memory && value.name_a == name_a &&
             value.name_b == name_b;
    });
    if (entry == report_.values.end()) {
      report_.values.push_back({function, is_memory, name_a, name_b, 0, true, {}, shape, 0});
      entry = report_.values.end() - 1;
    }
    if (entry->all_nan) {
      for (int64_t i = 0; i < wanted.size() && entry->all_nan; ++i)
        entry->all_nan = wanted.dtype() != DataType::kString && std::isnan(wanted.GetDouble(i));
    }
    if (entry->compared++ == 0 || Worse(difference, entry->worst)) {
      entry->worst = std::move(difference);
      entry->worst_shape = shape;
      entry->worst_step = step;
    }
  }

  const CompareOptions& options_;
  Side a_;
  Side b_;
  std::vector<std::pair<const Function*, const Function*>> functions_;
  std::map<std::string, std::string> keys_;                            // B's input to A's
  std::map<std::string, std::map<std::string, std::string>> outputs_;  // by A's function: A's output to B's
  CompareReport report_;
};

}  // namespace

bool CompareReport::equal() const {
  return faults.empty() && std::ranges::all_of(values, [](const ComparedValue& v) { return v.worst.passed(); });
}

const ComparedValue* CompareReport::worst() const {
  const ComparedValue* worst = nullptr;
  for (const ComparedValue& value : values) {
    if (worst == nullptr || Worse(value.worst, worst->worst)) worst = &value;
  }
  return worst;
}

Result<CompareReport> CompareModels(const Model& a, const Model& b, const CompareOptions& options) {
  if (options.steps < 1) return Usage("at least one step is needed");
  return Comparison(a, b, options).Run();
}

std::string DescribeDifference(const ComparedValue& value) {
  std::string text = fmt::format("{} '{}'", value.is_memory ? "state" : "output", value.name_a);
  if (value.name_b != value.name_a) text += fmt::format(" (in B '{}')", value.name_b);
  text += fmt::format(" of '{}', step {}: ", value.function, value.worst_step);
  const TensorDifference& d = value.worst;
  if (!d.note.empty()) return text + d.note;
  text += fmt::format("{} is {:.6g}, expected {:.6g}", ElementPlace(d.worst_index, value.worst_shape), d.actual,
                      d.expected);
  if (d.failures > 0) text += fmt::format(" ({} elements differ)", d.failures);
  return text;
}

}  // namespace milwright
