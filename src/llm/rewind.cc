// Which caches of a pipeline can go back to an earlier position, and going back.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/state_analysis.h"
#include "llm/pipeline.h"
#include "mil/model.h"

namespace milwright {
namespace {

// The window of a cache with `slots` columns: that of the masks over as many columns, else the slots themselves.
int64_t WindowOf(const ManifestFunction& function, int64_t slots) {
  for (const ManifestFeature& feature : function.inputs) {
    if (feature.window > 0 && !feature.type.shape.empty() && feature.type.shape.back() == slots) return feature.window;
  }
  return slots;
}

CacheRewind RewindOf(const std::string& name, const Shape& shape, UpdateForm form, StateRole role,
                     const ManifestFunction& function, int64_t context_length) {
  CacheRewind rewind{name, CacheRewind::Kind::kNever, 0, 0};
  // Keys and values lie in slots by position on the last but one axis.
  const bool by_position = form == UpdateForm::kSliceUpdate || form == UpdateForm::kMaskBlend;
  if (role != StateRole::kKv || !by_position || shape.size() < 2) return rewind;
  const int64_t slots = shape[shape.size() - 2];
  if (slots >= context_length) {
    rewind.kind = CacheRewind::Kind::kAnywhere;
  } else {
    rewind.kind = CacheRewind::Kind::kRing;
    rewind.slots = slots;
    rewind.window = WindowOf(function, slots);
  }
  return rewind;
}

}  // namespace

void Pipeline::FindRewinds() {
  const auto add = [this](CacheRewind rewind) {
    // One cache that several functions update: the strictest of them counts.
    const auto it = std::ranges::find(rewinds_, rewind.name, &CacheRewind::name);
    if (it == rewinds_.end()) {
      rewinds_.push_back(std::move(rewind));
    } else if (rewind.kind > it->kind) {
      *it = std::move(rewind);
    }
  };
  for (const Stage& stage : stages_) {
    for (const ManifestFunction& entry : stage.manifest->functions) {
      const Function* function = stage.engines.at(entry.package)->spec().program.FindFunction(entry.name);
      if (function == nullptr) continue;
      const FunctionStates facts = AnalyzeStates(*function);
      for (const StateFacts& state : facts.states) {
        if (state.form == UpdateForm::kNone || state.form == UpdateForm::kReadOnly) continue;
        add(RewindOf(entry.package + "/" + state.state->name, state.state->type.shape(), state.form, state.role, entry,
                     manifest_.context_length));
      }
      for (const ManifestCache& cache : entry.caches) {
        const auto pair = std::ranges::find_if(
            facts.cache_pairs, [&cache](const CachePair& candidate) { return candidate.input->name == cache.input; });
        const std::string name = entry.package + "/" + cache.input;
        if (pair == facts.cache_pairs.end()) {
          add({name, CacheRewind::Kind::kNever, 0, 0});
          continue;
        }
        // The host writes new rows at their position itself.
        const UpdateForm form = cache.new_only ? UpdateForm::kSliceUpdate : pair->form;
        add(RewindOf(name, cache.type.shape, form, pair->role, entry, manifest_.context_length));
      }
    }
  }
}

namespace {

// After `written` tokens a ring of `slots` has lost the positions up to written - 1 - slots; a token at `position`
// still needs those from position - window + 1 on.
bool Allows(const CacheRewind& rewind, int64_t written, int64_t position) {
  switch (rewind.kind) {
    case CacheRewind::Kind::kAnywhere:
      return true;
    case CacheRewind::Kind::kRing:
      return written <= rewind.slots || position - rewind.window + 1 > written - 1 - rewind.slots;
    case CacheRewind::Kind::kNever:
      return false;
  }
  return false;
}

}  // namespace

bool Pipeline::CanRewind(int64_t position) const {
  if (position < 0 || position > position_) return false;
  if (position == position_) return true;
  return std::ranges::all_of(rewinds_, [&](const CacheRewind& rewind) { return Allows(rewind, position_, position); });
}

Status Pipeline::Rewind(int64_t position) {
  if (position < 0 || position > position_) {
    return {ErrorCode::kUsage, fmt::format("cannot go back to position {} from {}", position, position_)};
  }
  for (const CacheRewind& rewind : rewinds_) {
    if (position < position_ && !Allows(rewind, position_, position)) {
      return {ErrorCode::kPrecondition,
              fmt::format("the cache '{}' cannot go back from position {} to {}", rewind.name, position_, position)};
    }
  }
  position_ = position;
  return Status::Ok();
}

Status Pipeline::SkipTo(int64_t position) {
  if (position < position_ || position > manifest_.context_length) {
    return {ErrorCode::kUsage,
            fmt::format("cannot skip from position {} to {} of {}", position_, position, manifest_.context_length)};
  }
  position_ = position;
  return Status::Ok();
}

}  // namespace milwright
