// unify-states and split-state: several states in one buffer, and one buffer in several states.
#include <fmt/format.h>

#include <algorithm>

#include "passes/edit.h"
#include "passes/entries.h"
#include "passes/relayout.h"

namespace milwright {
namespace {

/// Slot `slot` of the old state is slot `target_slot` of new state number `target`.
struct SlotPlace {
  size_t target = 0;
  int64_t target_slot = 0;
};

// A new state, as planned.
struct NewState {
  std::string name;
  Type type;
};

// Runs of slots that stay together make one piece.
std::vector<StatePiece> Pieces(const std::vector<SlotPlace>& places, const std::vector<Value*>& targets) {
  std::vector<StatePiece> pieces;
  for (size_t slot = 0; slot < places.size(); ++slot) {
    const SlotPlace& place = places[slot];
    Value* target = targets[place.target];
    if (!pieces.empty() && pieces.back().target == target &&
        pieces.back().target_slot + pieces.back().slots == place.target_slot) {
      ++pieces.back().slots;
    } else {
      pieces.push_back({static_cast<int64_t>(slot), 1, target, place.target_slot});
    }
  }
  return pieces;
}

// Every slot of one old state, with the place it goes to.
struct Move {
  std::string state;
  std::vector<SlotPlace> places;
};

Status Apply(ModelSpec& model, const std::vector<Move>& moves, const std::vector<NewState>& fresh, PassReport& report) {
  for (const auto& function : model.program.functions()) {
    std::vector<const Move*> here;
    for (const Move& move : moves) {
      const Value* state = function->FindInput(move.state);
      if (state != nullptr && state->type.IsState()) here.push_back(&move);
    }
    if (here.empty()) continue;
    std::vector<Value*> targets;
    targets.reserve(fresh.size());
    for (const NewState& state : fresh) {
      // A new state may take the name of one that goes.
      targets.push_back(function->AddInput(function->UniqueName(state.name + "_next"), state.type));
    }
    std::vector<StateLayout> layouts;
    layouts.reserve(here.size());
    for (const Move* move : here) {
      layouts.push_back({function->FindInput(move->state), Pieces(move->places, targets)});
    }
    MW_RETURN_IF_ERROR(Relayout(*function, layouts, report));
    for (size_t i = 0; i < fresh.size(); ++i) {
      ReleaseName(*function, fresh[i].name);
      targets[i]->name = fresh[i].name;
    }
  }
  RefreshDescription(model);
  return Status::Ok();
}

// A name for a new state: as asked, if it is free or becomes free; a default gives way.
Result<std::string> NameFor(const Program& program, const std::string& asked, bool is_default,
                            const std::vector<std::string>& going) {
  if (std::ranges::find(going, asked) != going.end()) return asked;
  const std::string free = UniqueFeatureName(program, asked);
  if (free == asked || is_default) return free;
  return Refuse(fmt::format("'{}' is taken by another feature; choose another name", asked));
}

Result<bool> Interleaved(const PassArguments& arguments) {
  const std::string order = arguments.String("order", "split");
  if (order != "interleaved" && order != "split") {
    return Usage(fmt::format("option 'order' is interleaved or split, not '{}'", order));
  }
  return order == "interleaved";
}

// The states to unify: as listed, since their order matters; keys and values when nothing chooses.
Result<std::vector<std::string>> StatesToUnify(const ModelSpec& model, const PassArguments& arguments) {
  const bool chosen = arguments.Has("states") || arguments.Has("roles") || arguments.Has("indices");
  MW_ASSIGN_OR_RETURN(std::vector<std::string> names,
                      ChooseStates(model, chosen ? arguments : PassArguments({{"roles", std::string("kv")}})));
  if (arguments.Has("states") && !arguments.Has("roles") && !arguments.Has("indices")) {
    const std::vector<std::string> listed = arguments.List("states");
    if (listed.size() != names.size()) return Usage("a state is listed twice");
    names = listed;
  }
  if (names.size() < 2) {
    return Refuse(fmt::format("'{}' is alone: there is nothing to unify it with", names.front()));
  }
  return names;
}

}  // namespace

Status UnifyStates(ModelSpec& model, const PassArguments& arguments, PassReport& report) {
  MW_ASSIGN_OR_RETURN(const std::vector<std::string> names, StatesToUnify(model, arguments));
  MW_ASSIGN_OR_RETURN(const bool interleaved, Interleaved(arguments));
  std::vector<Type> types;
  for (const std::string& name : names) {
    MW_ASSIGN_OR_RETURN(Type type, SharedStateType(model.program, name));
    types.push_back(std::move(type));
  }
  const Type& first = types.front();
  Shape shape = first.shape();
  if (shape.size() < 2) return Refuse(fmt::format("'{}' is {}: it has no slots", names.front(), TypeToString(first)));
  shape[0] = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    const Shape& other = types[i].shape();
    if (types[i].dtype() != first.dtype() || other.size() != shape.size() ||
        (interleaved && other[0] != first.shape()[0])) {
      return Refuse(fmt::format("'{}' is {} and '{}' is {}: {}", names.front(), TypeToString(first), names[i],
                                TypeToString(types[i]),
                                interleaved ? "interleaved slots must be equally many, and of one rank and type"
                                            : "states of one buffer have one rank and type"));
    }
    shape[0] += other[0];
    for (size_t axis = 1; axis < shape.size(); ++axis) shape[axis] = std::max(shape[axis], other[axis]);
  }
  MW_ASSIGN_OR_RETURN(const std::string name,
                      NameFor(model.program, arguments.String("name", "kv_cache"), !arguments.Has("name"), names));
  std::vector<Move> moves;
  int64_t next = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    Move move{names[i], {}};
    for (int64_t slot = 0; slot < types[i].shape()[0]; ++slot) {
      const int64_t place =
          interleaved ? slot * static_cast<int64_t>(names.size()) + static_cast<int64_t>(i) : next + slot;
      move.places.push_back({0, place});
    }
    next += types[i].shape()[0];
    moves.push_back(std::move(move));
  }
  return Apply(model, moves, {{name, Type::State({first.dtype(), shape})}}, report);
}

