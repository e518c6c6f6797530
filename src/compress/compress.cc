#include "compress/compress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <regex>
#include <thread>
#include <tuple>
#include <unordered_set>

#include "mil/program.h"

namespace milwright {
namespace {

// The parameters that hold weight matrices.
bool IsWeightUse(const Use& use) {
  if (use.op == nullptr) return false;
  const std::string& type = use.op->type();
  return ((type == "linear" || type == "conv") && use.input == "weight") || (type == "gather" && use.input == "x") ||
         (type == "matmul" && (use.input == "x" || use.input == "y"));
}

struct CompiledRule {
  std::regex pattern;
  CompressionFormat format;
};

Result<std::vector<CompiledRule>> Compile(const std::vector<CompressionRule>& rules) {
  std::vector<CompiledRule> compiled;
  for (const CompressionRule& rule : rules) {
    try {
      compiled.push_back({std::regex(rule.pattern), rule.format});
    } catch (const std::regex_error& error) {
      return Status(ErrorCode::kUsage, fmt::format("'{}' is no regular expression: {}", rule.pattern, error.what()));
    }
  }
  return compiled;
}

// A compressed weight with its literals shared, so that all that use it refer to the same bytes.
struct SharedParts {
  std::vector<std::pair<std::string, LiteralPtr>> parts;
  std::vector<std::pair<std::string, LiteralPtr>> table;
  std::vector<std::pair<std::string, LiteralPtr>> scale;
  std::string op;
};

// Parts below this stay in memory: mapping them would take as much, and equal ones are found when the model is written.
constexpr size_t kStoredBytes = 64 << 10;

Result<std::vector<std::pair<std::string, LiteralPtr>>> Share(std::vector<CompressedTensor::Part>& parts,
                                                              const StorePart& store, int64_t* bytes) {
  std::vector<std::pair<std::string, LiteralPtr>> shared;
  for (CompressedTensor::Part& part : parts) {
    *bytes += static_cast<int64_t>(part.tensor.bytes().size());
    if (store && part.tensor.bytes().size() >= kStoredBytes) {
      MW_ASSIGN_OR_RETURN(part.tensor, store(part.tensor));
    }
    shared.emplace_back(part.parameter, Literal::Share(Literal(std::move(part.tensor))));
  }
  return shared;
}

// Dimensions of 1 behind the first two: one matrix is the weight of a linear layer or an embedding without them, and
// that of a 1x1 convolution with them.
size_t TrailingOnes(const Shape& shape) {
  size_t rank = shape.size();
  while (rank > 2 && shape[rank - 1] == 1) --rank;
  return shape.size() - rank;
}

// The parts of a weight with `ones` dimensions of 1 behind the `rank` that it was compressed with. The dimensions of a
// table's entries follow those of the weight, so they go between; lists (what a mask keeps) stay.
Result<std::vector<std::pair<std::string, LiteralPtr>>> Widened(
    const std::vector<std::pair<std::string, LiteralPtr>>& parts, size_t rank, size_t ones) {
  std::vector<std::pair<std::string, LiteralPtr>> widened = parts;
  for (auto& [parameter, literal] : widened) {
    Shape shape = literal->tensor.shape();
    if (shape.size() < rank) continue;
    shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(rank), ones, 1);
    MW_ASSIGN_OR_RETURN(Tensor tensor, literal->tensor.Reshaped(std::move(shape)));
    literal = Literal::Share(Literal(std::move(tensor)));
  }
  return widened;
}

Operation* InsertConstexpr(Block& block, Operation* before, const std::string& type, const std::string& name,
                           const std::vector<std::pair<std::string, LiteralPtr>>& parts) {
  auto op = std::make_unique<Operation>(type);
  op->attributes.emplace("name", Literal::String(name));
  Operation* placed = block.Insert(std::move(op), before);
  for (const auto& [parameter, literal] : parts) placed->SetInput(parameter, Operand(literal));
  return placed;
}

// The names of a function, collected once for all its weights.
class FunctionNames {
 public:
  explicit FunctionNames(const Function& function) : names_(function.Names()) {}
  // `base`, or it with a number, so that no value has it.
  std::string Take(const std::string& base) {
    std::string name = base;
    for (size_t i = 0; !names_.insert(name).second; ++i) name = fmt::format("{}_{}", base, i);
    return name;
  }

 private:
  std::unordered_set<std::string> names_;
};

// Puts constexpr ops in the place of a const op.
void Replace(FunctionNames& names, Operation& constant, const SharedParts& shared) {
  Block& block = *constant.parent();
  Value* old = constant.output();
  const std::string name = old->name;
  const Type type = old->type;
  const bool scaled = !shared.scale.empty();
  old->name.clear();  // the new value takes over the name
  Value* table = nullptr;
  if (!shared.table.empty()) {
    Operation* op = InsertConstexpr(block, &constant, "constexpr_blockwise_shift_scale", name + "_table", shared.table);
    const Literal& data = *shared.table.front().second;
    table = op->AddOutput(names.Take(name + "_table"), TensorType{type.dtype(), data.type.shape()});
  }
  const std::string inner_name = scaled ? names.Take(name + "_unscaled") : name;
  Operation* op = InsertConstexpr(block, &constant, shared.op, inner_name, shared.parts);
  if (table != nullptr) op->SetInput("lut", Operand(table));
  Value* value = op->AddOutput(inner_name, type);
  if (scaled) {
    Operation* outer = InsertConstexpr(block, &constant, "constexpr_blockwise_shift_scale", name, shared.scale);
    outer->SetInput("data", Operand(value));
    value = outer->AddOutput(name, type);
  }
  old->ReplaceAllUsesWith(value);
  block.Erase(&constant);
}

}  // namespace

