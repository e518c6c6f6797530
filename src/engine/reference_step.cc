#include "engine/reference_step.h"

#include <fmt/format.h>

#include "engine/copy.h"

namespace milwright::engine {

Result<Tensor> TensorOf(const Frame& frame, const View& view, const TensorType& type) {
  MW_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Zeros(type));
  const Copier copier(view.dtype, view.strides, type.dtype, DenseStrides(type.shape), view.shape);
  copier.Run(*frame.kernels, frame.At<std::byte>(view, BitWidth(view.dtype) / 8), tensor.mutable_bytes().data());
  return tensor;
}

void StoreTensor(const Frame& frame, const Tensor& tensor, const View& view) {
  const Copier copier(tensor.dtype(), DenseStrides(tensor.shape()), view.dtype, view.strides, view.shape);
  copier.Run(*frame.kernels, tensor.bytes().data(), frame.At<std::byte>(view, BitWidth(view.dtype) / 8));
}

namespace {

class ReferenceStep final : public Step {
 public:
  ReferenceStep(const Node& node, std::vector<ReferenceArgument> arguments, std::vector<View> results)
      : node_(node), arguments_(std::move(arguments)), results_(std::move(results)) {
    for (const GraphValue* output : node.outputs) types_.push_back(output->type);
  }

  Status Run(Frame& frame) const override {
    std::vector<Literal> contents(arguments_.size());
    OpContext context(*node_.definition, node_.opset);
    for (size_t i = 0; i < arguments_.size();) {
      const std::string_view parameter = arguments_[i].parameter;
      std::vector<OpContext::Argument> bound;
      for (; i < arguments_.size() && arguments_[i].parameter == parameter; ++i) {
        const ReferenceArgument& argument = arguments_[i];
        const Literal* content = argument.known;
        if (content == nullptr) {
          MW_ASSIGN_OR_RETURN(Tensor tensor, TensorOf(frame, argument.view, argument.type->tensor));
          contents[i] = Literal(std::move(tensor));
          content = &contents[i];
        }
        bound.push_back({argument.type, content});
      }
      context.Bind(parameter, std::move(bound));
    }
    std::vector<const Type*> declared;
    for (const Type& type : types_) declared.push_back(&type);
    context.BindDeclared(std::move(declared));
    MW_ASSIGN_OR_RETURN(const std::vector<Literal> values, node_.definition->evaluate(context, types_));
    for (size_t i = 0; i < results_.size(); ++i) {
      if (values[i].type != types_[i]) {
        return Status(ErrorCode::kRuntime,
                      fmt::format("the value '{}' came out as {}, but is declared as {}", node_.outputs[i]->name,
                                  TypeToString(values[i].type), TypeToString(types_[i])));
      }
      StoreTensor(frame, values[i].tensor, results_[i]);
    }
    return Status::Ok();
  }

 private:
  const Node& node_;
  std::vector<ReferenceArgument> arguments_;
  std::vector<View> results_;
  std::vector<Type> types_;
};

}  // namespace

NewStep MakeReferenceStep(const Node& node, std::vector<ReferenceArgument> arguments, std::vector<View> results) {
  return std::make_unique<ReferenceStep>(node, std::move(arguments), std::move(results));
}

}  // namespace milwright::engine
