// Passes that make a program smaller or tidier without changing what it means: dead code, common subexpressions,
// constants. They treat state operations as the ordered effects they are.
#include <fmt/format.h>

#include <functional>
#include <unordered_map>
#include <unordered_set>

#include "analysis/effects.h"
#include "ops/op.h"
#include "passes/edit.h"
#include "passes/entries.h"

namespace milwright {
namespace {

bool IsUsed(const Operation& op) {
  for (const auto& output : op.outputs()) {
    if (!output->uses().empty()) return true;
  }
  return false;
}

void EraseDead(Block& block) {
  Operation* op = block.operations().empty() ? nullptr : block.operations().back().get();
  while (op != nullptr) {
    Operation* previous = block.Previous(op);
    for (const auto& nested : op->blocks()) EraseDead(*nested);
    if (!IsUsed(*op) && !HasEffect(*op)) block.Erase(op);
    op = previous;
  }
}

// An interface value keeps its own operation: its name is what hosts know.
bool AnyFunctionOutput(const Operation& op) {
  for (const auto& output : op.outputs()) {
    if (IsFunctionOutput(*output)) return true;
  }
  return false;
}

// ---- common subexpressions ----

size_t HashLiteral(const Literal& literal) {
  size_t hash = static_cast<size_t>(literal.type.dtype()) * 31 + literal.tensor.bytes().size();
  const auto bytes = literal.tensor.bytes();
  // Weights are told apart by where they lie; short constants by content.
  if (bytes.size() > 4096) return hash * 31 + reinterpret_cast<size_t>(bytes.data());
  hash = hash * 31 + std::hash<std::string_view>{}({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  for (const std::string& text : literal.tensor.strings()) hash = hash * 31 + std::hash<std::string>{}(text);
  return hash;
}

bool SameLiteral(const Literal& a, const Literal& b) {
  const auto x = a.tensor.bytes();
  const auto y = b.tensor.bytes();
  if (x.size() > 4096) return a.type == b.type && x.data() == y.data() && x.size() == y.size();
  return a == b;
}

size_t HashOperation(const Operation& op) {
  size_t hash = std::hash<std::string>{}(op.type());
  for (const Input& input : op.inputs()) {
    hash = hash * 31 + std::hash<std::string>{}(input.name);
    for (const Operand& operand : input.arguments) {
      hash = hash * 31 +
             (operand.value != nullptr ? std::hash<const void*>{}(operand.value) : HashLiteral(*operand.literal));
    }
  }
  for (const auto& [name, literal] : op.attributes) {
    if (name != "name") hash = hash * 31 + HashLiteral(literal);
  }
  return hash;
}

bool SameOperation(const Operation& a, const Operation& b) {
  if (a.type() != b.type() || a.inputs().size() != b.inputs().size() || a.outputs().size() != b.outputs().size())
    return false;
  for (size_t i = 0; i < a.inputs().size(); ++i) {
    const Input& x = a.inputs()[i];
    const Input& y = b.inputs()[i];
    if (x.name != y.name || x.arguments.size() != y.arguments.size()) return false;
    for (size_t k = 0; k < x.arguments.size(); ++k) {
      const Operand& p = x.arguments[k];
      const Operand& q = y.arguments[k];
      if (p.value != q.value) return false;
      if (p.value == nullptr && !SameLiteral(*p.literal, *q.literal)) return false;
    }
  }
  if (a.attributes.size() != b.attributes.size()) return false;
  for (const auto& [name, literal] : a.attributes) {
    const Literal* other = b.FindAttribute(name);
    if (name != "name" && (other == nullptr || !SameLiteral(literal, *other))) return false;
  }
  for (size_t i = 0; i < a.outputs().size(); ++i) {
    if (!(a.output(i)->type == b.output(i)->type)) return false;
  }
  return true;
}

class Merger {
 public:
  void Run(Block& block) {
    std::vector<std::pair<size_t, Operation*>> added;
    std::unordered_map<const Value*, Operation*> reads;  // the latest read of each state with no write behind it
    for (Operation* op = First(block); op != nullptr;) {
      Operation* next = block.Next(op);
      for (const auto& nested : op->blocks()) Run(*nested);
      ForgetWritten(*op, reads);
      if (op->blocks().empty() && !AnyFunctionOutput(*op)) {
        if (IsStateRead(*op)) {
          const auto [it, is_new] = reads.emplace(StateOf(*op), op);
          if (!is_new) Replace(*op, *it->second);
        } else if (!IsImpure(*op)) {
          if (Operation* earlier = Find(*op); earlier != nullptr) {
            Replace(*op, *earlier);
          } else {
            const size_t hash = HashOperation(*op);
            known_.emplace(hash, op);
            added.emplace_back(hash, op);
          }
        }
      }
      op = next;
    }
    // What a nested block computes is not visible behind it.
    if (block.parent() == nullptr) return;
    for (const auto& [hash, op] : added) {
      auto [it, end] = known_.equal_range(hash);
      for (; it != end; ++it) {
        if (it->second == op) {
          known_.erase(it);
          break;
        }
      }
    }
  }

 private:
  static Operation* First(const Block& block) {
    return block.operations().empty() ? nullptr : block.operations().front().get();
  }

  static void ForgetWritten(const Operation& op, std::unordered_map<const Value*, Operation*>& reads) {
    for (auto it = reads.begin(); it != reads.end();) {
      it = AccessOf(op, it->first).writes ? reads.erase(it) : std::next(it);
    }
  }

  Operation* Find(const Operation& op) const {
    auto [it, end] = known_.equal_range(HashOperation(op));
    for (; it != end; ++it) {
      if (SameOperation(*it->second, op)) return it->second;
    }
    return nullptr;
  }

  static void Replace(Operation& op, Operation& earlier) {
    for (size_t i = 0; i < op.outputs().size(); ++i) op.output(i)->ReplaceAllUsesWith(earlier.output(i));
    op.parent()->Erase(&op);
  }

  std::unordered_multimap<size_t, Operation*> known_;
};

// ---- constant folding ----

// Folding must not blow a package up: results beyond this many bytes stay computed, unless the operands were larger.
constexpr int64_t kMaxFoldedBytes = 4096;

// The constant outputs of a pure op whose operands are all constant; empty when it cannot or should not be folded.
std::vector<Literal> Fold(const Operation& op, Opset opset) {
  const OpDefinition* definition = OpRegistry::Get().Find(op.type(), opset);
  if (definition == nullptr || definition->evaluate == nullptr || definition->effect != Effect::kNone) return {};
  if (op.type().starts_with("constexpr_") || !op.blocks().empty() || op.inputs().empty()) return {};
  OpContext ctx(*definition, opset);
  int64_t operand_bytes = 0;
  for (const Input& input : op.inputs()) {
    std::vector<OpContext::Argument> arguments;
    for (const Operand& operand : input.arguments) {
      const Literal* constant = operand.constant();
      if (constant == nullptr || !constant->type.IsTensor()) return {};
      operand_bytes += static_cast<int64_t>(constant->tensor.bytes().size());
      arguments.push_back({&constant->type, constant});
    }
    ctx.Bind(input.name, std::move(arguments));
  }
  const auto types = definition->infer(ctx);
  if (!types.ok()) return {};
  for (const Type& type : *types) {
    const auto bytes = ByteSize(type.tensor);
    if (!type.IsTensor() || !bytes.ok() || *bytes > std::max(kMaxFoldedBytes, operand_bytes)) return {};
  }
  // An op that fails at run time (an index out of range) must go on failing there.
  auto results = definition->evaluate(ctx, *types);
  return results.ok() ? *std::move(results) : std::vector<Literal>{};
}

void FoldBlock(Block& block, Opset opset) {
  for (Operation* op = block.operations().empty() ? nullptr : block.operations().front().get(); op != nullptr;) {
    Operation* next = block.Next(op);
    for (const auto& nested : op->blocks()) FoldBlock(*nested, opset);
    if (op->type() != "const" && !AnyFunctionOutput(*op)) {
      std::vector<Literal> results = Fold(*op, opset);
      if (results.size() == op->outputs().size() && !results.empty()) {
        for (size_t i = 0; i < results.size(); ++i) {
          auto constant = std::make_unique<Operation>("const");
          Value* value = constant->AddOutput(op->output(i)->name, results[i].type);
          constant->attributes.emplace("name", Literal::String(value->name));
          constant->attributes.emplace("val", std::move(results[i]));
          block.Insert(std::move(constant), op);
          op->output(i)->ReplaceAllUsesWith(value);
        }
        block.Erase(op);
      }
    }
    op = next;
  }
}

}  // namespace

Status DeadCodeElimination(ModelSpec& model, const PassArguments&, PassReport&) {
  for (const auto& function : model.program.functions()) EraseDead(function->body());
  return Status::Ok();
}

Status CommonSubexpressionElimination(ModelSpec& model, const PassArguments&, PassReport&) {
  for (const auto& function : model.program.functions()) Merger().Run(function->body());
  return Status::Ok();
}

Status ConstantFolding(ModelSpec& model, const PassArguments&, PassReport&) {
  for (const auto& function : model.program.functions()) FoldBlock(function->body(), function->opset);
  return Status::Ok();
}

}  // namespace milwright
