#include "passes/layer_cuts.h"

#include <algorithm>
#include <unordered_set>

#include "analysis/dataflow.h"
#include "analysis/effects.h"
#include "analysis/state_analysis.h"
#include "passes/edit.h"

namespace milwright {

namespace {

bool IsProduct(const Operation& op) {
  static const std::unordered_set<std::string_view> kProducts = {"linear", "matmul", "conv", "einsum",
                                                                 "scaled_dot_product_attention"};
  return kProducts.contains(op.type());
}

// Whether an access to a state or a product lies between: then a layer may end there.
bool IsFarFrom(const Operation& from, const Operation& to) {
  const Block& block = *from.parent();
  for (const Operation* op = block.Next(&from); op != nullptr && op != &to; op = block.Next(op)) {
    if (StateOf(*op) != nullptr || !op->blocks().empty() || IsProduct(*op)) return true;
  }
  return false;
}

}  // namespace

void ReadWhereUsed(Function& function) {
  Block& body = function.body();
  std::vector<Operation*> reads;
  for (const auto& op : body.operations()) {
    if (op->type() == "read_state") reads.push_back(op.get());
  }
  for (Operation* read : reads) {
    if (IsFunctionOutput(*read->output())) continue;
    const std::vector<Use> uses = read->output()->uses();
    for (const Use& use : uses) {
      Operation* user = AncestorIn(body, use.op != nullptr ? use.op : use.block->parent());
      if (use.op == nullptr || user == nullptr || !IsFarFrom(*read, *user)) continue;
      const Value* state = StateOf(*read);
      // What is nested may write before it reads.
      const bool nested = use.op->parent() != &body && AccessOf(*user, state).writes;
      if (nested || WritesBetween(*read, *user, state)) continue;
      Builder builder(body, user);
      Value* again = builder.ReadState(StateOf(*read), read->output()->name);
      if (again == nullptr) return;
      use.op->SetArgument(use.input, use.argument, Operand(again));
    }
    EraseUnused(read->output());
  }
}

std::unordered_map<const Operation*, size_t> BodyOrder(const Function& function) {
  std::unordered_map<const Operation*, size_t> order;
  for (const auto& op : function.body().operations()) order.emplace(op.get(), order.size());
  return order;
}

namespace {

// Every value that the operation reads, in nested blocks too.
void ForEachOperand(const Operation& op, const std::function<void(const Operand&)>& visit) {
  const auto of = [&visit](const Operation& one) {
    for (const Input& input : one.inputs()) {
      for (const Operand& operand : input.arguments) visit(operand);
    }
  };
  of(op);
  for (const auto& block : op.blocks()) {
    ForEachOperation(*block, of);
    for (Value* output : block->outputs()) visit(Operand(output));
  }
}

class LayerFinder {
 public:
  explicit LayerFinder(const Function& function) : function_(function) {
    for (const auto& op : function.body().operations()) ops_.push_back(op.get());
    FindMemory();
    FindStream();
    FindLastUses();
    for (const Value* output : function.body().outputs()) {
      if (const auto at = place_of_.find(output->producer()); at != place_of_.end()) {
        last_output_ = std::max(last_output_, at->second);
      }
    }
  }

  std::vector<Layer> Find() {
    std::vector<Layer> layers;
    std::vector<const Value*> live;
    std::vector<const Value*> costly;  // not of the stream, but too dear to compute twice
    Layer cut;                         // the latest place with one live value since the last access
    bool may_cut = false;
    bool accessed = false;
    for (size_t place = 0; place < ops_.size(); ++place) {
      const Operation& op = *ops_[place];
      if (accesses_.contains(&op)) {
        if (may_cut) layers.push_back(cut);
        may_cut = false;
        accessed = true;
      }
      const auto is_over = [&](const Value* value) { return last_use_[value] <= place; };
      std::erase_if(live, is_over);
      std::erase_if(costly, is_over);
      for (const auto& output : op.outputs()) {
        if (is_over(output.get())) continue;
        if (stream_.contains(output.get())) live.push_back(output.get());
        if (costly_.contains(output.get())) costly.push_back(output.get());
      }
      if (accessed && live.size() == 1 && costly.empty() && place < last_output_) {
        cut = {place, const_cast<Value*>(live.front()), 0};
        may_cut = true;
      }
    }
    // In the first layer the residual does not depend on memory yet, so other values can look alone. What passes from
    // layer to layer is of one type.
    if (!layers.empty()) {
      const Type hidden = layers.back().hidden->type;
      std::erase_if(layers, [&hidden](const Layer& layer) { return !(layer.hidden->type == hidden); });
    }
    layers.push_back({ops_.empty() ? 0 : ops_.size() - 1, nullptr, 0});
    CountWeights(layers);
    return layers;
  }

