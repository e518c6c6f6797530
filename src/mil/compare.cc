// Structural equality and fingerprints of programs.
#include <bit>
#include <functional>
#include <unordered_map>

#include "mil/model.h"
#include "mil/program.h"

namespace milwright {
namespace {

class Comparer {
 public:
  Comparer(const EqualOptions& options, std::string* why) : options_(options), why_(why) {}

  bool Programs(const Program& a, const Program& b) {
    if (a.version != b.version) return Differ("program", "version");
    if (!options_.ignore_program_attributes && a.attributes != b.attributes) return Differ("program", "attributes");
    if (a.doc_string != b.doc_string) return Differ("program", "doc string");
    if (a.functions().size() != b.functions().size()) return Differ("program", "number of functions");
    for (const auto& function : a.functions()) {
      const Function* other = b.FindFunction(function->name);
      if (other == nullptr) return Differ(function->name, "function is missing on one side");
      if (!Functions(*function, *other)) return false;
    }
    return true;
  }

 private:
  bool Differ(const std::string& place, const std::string& what) {
    if (why_ != nullptr) *why_ = place + ": " + what;
    return false;
  }

  bool Functions(const Function& a, const Function& b) {
    if (a.opset != b.opset) return Differ(a.name, "opset");
    if (a.attributes != b.attributes) return Differ(a.name, "function attributes");
    if (a.inputs().size() != b.inputs().size()) return Differ(a.name, "number of inputs");
    for (size_t i = 0; i < a.inputs().size(); ++i) {
      const Value* mine = a.inputs()[i].get();
      const Value* theirs = options_.match_function_inputs_by_name ? b.FindInput(mine->name) : b.inputs()[i].get();
      if (theirs == nullptr || !Same(*mine, *theirs)) return Differ(a.name, "input '" + mine->name + "'");
    }
    return Blocks(a.body(), b.body(), a.name);
  }

  // Values correspond by position; their names must agree too.
  bool Same(const Value& a, const Value& b) {
    map_[&a] = &b;
    return a.name == b.name && a.type == b.type;
  }

  bool Blocks(const Block& a, const Block& b, const std::string& place) {
    if (a.attributes != b.attributes) return Differ(place, "block attributes");
    if (a.inputs().size() != b.inputs().size()) return Differ(place, "number of block inputs");
    for (size_t i = 0; i < a.inputs().size(); ++i) {
      if (!Same(*a.inputs()[i], *b.inputs()[i])) return Differ(place, "block input '" + a.inputs()[i]->name + "'");
    }
    auto other = b.operations().begin();
    for (const auto& op : a.operations()) {
      if (other == b.operations().end()) return Differ(OperationPath(*op), "no counterpart");
      if (!Operations(*op, **other)) return false;
      ++other;
    }
    if (other != b.operations().end()) return Differ(OperationPath(**other), "no counterpart");
    if (a.outputs().size() != b.outputs().size()) return Differ(place, "number of outputs");
    for (size_t i = 0; i < a.outputs().size(); ++i) {
      if (!Corresponds(a.outputs()[i], b.outputs()[i])) return Differ(place, "output '" + a.outputs()[i]->name + "'");
    }
    return true;
  }

  bool Operations(const Operation& a, const Operation& b) {
    const auto differ = [&](const std::string& what) { return Differ(OperationPath(a), what); };
    if (a.type() != b.type()) return differ("is " + b.type() + " on the other side");
    if (a.attributes != b.attributes) {
      for (const auto& [name, value] : a.attributes) {
        const Literal* other = b.FindAttribute(name);
        if (other == nullptr || !(*other == value)) return differ("attribute '" + name + "'");
      }
      return differ("attributes");
    }
    if (a.inputs().size() != b.inputs().size()) return differ("number of inputs");
    for (size_t i = 0; i < a.inputs().size(); ++i) {
      const Input& mine = a.inputs()[i];
      const Input& theirs = b.inputs()[i];
      if (mine.name != theirs.name || mine.arguments.size() != theirs.arguments.size()) {
        return differ("input '" + mine.name + "'");
      }
      for (size_t k = 0; k < mine.arguments.size(); ++k) {
        const Operand& x = mine.arguments[k];
        const Operand& y = theirs.arguments[k];
        const bool same =
            x.value != nullptr ? Corresponds(x.value, y.value) : y.literal != nullptr && *x.literal == *y.literal;
        if (!same) return differ("input '" + mine.name + "'");
      }
    }
    if (a.blocks().size() != b.blocks().size()) return differ("number of blocks");
    for (size_t i = 0; i < a.blocks().size(); ++i) {
      if (!Blocks(*a.blocks()[i], *b.blocks()[i], OperationPath(a))) return false;
    }
    if (a.outputs().size() != b.outputs().size()) return differ("number of outputs");
    for (size_t i = 0; i < a.outputs().size(); ++i) {
      if (!Same(*a.outputs()[i], *b.outputs()[i])) return differ("output '" + a.outputs()[i]->name + "'");
    }
    return true;
  }

