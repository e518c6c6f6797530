#include "analysis/effects.h"

#include <functional>

#include "ops/op.h"

namespace milwright {
namespace {

// Whether `holds` is true of `op` or of anything nested in it.
bool Any(const Operation& op, const std::function<bool(const Operation&)>& holds) {
  if (holds(op)) return true;
  for (const auto& block : op.blocks()) {
    for (const auto& nested : block->operations()) {
      if (Any(*nested, holds)) return true;
    }
  }
  return false;
}

Effect EffectOf(const Operation& op) {
  const auto versions = OpRegistry::Get().Versions(op.type());
  return versions.empty() ? Effect::kNone : versions.front().effect;
}

bool AnyBetween(const Operation& from, const Operation& to, const std::function<bool(const Operation&)>& holds) {
  const Block* block = from.parent();
  for (const Operation* op = block->Next(&from); op != nullptr && op != &to; op = block->Next(op)) {
    if (holds(*op)) return true;
  }
  return false;
}

}  // namespace

bool IsStateRead(const Operation& op) { return EffectOf(op) == Effect::kReadsState; }
bool IsStateWrite(const Operation& op) { return EffectOf(op) == Effect::kWritesState; }

Value* StateOf(const Operation& op) {
  if (!IsStateRead(op) && !IsStateWrite(op)) return nullptr;
  return op.type() == "coreml_update_state" ? op.InputValue("state") : op.InputValue("input");
}

Value* WrittenValue(const Operation& op) {
  if (!IsStateWrite(op)) return nullptr;
  return op.type() == "coreml_update_state" ? op.InputValue("value") : op.InputValue("data");
}

StateAccess AccessOf(const Operation& op, const Value* state) {
  StateAccess access;
  Any(op, [&](const Operation& nested) {
    if (StateOf(nested) == state) {
      access.writes = access.writes || IsStateWrite(nested);
      access.reads = access.reads || !nested.outputs().empty();
    }
    return false;
  });
  return access;
}

bool HasEffect(const Operation& op) {
  return Any(op, [](const Operation& nested) { return IsStateWrite(nested) || EffectOf(nested) == Effect::kRandom; });
}

bool IsImpure(const Operation& op) {
  return Any(op, [](const Operation& nested) { return EffectOf(nested) != Effect::kNone; });
}

bool WritesBetween(const Operation& from, const Operation& to, const Value* state) {
  return AnyBetween(from, to, [state](const Operation& op) { return AccessOf(op, state).writes; });
}

bool AccessesBetween(const Operation& from, const Operation& to, const Value* state) {
  return AnyBetween(from, to, [state](const Operation& op) {
    const StateAccess access = AccessOf(op, state);
    return access.reads || access.writes;
  });
}

}  // namespace milwright