namespace {

// The slots of each new state, and its shape.
struct Part {
  std::vector<int64_t> slots;
  Shape shape;
};

Part MakePart(std::vector<int64_t> slots, Shape shape) {
  shape[0] = static_cast<int64_t>(slots.size());
  return {std::move(slots), std::move(shape)};
}

// Slots that reach equally far belong together: the layers of a sliding window, and those of the full context.
std::vector<Part> PartsByExtent(const Program& program, const std::string& name, const Shape& shape) {
  std::vector<Part> parts;
  for (int64_t slot = 0; slot < shape[0]; ++slot) {
    Shape extent(shape.size(), 0);
    for (const auto& function : program.functions()) {
      const Value* state = function->FindInput(name);
      if (state == nullptr) continue;
      const Shape used = UsedExtent(*state, slot, 1);
      for (size_t i = 0; i < extent.size(); ++i) extent[i] = std::max(extent[i], used[i]);
    }
    extent[0] = 0;
    const auto same = std::ranges::find_if(parts, [&extent](const Part& part) { return part.shape == extent; });
    if (same != parts.end()) {
      same->slots.push_back(slot);
    } else {
      parts.push_back({{slot}, extent});
    }
  }
  for (Part& part : parts) part.shape[0] = static_cast<int64_t>(part.slots.size());
  return parts;
}

Result<std::vector<Part>> PartsOf(const Program& program, const std::string& name, const Shape& shape,
                                  const std::string& into, bool interleaved) {
  const int64_t slots = shape[0];
  if (into == "role") return PartsByExtent(program, name, shape);
  std::vector<Part> parts;
  if (into == "slot") {
    for (int64_t slot = 0; slot < slots; ++slot) parts.push_back(MakePart({slot}, shape));
    return parts;
  }
  if (into != "layer" && into != "kv") {
    return Usage(fmt::format("option 'into' is slot, layer, kv or role, not '{}'", into));
  }
  if (slots % 2 != 0) return Refuse(fmt::format("'{}' has {} slots: keys and values come in pairs", name, slots));
  const int64_t layers = slots / 2;
  const auto key = [&](int64_t layer) { return interleaved ? 2 * layer : layer; };
  const auto value = [&](int64_t layer) { return interleaved ? 2 * layer + 1 : layers + layer; };
  if (into == "layer") {
    for (int64_t layer = 0; layer < layers; ++layer) parts.push_back(MakePart({key(layer), value(layer)}, shape));
    return parts;
  }
  std::vector<int64_t> keys;
  std::vector<int64_t> values;
  for (int64_t layer = 0; layer < layers; ++layer) {
    keys.push_back(key(layer));
    values.push_back(value(layer));
  }
  return std::vector<Part>{MakePart(std::move(keys), shape), MakePart(std::move(values), shape)};
}

Result<std::string> StateToSplit(const ModelSpec& model, const PassArguments& arguments) {
  if (arguments.Has("state")) return arguments.String("state");
  MW_ASSIGN_OR_RETURN(const std::vector<std::string> all, ChooseStates(model, {}));
  if (all.size() > 1) return Usage(fmt::format("state:NAME says which of {}", fmt::join(all, ", ")));
  return all.front();
}

}  // namespace

