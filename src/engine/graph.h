// Graph: a function specialised for the shapes of its inputs, with everything computed that does not depend on their
// contents. Fusions rewrite it, and a plan is made from it.
#ifndef MILWRIGHT_ENGINE_GRAPH_H_
#define MILWRIGHT_ENGINE_GRAPH_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "mil/literal.h"
#include "mil/program.h"
#include "milwright/status.h"
#include "ops/op.h"

namespace milwright::engine {

struct Node;

/// A value with a static type.
struct GraphValue {
  std::string name;
  Type type;
  const Literal* known = nullptr;  ///< content, when it does not depend on inputs
  const Value* weight = nullptr;   ///< the output of a constexpr op that it is, not decoded
  Node* producer = nullptr;        ///< null for inputs, constants and weights
  int32_t uses = 0;                ///< arguments of nodes, and outputs of the function

  [[nodiscard]] const Shape& shape() const { return type.shape(); }
  [[nodiscard]] DataType dtype() const { return type.dtype(); }
};

/// Numbers of a fused node.
struct FusedNumbers {
  float scale = 1.0F;
  float soft_cap = 0.0F;
  float epsilon = 0.0F;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t queries = 0;
  int64_t axis = 0;
  bool product = false;  ///< fused_blend: what is placed is mask @ new, not mask * new
};

/// One operation, or several that a fusion put together.
struct Node {
  struct Parameter {
    std::string name;
    std::vector<GraphValue*> arguments;
  };

  std::string kind;  ///< op type, or "fused_..."
  const Operation* op = nullptr;
  const OpDefinition* definition = nullptr;  ///< null for fused nodes
  Opset opset = Opset::kIOS15;
  std::vector<Parameter> parameters;
  std::vector<GraphValue*> outputs;
  int32_t state = -1;  ///< state ops: number in Graph::states
  int operations = 1;  ///< operations of the program that it stands for
  FusedNumbers numbers;
  size_t position = 0;  ///< place among the nodes, once fusion is done

  /// The only argument of a parameter; null when absent or variadic.
  [[nodiscard]] GraphValue* Arg(std::string_view parameter) const;
  /// The arguments of a parameter, empty when absent.
  [[nodiscard]] const std::vector<GraphValue*>& Args(std::string_view parameter) const;
  /// Types and known contents for inference and reference kernels.
  [[nodiscard]] OpContext Context() const;
  [[nodiscard]] GraphValue* output() const { return outputs.front(); }
};

struct Graph {
  std::deque<GraphValue> values;
  std::deque<Literal> literals;
  std::vector<std::unique_ptr<Node>> nodes;
  std::vector<GraphValue*> inputs;   ///< one for each tensor input of the function
  std::vector<GraphValue*> outputs;  ///< one for each output of the function
  std::vector<std::string> output_names;
  std::vector<std::string> states;
  int64_t operations = 0;

  GraphValue* NewValue(std::string name, Type type);
};

/// Specialises `function` for inputs of these shapes. kPrecondition says why a function cannot be planned: nested
/// blocks, lists, or a shape that depends on contents. Errors of inference are returned as they are.
Result<std::unique_ptr<Graph>> BuildGraph(const Function& function, const std::vector<Shape>& input_shapes);

/// Makes outputs `names` ([.., rows, columns]) give their last row alone. What makes them row by row (a linear, casts,
/// functions of single elements) is then done for that row only.
void KeepLastRows(Graph& graph, const std::vector<std::string>& names);

/// Removes nodes that nobody needs and counts uses and positions anew.
void Prune(Graph& graph);

}  // namespace milwright::engine

#endif  // MILWRIGHT_ENGINE_GRAPH_H_