 private:
  // Operations that touch a state or an input that is a cache.
  void FindMemory() {
    std::unordered_set<const Value*> caches;
    const FunctionStates states = AnalyzeStates(function_);
    for (const CachePair& pair : states.cache_pairs) caches.insert(pair.input);
    for (const Value* state : function_.States()) caches.insert(state);
    memory_.assign(caches.begin(), caches.end());
    for (const Operation* op : ops_) {
      ForEachOperand(*op, [&](const Operand& operand) {
        if (operand.value != nullptr && caches.contains(operand.value)) accesses_.insert(op);
      });
    }
  }

  // What depends on memory: the rest is computed from inputs alone and can be computed again.
  void FindStream() {
    std::vector<const Value*> sources = memory_;
    for (const Operation* op : ops_) {
      if (op->type() == "read_state") sources.push_back(op->output());
    }
    stream_ = ForwardClosure(sources);
    // Products with weights, and what is made of them.
    std::vector<const Value*> products;
    for (const Operation* op : ops_) {
      if (!IsProduct(*op) || stream_.contains(op->output())) continue;
      products.push_back(op->output());
    }
    costly_ = ForwardClosure(products);
    std::erase_if(costly_, [this](const Value* value) { return stream_.contains(value); });
  }

  void FindLastUses() {
    for (size_t place = 0; place < ops_.size(); ++place) {
      place_of_[ops_[place]] = place;
      ForEachOperand(*ops_[place], [&](const Operand& operand) {
        if (operand.value != nullptr) last_use_[operand.value] = std::max(last_use_[operand.value], place);
      });
    }
  }

  void CountWeights(std::vector<Layer>& layers) const {
    std::unordered_set<const Value*> seen;
    size_t layer = 0;
    const auto count = [&](const Literal& literal) {
      layers[layer].weight_bytes += static_cast<int64_t>(literal.tensor.bytes().size());
    };
    for (size_t place = 0; place < ops_.size(); ++place) {
      while (place > layers[layer].last && layer + 1 < layers.size()) ++layer;
      // Constants count where they are first used, compressed ones as they are stored.
      if (ops_[place]->type() == "const" || ops_[place]->type().starts_with("constexpr_")) continue;
      std::vector<const Operation*> pending{ops_[place]};
      while (!pending.empty()) {
        const Operation* op = pending.back();
        pending.pop_back();
        for (const auto& [name, attribute] : op->attributes) {
          if (op != ops_[place] && attribute.type.IsTensor()) count(attribute);
        }
        ForEachOperand(*op, [&](const Operand& operand) {
          const Operation* made = operand.value != nullptr ? operand.value->producer() : nullptr;
          if (operand.literal != nullptr && op != ops_[place] && operand.literal->type.IsTensor())
            count(*operand.literal);
          const bool constant = made != nullptr && (made->type() == "const" || made->type().starts_with("constexpr_"));
          if (constant && seen.insert(operand.value).second) pending.push_back(made);
        });
      }
    }
  }

  const Function& function_;
  std::vector<const Operation*> ops_;
  std::vector<const Value*> memory_;
  std::unordered_set<const Operation*> accesses_;
  ValueSet stream_;
  ValueSet costly_;
  std::unordered_map<const Value*, size_t> last_use_;
  std::unordered_map<const Operation*, size_t> place_of_;
  size_t last_output_ = 0;  // where the last output is made
};

}  // namespace

std::vector<Layer> FindLayers(const Function& function) { return LayerFinder(function).Find(); }

}  // namespace milwright
