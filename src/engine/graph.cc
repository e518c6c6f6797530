#include "engine/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "engine/inline_vector.h"

namespace milwright::engine {

GraphValue* Node::Arg(std::string_view parameter) const {
  const auto& arguments = Args(parameter);
  return arguments.size() == 1 ? arguments.front() : nullptr;
}

const std::vector<GraphValue*>& Node::Args(std::string_view parameter) const {
  static const std::vector<GraphValue*> none;
  const auto it = std::ranges::find(parameters, parameter, &Parameter::name);
  return it != parameters.end() ? it->arguments : none;
}

OpContext Node::Context() const {
  OpContext context(*definition, opset);
  for (const Parameter& parameter : parameters) {
    std::vector<OpContext::Argument> arguments;
    for (const GraphValue* value : parameter.arguments) arguments.push_back({&value->type, value->known});
    context.Bind(parameter.name, std::move(arguments));
  }
  std::vector<const Type*> declared;
  for (const GraphValue* output : outputs) declared.push_back(&output->type);
  context.BindDeclared(std::move(declared));
  return context;
}

GraphValue* Graph::NewValue(std::string name, Type type) {
  values.push_back({std::move(name), std::move(type), nullptr, nullptr, nullptr, 0});
  return &values.back();
}

namespace {

// Results of constant operands are kept when they are small, or no larger than what they are made of: tables, not
// weights.
constexpr int64_t kMaxKnownBytes = 1 << 16;
constexpr int64_t kMaxOperandBytes = 1 << 22;

int64_t BytesOf(const Type& type) {
  if (!type.IsTensor() || type.dtype() == DataType::kString) return 0;
  const auto bytes = ByteSize(type.tensor);
  return bytes.ok() ? *bytes : 0;
}

// Whether steps can address a value of this type: they count axes in fixed arrays, and elements in whole bytes.
bool CanBeHeld(const Type& type) {
  constexpr int64_t kMaxBytes = int64_t{1} << 40;
  const auto bytes = ByteSize(type.tensor);
  return type.rank() <= static_cast<int64_t>(kMaxAxes) && bytes.ok() && *bytes <= kMaxBytes && !IsSubByte(type.dtype());
}

class GraphBuilder {
 public:
  GraphBuilder(const Function& function, Graph& graph) : function_(function), graph_(graph) {}

  Status Build(const std::vector<Shape>& input_shapes) {
    const std::vector<Value*> inputs = function_.TensorInputs();
    for (size_t i = 0; i < inputs.size(); ++i) {
      Type type = inputs[i]->type;
      type.tensor.shape = input_shapes[i];
      if (!CanBeHeld(type)) {
        return {ErrorCode::kPrecondition, fmt::format("the input '{}' has too many axes or elements", inputs[i]->name)};
      }
      GraphValue* value = graph_.NewValue(inputs[i]->name, std::move(type));
      graph_.inputs.push_back(value);
      values_[inputs[i]] = value;
    }
    for (const Value* state : function_.States()) {
      states_[state] = static_cast<int32_t>(graph_.states.size());
      graph_.states.push_back(state->name);
    }
    for (const auto& op : function_.body().operations()) MW_RETURN_IF_ERROR(Add(*op));
    for (const Value* output : function_.body().outputs()) {
      graph_.outputs.push_back(values_.at(output));
      graph_.output_names.push_back(output->name);
    }
    return Status::Ok();
  }

 private:
  static Status NotPlanned(const Operation& op, std::string_view why) {
    return Status(ErrorCode::kPrecondition, std::string(why)).WithContext(OperationPath(op));
  }

  GraphValue* Known(const std::string& name, Literal literal) {
    graph_.literals.push_back(std::move(literal));
    GraphValue* value = graph_.NewValue(name, graph_.literals.back().type);
    value->known = &graph_.literals.back();
    return value;
  }

  GraphValue* ValueOf(const Operand& operand) {
    if (operand.value != nullptr) return values_.at(operand.value);
    auto& value = literal_values_[operand.literal.get()];
    if (value == nullptr) value = Known("", *operand.literal);
    return value;
  }

