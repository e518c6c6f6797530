#include "passes/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

namespace milwright {
namespace {

// coremltools stores constants from this size on in the weight file.
constexpr int64_t kWeightElements = 10;
constexpr size_t kMaxQuoted = 80;

std::string Quoted(const Literal& literal) {
  if (literal.IsString()) return fmt::format("\"{}\"", literal.AsString());
  if (!literal.type.IsTensor() || literal.tensor.size() > kWeightElements) return TypeToString(literal.type);
  std::string text;
  for (int64_t i = 0; i < literal.tensor.size(); ++i) {
    const std::string element = literal.tensor.dtype() == DataType::kString
                                    ? "\"" + literal.tensor.strings()[static_cast<size_t>(i)] + "\""
                                    : fmt::format("{:g}", literal.tensor.GetDouble(i));
    text += (i > 0 ? ", " : "") + element;
  }
  return literal.tensor.rank() == 0 ? text : "[" + text + "]";
}

bool IsWeight(const Literal& literal) { return literal.type.IsTensor() && literal.tensor.size() >= kWeightElements; }

bool SameBytes(const Literal& a, const Literal& b) {
  const auto x = a.tensor.bytes();
  const auto y = b.tensor.bytes();
  return (x.data() == y.data() && x.size() == y.size()) || a == b;
}

class Differ {
 public:
  explicit Differ(std::vector<DiffEntry>& entries) : entries_(entries) {}

  void Functions(const Program& a, const Program& b) {
    for (const auto& function : a.functions()) {
      const Function* other = b.FindFunction(function->name);
      if (other == nullptr) {
        Add(DiffKind::kRemoved, "function '" + function->name + "'");
      } else {
        CompareFunctions(*function, *other);
      }
    }
    for (const auto& function : b.functions()) {
      if (a.FindFunction(function->name) == nullptr) Add(DiffKind::kAdded, "function '" + function->name + "'");
    }
  }

 private:
  void Add(DiffKind kind, std::string path, std::vector<std::string> changes = {}) {
    entries_.push_back({kind, std::move(path), std::move(changes)});
  }
  void AddChanges(std::string path, std::vector<std::string> changes) {
    if (!changes.empty()) Add(DiffKind::kChanged, std::move(path), std::move(changes));
  }

  void CompareFunctions(const Function& a, const Function& b) {
    if (a.opset != b.opset) {
      AddChanges("function '" + a.name + "'", {fmt::format("opset: {} -> {}", OpsetName(a.opset), OpsetName(b.opset))});
    }
    for (const auto& input : a.inputs()) {
      Value* twin = b.FindInput(input->name);
      const std::string path = FeaturePath(a, *input);
      if (twin == nullptr) {
        Add(DiffKind::kRemoved, path);
        continue;
      }
      counterpart_[input.get()] = twin;
      if (!(twin->type == input->type)) AddChanges(path, {TypeChange(*input, *twin)});
    }
    for (const auto& input : b.inputs()) {
      if (a.FindInput(input->name) == nullptr) Add(DiffKind::kAdded, FeaturePath(b, *input));
    }
    CompareBlocks(a.body(), b.body());
    std::set<std::string> in_a;
    std::map<std::string, const Value*> in_b;
    for (const Value* output : b.body().outputs()) in_b.emplace(output->name, output);
    for (const Value* output : a.body().outputs()) {
      in_a.insert(output->name);
      const std::string path = fmt::format("{}/output '{}'", a.name, output->name);
      const auto twin = in_b.find(output->name);
      if (twin == in_b.end()) {
        Add(DiffKind::kRemoved, path);
      } else if (!(twin->second->type == output->type)) {
        AddChanges(path, {TypeChange(*output, *twin->second)});
      }
    }
    for (const auto& [name, output] : in_b) {
      if (!in_a.contains(name)) Add(DiffKind::kAdded, fmt::format("{}/output '{}'", b.name, name));
    }
  }

  static std::string FeaturePath(const Function& function, const Value& value) {
    return fmt::format("{}/{} '{}'", function.name, value.type.IsState() ? "state" : "input", value.name);
  }
  static std::string TypeChange(const Value& a, const Value& b) {
    return fmt::format("type: {} -> {}", TypeToString(a.type), TypeToString(b.type));
  }

  // Constants count as part of their readers, unless a block hands them out itself.
  static std::vector<const Operation*> Listed(const Block& block) {
    std::vector<const Operation*> ops;
    for (const auto& op : block.operations()) {
      if (op->type() != "const") ops.push_back(op.get());
    }
    return ops;
  }

