// pad-state-dim: a dimension of states rounded up to a multiple, for hardware that wants it so.
#include <fmt/format.h>

#include "passes/edit.h"
#include "passes/entries.h"
#include "passes/relayout.h"

namespace milwright {

Status PadStateDim(ModelSpec& model, const PassArguments& arguments, PassReport& report) {
  constexpr int64_t kMaxMultiple = 1 << 20;
  MW_ASSIGN_OR_RETURN(const std::vector<std::string> names, ChooseStates(model, arguments));
  MW_ASSIGN_OR_RETURN(const int64_t asked_axis, arguments.Int("axis", -1));
  MW_ASSIGN_OR_RETURN(const int64_t multiple, arguments.Int("multiple", 32));
  if (multiple < 1 || multiple > kMaxMultiple) {
    return Usage(fmt::format("option 'multiple' is from 1 to {}, not {}", kMaxMultiple, multiple));
  }
  for (const std::string& name : names) {
    MW_ASSIGN_OR_RETURN(const Type type, SharedStateType(model.program, name));
    const int64_t axis = asked_axis < 0 ? asked_axis + type.rank() : asked_axis;
    if (axis < 0 || axis >= type.rank()) {
      return Refuse(fmt::format("'{}' is {}: it has no axis {}", name, TypeToString(type), asked_axis));
    }
    Shape shape = type.shape();
    int64_t& size = shape[static_cast<size_t>(axis)];
    const int64_t padded = (size + multiple - 1) / multiple * multiple;
    if (padded == size) continue;
    report.notes.push_back(fmt::format("'{}': axis {} from {} to {}", name, axis, size, padded));
    size = padded;
    for (const auto& function : model.program.functions()) {
      Value* state = function->FindInput(name);
      if (state == nullptr) continue;
      Value* wider = function->InsertInput(state->index(), function->UniqueName(name + "_padded"),
                                           Type::State({type.dtype(), shape}));
      const StateLayout layout{state, {{0, type.shape()[0], wider, 0}}};
      MW_RETURN_IF_ERROR(Relayout(*function, {layout}, report));
      wider->name = name;
    }
  }
  RefreshDescription(model);
  return Status::Ok();
}

}  // namespace milwright