  Status Add(const Operation& op) {
    if (op.type() == "const") {
      values_[op.output()] = Known(op.output()->name, *op.FindAttribute("val"));
      return Status::Ok();
    }
    if (!op.blocks().empty()) return NotPlanned(op, "has nested blocks");
    if (op.type().starts_with("constexpr_")) {
      for (const auto& output : op.outputs()) {
        GraphValue* value = graph_.NewValue(output->name, output->type);
        value->weight = output.get();
        values_[output.get()] = value;
      }
      return Status::Ok();
    }
    ++graph_.operations;
    const OpDefinition* definition = OpRegistry::Get().Find(op.type(), function_.opset);
    if (definition == nullptr) return Status(ErrorCode::kInvalidProgram, "no such op").WithContext(OperationPath(op));
    auto node = std::make_unique<Node>();
    node->kind = op.type();
    node->op = &op;
    node->definition = definition;
    node->opset = function_.opset;
    for (const Input& input : op.inputs()) {
      Node::Parameter parameter{input.name, {}};
      for (const Operand& operand : input.arguments) {
        if (operand.value != nullptr && operand.value->type.IsState()) {
          node->state = states_.at(operand.value);
        } else {
          parameter.arguments.push_back(ValueOf(operand));
        }
      }
      if (!parameter.arguments.empty() || node->state < 0) node->parameters.push_back(std::move(parameter));
    }
    MW_ASSIGN_OR_RETURN(const std::vector<Type> types, OutputTypes(op, *node));
    if (types.size() != op.outputs().size()) return NotPlanned(op, "has another number of outputs than it declares");
    for (size_t i = 0; i < types.size(); ++i) {
      if (!types[i].IsTensor() || types[i].dtype() == DataType::kString) return NotPlanned(op, "yields no array");
      if (!IsStatic(types[i].shape())) return NotPlanned(op, "has a shape that depends on contents");
      if (!CanBeHeld(types[i])) return NotPlanned(op, "yields a value of too many axes, elements, or of a packed type");
    }
    MW_ASSIGN_OR_RETURN(const bool known, Compute(op, *node, types));
    if (known) return Status::Ok();
    for (size_t i = 0; i < types.size(); ++i) {
      GraphValue* value = graph_.NewValue(op.output(i)->name, types[i]);
      value->producer = node.get();
      node->outputs.push_back(value);
      values_[op.output(i)] = value;
    }
    graph_.nodes.push_back(std::move(node));
    return Status::Ok();
  }

  Result<std::vector<Type>> OutputTypes(const Operation& op, const Node& node) {
    if (node.state >= 0) {
      std::vector<Type> types;
      for (const auto& output : op.outputs()) types.push_back(output->type);
      return types;
    }
    OpContext context = node.Context();
    std::vector<const Type*> declared;
    for (const auto& output : op.outputs()) declared.push_back(&output->type);
    context.BindDeclared(std::move(declared));
    auto types = node.definition->infer(context);
    if (!types.ok()) return types.status().WithContext(OperationPath(op));
    return types;
  }

  // Computes the op now when everything it needs is known.
  Result<bool> Compute(const Operation& op, const Node& node, const std::vector<Type>& types) {
    if (node.state >= 0 || node.definition->effect != Effect::kNone || node.definition->evaluate == nullptr) {
      return false;
    }
    if (node.kind == "shape") {
      // Only x's type matters; its content may be unknown.
      Literal shape = Literal::Int32s(node.Arg("x")->shape());
      if (shape.type != types.front()) return false;
      values_[op.output()] = Known(op.output()->name, std::move(shape));
      return true;
    }
    int64_t operand_bytes = 0;
    for (const Node::Parameter& parameter : node.parameters) {
      for (const GraphValue* value : parameter.arguments) {
        if (value->known == nullptr) return false;
        operand_bytes += BytesOf(value->type);
      }
    }
    int64_t bytes = 0;
    for (const Type& type : types) bytes += BytesOf(type);
    if (bytes > kMaxKnownBytes && bytes > operand_bytes) return false;
    if (operand_bytes > kMaxOperandBytes) return false;
    const OpContext context = node.Context();
    auto results = node.definition->evaluate(context, types);
    if (!results.ok()) return false;  // it fails when it is run, and says so then
    for (size_t i = 0; i < results->size(); ++i) {
      values_[op.output(i)] = Known(op.output(i)->name, std::move((*results)[i]));
    }
    return true;
  }