  static std::string NameKey(const Operation& op) {
    return op.type() + " " + (op.outputs().empty() ? op.name() : op.output()->name);
  }
  static std::string TypeKey(const Operation& op) {
    std::string key = op.type();
    for (const auto& output : op.outputs()) key += " " + TypeToString(output->type);
    return key;
  }

  using Pairs = std::unordered_map<const Operation*, const Operation*>;

  // Pairs the unpaired of both lists that have equal keys, in order.
  static void Pair(const std::vector<const Operation*>& a, const std::vector<const Operation*>& b,
                   std::string (*key)(const Operation&), Pairs& to_b, Pairs& to_a) {
    std::unordered_map<std::string, std::vector<const Operation*>> waiting;  // last first
    for (size_t i = b.size(); i-- > 0;) {
      if (!to_a.contains(b[i])) waiting[key(*b[i])].push_back(b[i]);
    }
    for (const Operation* op : a) {
      if (to_b.contains(op)) continue;
      const auto it = waiting.find(key(*op));
      if (it == waiting.end() || it->second.empty()) continue;
      to_b.emplace(op, it->second.back());
      to_a.emplace(it->second.back(), op);
      it->second.pop_back();
    }
  }

  // The ops of `a` that keep their order in `b`: a longest increasing run of places. The others have moved.
  static std::set<const Operation*> InOrder(const std::vector<const Operation*>& a,
                                            const std::vector<const Operation*>& b, const Pairs& to_b) {
    std::unordered_map<const Operation*, size_t> place;
    for (size_t i = 0; i < b.size(); ++i) place.emplace(b[i], i);
    std::vector<size_t> tails;              // smallest last place of a run of each length
    std::vector<const Operation*> tail_op;  // its op
    std::unordered_map<const Operation*, const Operation*> before;
    for (const Operation* op : a) {
      const auto it = to_b.find(op);
      if (it == to_b.end()) continue;
      const size_t at = place.at(it->second);
      const auto length = static_cast<size_t>(std::ranges::lower_bound(tails, at) - tails.begin());
      if (length == tails.size()) {
        tails.push_back(at);
        tail_op.push_back(op);
      } else {
        tails[length] = at;
        tail_op[length] = op;
      }
      if (length > 0) before[op] = tail_op[length - 1];
    }
    std::set<const Operation*> kept;
    for (const Operation* op = tail_op.empty() ? nullptr : tail_op.back(); op != nullptr;) {
      kept.insert(op);
      const auto it = before.find(op);
      op = it != before.end() ? it->second : nullptr;
    }
    return kept;
  }

  void CompareBlocks(const Block& a, const Block& b) {
    for (size_t i = 0; i < std::min(a.inputs().size(), b.inputs().size()); ++i)
      counterpart_[a.inputs()[i].get()] = b.inputs()[i].get();
    const auto ops_a = Listed(a);
    const auto ops_b = Listed(b);
    Pairs to_b;
    Pairs to_a;
    Pair(ops_a, ops_b, NameKey, to_b, to_a);
    Pair(ops_a, ops_b, TypeKey, to_b, to_a);
    for (const Operation* op : ops_a) {
      const auto it = to_b.find(op);
      if (it == to_b.end()) continue;
      for (size_t i = 0; i < std::min(op->outputs().size(), it->second->outputs().size()); ++i)
        counterpart_[op->output(i)] = it->second->output(i);
    }
    const auto in_order = InOrder(ops_a, ops_b, to_b);
    for (const Operation* op : ops_a) {
      const auto it = to_b.find(op);
      if (it == to_b.end()) {
        Add(DiffKind::kRemoved, OperationPath(*op));
        continue;
      }
      if (!in_order.contains(op)) Add(DiffKind::kMoved, OperationPath(*op), {"now " + OperationPath(*it->second)});
      CompareOperations(*op, *it->second);
    }
    for (const Operation* op : ops_b) {
      if (!to_a.contains(op)) Add(DiffKind::kAdded, OperationPath(*op));
    }
    if (a.parent() != nullptr) CompareBlockOutputs(a, b);
  }

  void CompareBlockOutputs(const Block& a, const Block& b) {
    std::vector<std::string> changes;
    if (a.outputs().size() != b.outputs().size()) {
      changes.push_back(fmt::format("block outputs: {} -> {}", a.outputs().size(), b.outputs().size()));
    }
    for (size_t i = 0; i < std::min(a.outputs().size(), b.outputs().size()); ++i)
      CompareOperands(fmt::format("block output {}", i), Operand(a.outputs()[i]), Operand(b.outputs()[i]), changes);
    AddChanges(OperationPath(*a.parent()), std::move(changes));
  }

  static std::string Shown(const Operand& operand) {
    const Literal* constant = operand.constant();
    if (constant != nullptr && !IsWeight(*constant)) return Quoted(*constant);
    return operand.value != nullptr ? "'" + operand.value->name + "'" : TypeToString(operand.type());
  }

