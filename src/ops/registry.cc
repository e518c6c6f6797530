#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <iostream>
#include <utility>

#include "ops/op.h"

namespace milwright {
namespace {

// Reads schema lines (grammar in op.h). The lines are constants of this program, so a fault in one ends it at start-up.
class SchemaParser {
 public:
  explicit SchemaParser(std::string_view text) : text_(text), rest_(text) {}

  OpDefinition Parse() {
    OpDefinition op;
    op.name = Word();
    ParseDomains();
    Expect('(');
    while (!Accept(')')) {
      if (!op.parameters.empty()) Expect(',');
      op.parameters.push_back(Parameter());
    }
    return op;
  }

 private:
  [[noreturn]] void Fail(std::string_view what) const {
    std::cerr << "op schema \"" << text_ << "\": " << what << " at \"" << rest_ << "\"\n";
    std::abort();
  }

  void SkipSpace() {
    while (!rest_.empty() && rest_.front() == ' ') rest_.remove_prefix(1);
  }
  bool Accept(std::string_view token) {
    SkipSpace();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  bool Accept(char token) { return Accept(std::string_view(&token, 1)); }
  void Expect(char token) {
    if (!Accept(token)) Fail(std::string("expected '") + token + "'");
  }
  std::string Word() {
    SkipSpace();
    const auto end = std::ranges::find_if_not(rest_, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
    const auto length = static_cast<size_t>(end - rest_.begin());
    if (length == 0) Fail("expected a word");
    std::string word(rest_.substr(0, length));
    rest_.remove_prefix(length);
    return word;
  }

  // The part after "where", read first: parameters refer to it.
  void ParseDomains() {
    const size_t where = rest_.find(" where ");
    if (where == std::string_view::npos) return;
    std::string_view head = rest_.substr(0, where);
    rest_.remove_prefix(where + 7);
    do {
      std::string name = Word();
      Expect('=');
      domains_[name] = Types(Word());
    } while (Accept(','));
    rest_ = head;
  }

  TypeSet Types(std::string first) {
    TypeSet set;
    std::string name = std::move(first);
    while (true) {
      const auto type = DataTypeFromName(name);
      if (!type.has_value()) Fail("'" + name + "' is no data type");
      set.bits |= uint64_t{1} << static_cast<unsigned>(*type);
      if (!Accept('|')) return set;
      name = Word();
    }
  }

  ParameterSpec Parameter() {
    ParameterSpec spec;
    std::string word = Word();
    if (word == "const") {
      spec.constant = true;
      word = Word();
    }
    if (word == "attr") {
      spec.constant = true;
      spec.attribute = true;
      word = Word();
    }
    if (word == "state") {
      spec.kind = ParameterSpec::Kind::kState;
    } else if (word == "list") {
      spec.kind = ParameterSpec::Kind::kList;
    } else if (word == "any") {
      spec.kind = ParameterSpec::Kind::kAny;
    } else if (const auto it = domains_.find(word); it != domains_.end()) {
      spec.domain = word;
      spec.types = it->second;
    } else {
      spec.types = Types(word);
    }
    if (Accept("...") && spec.kind != ParameterSpec::Kind::kAny) spec.kind = ParameterSpec::Kind::kVariadic;
    spec.name = Word();
    if (Accept('?')) {
      spec.optional = true;
    } else if (Accept('=')) {
      spec.optional = true;
      spec.default_value = Default(spec);
    }
    return spec;
  }

  Literal Default(const ParameterSpec& spec) {
    if (Accept('"')) {
      const size_t end = rest_.find('"');
      std::string text(rest_.substr(0, end));
      rest_.remove_prefix(end + 1);
      return Literal::String(std::move(text));
    }
    if (Accept("true")) return Literal::Bool(true);
    if (Accept("false")) return Literal::Bool(false);
    if (Accept('[')) {
      std::vector<int64_t> values;
      while (!Accept(']')) {
        if (!values.empty()) Expect(',');
        values.push_back(static_cast<int64_t>(Number()));
      }
      return Literal::Int32s(values);
    }
    // Several types possible: integers stay int32, everything else is kept in fp32 and read as the kernel needs it.
    const bool integer = spec.types.Contains(DataType::kInt32) && !spec.types.Contains(DataType::kFp32);
    return Literal::Float(integer ? DataType::kInt32 : DataType::kFp32, Number());
  }

  double Number() {
    SkipSpace();
    double value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc()) Fail("expected a number");
    rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
    return value;
  }

  std::string_view text_;
  std::string_view rest_;
  std::map<std::string, TypeSet> domains_;
};

}  // namespace

const ParameterSpec* OpDefinition::Find(std::string_view parameter) const {
  const auto it = std::ranges::find(parameters, parameter, &ParameterSpec::name);
  return it != parameters.end() ? &*it : nullptr;
}

OpDefinition Op(Opset since, std::string_view schema, InferFunction infer, EvaluateFunction evaluate, Effect effect,
                int blocks) {
  OpDefinition op = SchemaParser(schema).Parse();
  op.since = since;
  op.infer = infer;
  op.evaluate = evaluate;
  op.effect = effect;
  op.blocks = blocks;
  return op;
}

OpRegistry::OpRegistry() {
  using Family = std::vector<OpDefinition> (*)();
  constexpr Family kFamilies[] = {
      ElementwiseOps, ActivationOps, ReductionOps, SortOps,      CreationOps,    ShapeOps,    AssemblyOps,
      SpaceOps,       SliceOps,      GatherOps,    LinearOps,    ConvolutionOps, PoolOps,     NormalizationOps,
      ResizeOps,      QuantizeOps,   ConstexprOps, RecurrentOps, ControlFlowOps, ResampleOps,
  };
  for (const Family family : kFamilies) {
    for (OpDefinition& op : family()) by_name_[op.name].push_back(std::move(op));
  }
  for (auto& [name, versions] : by_name_) {
    std::ranges::sort(versions, std::greater<>(), &OpDefinition::since);
  }
}

const OpRegistry& OpRegistry::Get() {
  static const OpRegistry registry;
  return registry;
}

const OpDefinition* OpRegistry::Find(std::string_view op, Opset opset) const {
  for (const OpDefinition& version : Versions(op)) {
    if (version.since <= opset) return &version;
  }
  return nullptr;
}

std::optional<Opset> OpRegistry::FirstOpset(std::string_view op) const {
  const auto versions = Versions(op);
  return versions.empty() ? std::nullopt : std::optional(versions.back().since);
}

std::vector<std::string_view> OpRegistry::Names() const {
  std::vector<std::string_view> names;
  for (const auto& [name, versions] : by_name_) names.push_back(name);
  return names;
}

std::span<const OpDefinition> OpRegistry::Versions(std::string_view op) const {
  const auto it = by_name_.find(op);
  return it != by_name_.end() ? std::span<const OpDefinition>(it->second) : std::span<const OpDefinition>();
}

}  // namespace milwright