Result<CompressReport> CompressModel(ModelSpec& model, const CompressOptions& options, const StorePart& store) {
  MW_ASSIGN_OR_RETURN(const std::vector<CompiledRule> rules, Compile(options.rules));
  TensorOptions tensor_options;
  tensor_options.decoded = false;
  tensor_options.threads =
      options.threads > 0 ? options.threads : static_cast<int>(std::thread::hardware_concurrency());
  CompressReport report;
  // Weights that functions or ops share, each for the number of TrailingOnes that it is used with; none: not
  // compressed.
  struct Known {
    std::map<size_t, SharedParts> forms;
    size_t rank = 0;  // of the matrix
  };
  std::map<std::tuple<const std::byte*, Shape, std::string>, Known> known;
  for (const auto& function : model.program.functions()) {
    if (function->opset < Opset::kIOS18) {
      return Status(
          ErrorCode::kPrecondition,
          fmt::format("function '{}' uses {}; compression needs iOS18: run the pass set-opset=opset:iOS18 first",
                      function->name, OpsetName(function->opset)));
    }
    std::vector<Operation*> constants;
    ForEachOperation(function->body(), [&constants](Operation& op) {
      if (op.type() == "const") constants.push_back(&op);
    });
    FunctionNames names(*function);
    for (Operation* op : constants) {
      const Literal* literal = op->FindAttribute("val");
      const bool weight = literal != nullptr && literal->type.IsTensor() &&
                          (literal->type.dtype() == DataType::kFp16 || literal->type.dtype() == DataType::kFp32) &&
                          literal->type.rank() >= 2 &&
                          std::any_of(op->output()->uses().begin(), op->output()->uses().end(), IsWeightUse);
      if (!weight || literal->tensor.size() < options.min_elements) continue;
      const std::string& name = op->output()->name;
      CompressionFormat format = options.format;
      for (const CompiledRule& rule : rules) {
        if (std::regex_search(name, rule.pattern)) {
          format = rule.format;
          break;
        }
      }
      if (format.kind == CompressionFormat::Kind::kNone) continue;
      const std::string text = CompressionText(format);
      const size_t ones = TrailingOnes(literal->type.shape());
      Shape matrix = literal->type.shape();
      matrix.resize(matrix.size() - ones);
      const auto [it, is_new] = known.emplace(std::tuple(literal->tensor.bytes().data(), matrix, text), Known{});
      Known& entry = it->second;
      if (is_new) {
        entry.rank = matrix.size();
        MW_ASSIGN_OR_RETURN(const Tensor tensor, literal->tensor.Reshaped(matrix));
        auto compressed = CompressTensor(tensor, format, tensor_options);
        if (!compressed.ok()) {
          report.notes.push_back(fmt::format("'{}' stays {}: {}", name, DataTypeName(literal->type.dtype()),
                                             compressed.status().message()));
          continue;
        }
        CompressedWeight row{name, text, literal->type.shape(), static_cast<int64_t>(tensor.bytes().size()), 0, 0, 0};
        const CompressionError& error = compressed->error;
        row.relative_error = error.squares > 0 ? std::sqrt(error.error_squares / error.squares) : 0;
        row.max_error = error.largest;
        SharedParts& parts = entry.forms[0];
        parts.op = compressed->op;
        MW_ASSIGN_OR_RETURN(parts.parts, Share(compressed->parts, store, &row.bytes_after));
        MW_ASSIGN_OR_RETURN(parts.table, Share(compressed->table_parts, store, &row.bytes_after));
        MW_ASSIGN_OR_RETURN(parts.scale, Share(compressed->scale_parts, store, &row.bytes_after));
        report.weights.push_back(std::move(row));
      }
      if (entry.forms.empty()) continue;
      if (!entry.forms.contains(ones)) {
        const SharedParts& plain = entry.forms.at(0);
        SharedParts widened{.parts = {}, .table = {}, .scale = {}, .op = plain.op};
        MW_ASSIGN_OR_RETURN(widened.parts, Widened(plain.parts, entry.rank, ones));
        MW_ASSIGN_OR_RETURN(widened.table, Widened(plain.table, entry.rank, ones));
        MW_ASSIGN_OR_RETURN(widened.scale, Widened(plain.scale, entry.rank, ones));
        entry.forms.emplace(ones, std::move(widened));
      }
      Replace(names, *op, entry.forms.at(ones));
    }
  }
  return report;
}

}  // namespace milwright