  void CompareOperands(const std::string& what, const Operand& a, const Operand& b,
                       std::vector<std::string>& changes) const {
    const Literal* x = a.constant();
    const Literal* y = b.constant();
    if (x != nullptr && y != nullptr) {
      const bool weight = IsWeight(*x) || IsWeight(*y);
      if (!(x->type == y->type)) {
        changes.push_back(fmt::format("{} {}: {} -> {}", weight ? "weight" : "input", what, TypeToString(x->type),
                                      TypeToString(y->type)));
      } else if (!SameBytes(*x, *y)) {
        changes.push_back(weight ? fmt::format("weight {}: other values of {}", what, TypeToString(x->type))
                                 : fmt::format("input {}: {} -> {}", what, Quoted(*x), Quoted(*y)));
      } else if (weight && a.value != nullptr && b.value != nullptr && a.value->name != b.value->name) {
        changes.push_back(fmt::format("weight {}: renamed '{}' -> '{}'", what, a.value->name, b.value->name));
      }
      return;
    }
    const auto twin = a.value != nullptr ? counterpart_.find(a.value) : counterpart_.end();
    const bool same = x == nullptr && y == nullptr && twin != counterpart_.end() && twin->second == b.value;
    if (!same) changes.push_back(fmt::format("input {}: {} -> {}", what, Shown(a), Shown(b)));
  }

  void CompareOperations(const Operation& a, const Operation& b) {
    std::vector<std::string> changes;
    for (size_t i = 0; i < std::max(a.outputs().size(), b.outputs().size()); ++i) {
      if (i >= a.outputs().size() || i >= b.outputs().size()) {
        changes.push_back(fmt::format("outputs: {} -> {}", a.outputs().size(), b.outputs().size()));
        break;
      }
      if (a.output(i)->name != b.output(i)->name)
        changes.push_back(fmt::format("name: '{}' -> '{}'", a.output(i)->name, b.output(i)->name));
      if (!(a.output(i)->type == b.output(i)->type)) changes.push_back(TypeChange(*a.output(i), *b.output(i)));
    }
    for (const Input& input : a.inputs()) {
      const Input* other = b.FindInput(input.name);
      if (other == nullptr) {
        changes.push_back(fmt::format("input {}: {} -> absent", input.name, Shown(input.arguments.front())));
        continue;
      }
      if (input.arguments.size() != other->arguments.size()) {
        changes.push_back(
            fmt::format("input {}: {} arguments -> {}", input.name, input.arguments.size(), other->arguments.size()));
        continue;
      }
      for (size_t i = 0; i < input.arguments.size(); ++i) {
        const std::string what = input.arguments.size() > 1 ? fmt::format("{}[{}]", input.name, i) : input.name;
        CompareOperands(what, input.arguments[i], other->arguments[i], changes);
      }
    }
    for (const Input& input : b.inputs()) {
      if (a.FindInput(input.name) == nullptr)
        changes.push_back(fmt::format("input {}: absent -> {}", input.name, Shown(input.arguments.front())));
    }
    CompareAttributes(a, b, changes);
    if (a.blocks().size() != b.blocks().size())
      changes.push_back(fmt::format("blocks: {} -> {}", a.blocks().size(), b.blocks().size()));
    AddChanges(OperationPath(a), std::move(changes));
    for (size_t i = 0; i < std::min(a.blocks().size(), b.blocks().size()); ++i)
      CompareBlocks(*a.blocks()[i], *b.blocks()[i]);
  }

  static void CompareAttributes(const Operation& a, const Operation& b, std::vector<std::string>& changes) {
    const auto shown = [](const Literal* literal) {
      return literal != nullptr ? Quoted(*literal).substr(0, kMaxQuoted) : std::string("absent");
    };
    std::set<std::string> names;
    for (const auto& [name, literal] : a.attributes) names.insert(name);
    for (const auto& [name, literal] : b.attributes) names.insert(name);
    names.erase("name");  // a label
    for (const std::string& name : names) {
      const Literal* x = a.FindAttribute(name);
      const Literal* y = b.FindAttribute(name);
      if (x != nullptr && y != nullptr && x->type == y->type && SameBytes(*x, *y)) continue;
      const bool values = x != nullptr && y != nullptr && IsWeight(*x) && x->type == y->type;
      changes.push_back(values ? fmt::format("attribute {}: other values of {}", name, TypeToString(x->type))
                               : fmt::format("attribute {}: {} -> {}", name, shown(x), shown(y)));
    }
  }