  bool Corresponds(const Value* a, const Value* b) const {
    const auto it = map_.find(a);
    return it != map_.end() && it->second == b;
  }

  const EqualOptions& options_;
  std::string* why_;
  std::unordered_map<const Value*, const Value*> map_;
};

// FNV-1a over 64-bit words.
class Hasher {
 public:
  void Number(uint64_t value) { hash_ = (hash_ ^ value) * 0x100000001B3ULL; }
  void Text(std::string_view text) { Number(std::hash<std::string_view>{}(text)); }
  void TypeOf(const Type& type) {
    Number(static_cast<uint64_t>(type.kind));
    Number(static_cast<uint64_t>(type.tensor.dtype));
    Number(type.tensor.shape.size());
    for (int64_t size : type.tensor.shape) Number(static_cast<uint64_t>(size));
    Number(static_cast<uint64_t>(type.length));
    for (const Type& element : type.elements) TypeOf(element);
  }
  void Content(const Literal& literal) {
    TypeOf(literal.type);
    const auto bytes = literal.tensor.bytes();
    if (literal.blob.has_value()) {
      Number(reinterpret_cast<uintptr_t>(bytes.data()));
    } else {
      Text({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    }
    for (const std::string& text : literal.tensor.strings()) Text(text);
    for (const Literal& element : literal.elements) Content(element);
    for (const auto& [key, value] : literal.entries) {
      Content(key);
      Content(value);
    }
  }
  void Define(const Value& value) {
    Number(ids_.emplace(&value, ids_.size()).first->second);
    Text(value.name);
    TypeOf(value.type);
  }
  void Read(const Value& value) {
    const auto it = ids_.find(&value);
    Number(it != ids_.end() ? it->second : ~uint64_t{0});
  }
  void Attributes(const std::map<std::string, Literal, std::less<>>& attributes) {
    for (const auto& [name, value] : attributes) {
      Text(name);
      Content(value);
    }
  }
  void BlockOf(const Block& block) {
    Attributes(block.attributes);
    for (const auto& input : block.inputs()) Define(*input);
    for (const auto& op : block.operations()) {
      Text(op->type());
      Attributes(op->attributes);
      for (const Input& input : op->inputs()) {
        Text(input.name);
        for (const Operand& operand : input.arguments) {
          if (operand.value != nullptr) {
            Read(*operand.value);
          } else {
            Content(*operand.literal);
          }
        }
      }
      Number(op->blocks().size());
      for (const auto& nested : op->blocks()) BlockOf(*nested);
      for (const auto& output : op->outputs()) Define(*output);
    }
    Number(block.outputs().size());
    for (const Value* output : block.outputs()) Read(*output);
  }
  [[nodiscard]] uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 0xCBF29CE484222325ULL;
  std::unordered_map<const Value*, uint64_t> ids_;
};

}  // namespace

bool ProgramsEqual(const Program& a, const Program& b, const EqualOptions& options, std::string* why) {
  return Comparer(options, why).Programs(a, b);
}

bool ModelsEqual(const ModelSpec& a, const ModelSpec& b, std::string* why) {
  const auto differ = [why](const char* what) {
    if (why != nullptr) *why = what;
    return false;
  };
  if (a.specification_version != b.specification_version) return differ("specification version");
  if (a.is_updatable != b.is_updatable) return differ("is_updatable");
  if (!(a.description == b.description)) return differ("description");
  if (a.unknown_fields != b.unknown_fields) return differ("unknown fields");
  return ProgramsEqual(a.program, b.program, {}, why);
}

uint64_t Fingerprint(const Program& program) {
  Hasher hasher;
  hasher.Attributes(program.attributes);
  for (const auto& function : program.functions()) {
    hasher.Text(function->name);
    hasher.Number(static_cast<uint64_t>(function->opset));
    hasher.Attributes(function->attributes);
    for (const auto& input : function->inputs()) hasher.Define(*input);
    hasher.BlockOf(function->body());
  }
  return hasher.value();
}

}  // namespace milwright