Status SplitState(ModelSpec& model, const PassArguments& arguments, PassReport& report) {
  MW_ASSIGN_OR_RETURN(const std::string name, StateToSplit(model, arguments));
  MW_ASSIGN_OR_RETURN(const bool interleaved, Interleaved(arguments));
  MW_ASSIGN_OR_RETURN(const Type type, SharedStateType(model.program, name));
  if (type.rank() < 2) return Refuse(fmt::format("'{}' is {}: it has no slots", name, TypeToString(type)));
  const std::string into = arguments.String("into");
  MW_ASSIGN_OR_RETURN(const std::vector<Part> parts, PartsOf(model.program, name, type.shape(), into, interleaved));
  if (parts.size() < 2) return Refuse(fmt::format("'{}' is one part by {}: there is nothing to split", name, into));
  std::vector<std::string> names = arguments.List("names");
  if (!names.empty() && names.size() != parts.size()) {
    return Usage(fmt::format("{} names for {} states", names.size(), parts.size()));
  }
  if (names.empty()) {
    for (size_t i = 0; i < parts.size(); ++i) names.push_back(fmt::format("{}_{}", name, i));
    if (into == "kv") names = {"key_cache", "value_cache"};
  }
  std::vector<NewState> fresh;
  Move move{name, std::vector<SlotPlace>(static_cast<size_t>(type.shape()[0]))};
  for (size_t i = 0; i < parts.size(); ++i) {
    MW_ASSIGN_OR_RETURN(std::string free, NameFor(model.program, names[i], !arguments.Has("names"), {name}));
    const bool taken = std::ranges::find(fresh, free, &NewState::name) != fresh.end();
    if (taken) return Usage(fmt::format("two states cannot both be '{}'", free));
    fresh.push_back({std::move(free), Type::State({type.dtype(), parts[i].shape})});
    for (size_t k = 0; k < parts[i].slots.size(); ++k) {
      move.places[static_cast<size_t>(parts[i].slots[k])] = {i, static_cast<int64_t>(k)};
    }
    for (size_t axis = 1; axis < parts[i].shape.size(); ++axis) {
      if (parts[i].shape[axis] == type.shape()[axis]) continue;
      report.notes.push_back(fmt::format("'{}' keeps the first {} of {} along axis {}: nothing reads the rest",
                                         fresh.back().name, parts[i].shape[axis], type.shape()[axis], axis));
    }
  }
  return Apply(model, {move}, fresh, report);
}

}  // namespace milwright