  std::vector<DiffEntry>& entries_;
  std::unordered_map<const Value*, const Value*> counterpart_;  // A's value to B's
};

void CompareText(std::string_view what, const std::string& a, const std::string& b, std::vector<std::string>& changes) {
  if (a != b)
    changes.push_back(fmt::format("{}: '{}' -> '{}'", what, a.substr(0, kMaxQuoted), b.substr(0, kMaxQuoted)));
}

void CompareDescriptions(const ModelDescription& a, const ModelDescription& b, std::vector<std::string>& changes) {
  CompareText("default function", a.default_function, b.default_function, changes);
  CompareText("description", a.metadata.short_description, b.metadata.short_description, changes);
  CompareText("version", a.metadata.version, b.metadata.version, changes);
  CompareText("author", a.metadata.author, b.metadata.author, changes);
  CompareText("license", a.metadata.license, b.metadata.license, changes);
  for (const auto& [key, value] : a.metadata.user_defined) {
    const auto it = b.metadata.user_defined.find(key);
    CompareText("metadata " + key, value, it != b.metadata.user_defined.end() ? it->second : "", changes);
  }
  for (const auto& [key, value] : b.metadata.user_defined) {
    if (!a.metadata.user_defined.contains(key)) CompareText("metadata " + key, "", value, changes);
  }
}

// Features as the description states them: flexibility, optional values, texts.
void CompareFeatures(const std::string& function, const char* kind, const std::vector<FeatureDescription>& a,
                     const std::vector<FeatureDescription>& b, std::vector<DiffEntry>& entries) {
  for (const FeatureDescription& feature : a) {
    const auto twin = std::ranges::find(b, feature.name, &FeatureDescription::name);
    const std::string path = fmt::format("{}/described {} '{}'", function, kind, feature.name);
    if (twin == b.end()) {
      entries.push_back({DiffKind::kRemoved, path, {}});
      continue;
    }
    std::vector<std::string> changes;
    CompareText("description", feature.short_description, twin->short_description, changes);
    if (feature.type.array.dtype != twin->type.array.dtype || feature.type.array.shape != twin->type.array.shape) {
      changes.push_back(fmt::format("type: {} {} -> {} {}", DataTypeName(feature.type.array.dtype),
                                    ShapeToString(feature.type.array.shape), DataTypeName(twin->type.array.dtype),
                                    ShapeToString(twin->type.array.shape)));
    } else if (!(feature.type == twin->type)) {
      changes.emplace_back("other flexibility, kind or default");
    }
    if (!changes.empty()) entries.push_back({DiffKind::kChanged, path, std::move(changes)});
  }
  for (const FeatureDescription& feature : b) {
    if (std::ranges::find(a, feature.name, &FeatureDescription::name) == a.end())
      entries.push_back({DiffKind::kAdded, fmt::format("{}/described {} '{}'", function, kind, feature.name), {}});
  }
}

}  // namespace

std::string_view DiffKindName(DiffKind kind) {
  switch (kind) {
    case DiffKind::kAdded:
      return "added";
    case DiffKind::kRemoved:
      return "removed";
    case DiffKind::kMoved:
      return "moved";
    case DiffKind::kChanged:
      return "changed";
  }
  return "";
}

ModelDiff DiffPrograms(const Program& a, const Program& b) {
  ModelDiff diff;
  Differ(diff.entries).Functions(a, b);
  return diff;
}

ModelDiff DiffModels(const ModelSpec& a, const ModelSpec& b) {
  ModelDiff diff;
  std::vector<std::string> changes;
  if (a.specification_version != b.specification_version)
    changes.push_back(fmt::format("specification version: {} -> {}", a.specification_version, b.specification_version));
  CompareDescriptions(a.description, b.description, changes);
  if (!changes.empty()) diff.entries.push_back({DiffKind::kChanged, "model", std::move(changes)});
  for (const FunctionDescription& function : a.description.functions) {
    const FunctionDescription* twin = b.description.Find(function.name);
    if (twin == nullptr) continue;
    CompareFeatures(function.name, "input", function.inputs, twin->inputs, diff.entries);
    CompareFeatures(function.name, "output", function.outputs, twin->outputs, diff.entries);
    CompareFeatures(function.name, "state", function.states, twin->states, diff.entries);
  }
  Differ(diff.entries).Functions(a.program, b.program);
  return diff;
}

std::string DiffText(const ModelDiff& diff) {
  std::string text;
  for (const DiffEntry& entry : diff.entries) {
    constexpr std::string_view kSigns = "+->~";
    text += fmt::format("{} {}\n", kSigns[static_cast<size_t>(entry.kind)], entry.path);
    for (const std::string& change : entry.changes) text += fmt::format("    {}\n", change);
  }
  return text;
}

}  // namespace milwright