  const Function& function_;
  Graph& graph_;
  std::unordered_map<const Value*, GraphValue*> values_;
  std::unordered_map<const Value*, int32_t> states_;
  std::unordered_map<const Literal*, GraphValue*> literal_values_;
};

bool HasEffect(const Node& node) { return node.state >= 0 && node.kind != "read_state"; }

}  // namespace

Result<std::unique_ptr<Graph>> BuildGraph(const Function& function, const std::vector<Shape>& input_shapes) {
  auto graph = std::make_unique<Graph>();
  MW_RETURN_IF_ERROR(GraphBuilder(function, *graph).Build(input_shapes));
  Prune(*graph);
  return graph;
}

namespace {

// The operand through which `node` works row by row, or null.
GraphValue* RowwiseOperand(const Node& node) {
  if (node.outputs.size() != 1) return nullptr;
  for (const std::string_view kind : {"cast", "tanh", "sigmoid", "silu"}) {
    if (node.kind == kind) return node.Arg("x");
  }
  if (node.kind == "linear") {
    const GraphValue* weight = node.Arg("weight");
    return weight->known != nullptr || weight->weight != nullptr ? node.Arg("x") : nullptr;
  }
  for (const std::string_view kind : {"mul", "add", "real_div", "sub"}) {
    if (node.kind != kind) continue;
    for (const auto& [x, other] : {std::pair(node.Arg("x"), node.Arg("y")), std::pair(node.Arg("y"), node.Arg("x"))}) {
      if (other->known != nullptr && other->known->tensor.size() == 1 && x->shape() == node.output()->shape()) return x;
    }
  }
  return nullptr;
}

Type OfLastRow(Type type) {
  type.tensor.shape[type.tensor.shape.size() - 2] = 1;
  return type;
}

}  // namespace

void KeepLastRows(Graph& graph, const std::vector<std::string>& names) {
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    GraphValue* output = graph.outputs[i];
    const Shape& shape = output->shape();
    if (std::ranges::find(names, graph.output_names[i]) == names.end() || shape.size() < 2 ||
        shape[shape.size() - 2] < 2 || output->producer == nullptr) {
      continue;
    }
    std::vector<const Node*> chain;  // from the output back
    GraphValue* whole = output;
    while (whole->producer != nullptr && whole->uses == 1) {
      GraphValue* operand = RowwiseOperand(*whole->producer);
      if (operand == nullptr || operand->shape().size() != shape.size()) break;
      chain.push_back(whole->producer);
      whole = operand;
    }
    auto slice = std::make_unique<Node>();
    slice->kind = "last_row";
    slice->op = output->producer->op;
    slice->operations = 0;
    slice->parameters.push_back({"x", {whole}});
    GraphValue* row = graph.NewValue(whole->name, OfLastRow(whole->type));
    row->producer = slice.get();
    slice->outputs.push_back(row);
    graph.nodes.push_back(std::move(slice));
    for (size_t k = chain.size(); k-- > 0;) {
      auto node = std::make_unique<Node>(*chain[k]);
      for (Node::Parameter& parameter : node->parameters) {
        for (GraphValue*& argument : parameter.arguments) {
          if (argument == whole) argument = row;
        }
      }
      whole = chain[k]->output();
      row = graph.NewValue(whole->name, OfLastRow(whole->type));
      row->producer = node.get();
      node->outputs = {row};
      graph.nodes.push_back(std::move(node));
    }
    graph.outputs[i] = row;
  }
  Prune(graph);
}

void Prune(Graph& graph) {
  std::unordered_set<const GraphValue*> needed(graph.outputs.begin(), graph.outputs.end());
  std::vector<std::unique_ptr<Node>> kept;
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    std::unique_ptr<Node>& node = graph.nodes[i];
    const bool wanted = HasEffect(*node) ||
                        (node->definition != nullptr && node->definition->effect == Effect::kRandom) ||
                        std::ranges::any_of(node->outputs, [&](const GraphValue* v) { return needed.contains(v); });
    if (!wanted) continue;
    for (const Node::Parameter& parameter : node->parameters) {
      needed.insert(parameter.arguments.begin(), parameter.arguments.end());
    }
    kept.push_back(std::move(node));
  }
  std::ranges::reverse(kept);
  graph.nodes = std::move(kept);
  for (GraphValue& value : graph.values) value.uses = 0;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    graph.nodes[i]->position = i;
    for (const Node::Parameter& parameter : graph.nodes[i]->parameters) {
      for (GraphValue* value : parameter.arguments) ++value->uses;
    }
  }
  for (GraphValue* output : graph.outputs) ++output->uses;
}

}  // namespace milwright::engine
