// Inputs, positions and rotary tables of a function.
#include "llm/function_context.h"

#include <fmt/format.h>

#include <algorithm>

#include "llm/rope.h"

namespace milwright {
namespace {

constexpr int64_t kCacheOrder = 1 << 20;  ///< order keys of caches and states: behind every feature
constexpr int64_t kIndexSpan = 1 << 10;   ///< numbered inputs of one kind

std::vector<int64_t> Iota(int64_t count) {
  std::vector<int64_t> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = i;
  return values;
}

}  // namespace

FunctionContext::FunctionContext(Blocks& blocks, const BuildPlan& build, const StageSpec& stage,
                                 const CachePlan& caches, ManifestFunction& manifest)
    : blocks_(blocks), b_(blocks.builder()), build_(build), stage_(stage), caches_(caches), manifest_(manifest) {
  for (size_t i = 0; i < caches.buffers.size(); ++i) {
    const CacheBuffer& plan = caches.buffers[i];
    const bool state = plan.storage == CacheStorage::kState;
    const auto order = static_cast<int64_t>(i) + (state ? 2 * kCacheOrder : kCacheOrder);
    Buffer buffer;
    buffer.plan = &plan;
    buffer.input = Declare(plan.name, state ? Type::State(plan.type) : Type(plan.type), order);
    buffer.current = state ? nullptr : buffer.input;
    buffers_.push_back(std::move(buffer));
    if (state) {
      manifest_.states.push_back(plan.name);
    } else {
      manifest_.caches.push_back({plan.name, plan.output_name, plan.type, plan.storage == CacheStorage::kExplicitNew});
    }
  }
}

Value* FunctionContext::Declare(std::string name, Type type, int64_t order) {
  const auto place = std::upper_bound(input_order_.begin(), input_order_.end(), order);
  const auto index = static_cast<size_t>(place - input_order_.begin());
  input_order_.insert(place, order);
  return b_.function().InsertInput(index, std::move(name), std::move(type));
}

bool FunctionContext::Offers(FeatureKind kind, std::string_view table) const {
  return build_.form.FindInput(kind, stage_.role, table) != nullptr;
}

Value* FunctionContext::Input(FeatureKind kind, int64_t index, std::string_view table, const Symbols& extra) {
  if (!blocks_.status().ok()) return nullptr;
  const ContractFeature* feature = build_.form.FindInput(kind, stage_.role, table);
  if (feature == nullptr) {
    blocks_.Fail(
        {ErrorCode::kUsage,
         fmt::format("contract {} has no input for the {}{}{} that {} needs here", build_.contract.name,
                     FeatureKindName(kind), table.empty() ? "" : " of rotary table ", table, build_.model.family)});
    return nullptr;
  }
  Symbols symbols = PlanSymbols(build_.model, kNoLayer);
  if (blocks_.length() != kUnknownDim) symbols["T"] = blocks_.length();
  symbols["C"] = build_.caches.context_length;
  symbols["n"] = index;
  symbols["j"] = index;
  for (const auto& [name, value] : extra) symbols[name] = value;
  const std::string name = ExpandPattern(feature->name, symbols);
  if (const auto known = inputs_.find(name); known != inputs_.end()) return known->second;
  auto shape = EvaluateShape(feature->shape, symbols);
  if (!shape.ok()) {
    blocks_.Fail(shape.status().WithContext(fmt::format("contract {}, input {}", build_.contract.name, name)));
    return nullptr;
  }
  const auto position = static_cast<int64_t>(feature - build_.form.inputs.data());
  const TensorType type{FeatureDataType(*feature, build_.compute), *std::move(shape)};
  Value* value = Declare(name, type, position * kIndexSpan + std::max<int64_t>(index, 0) % kIndexSpan);
  inputs_[name] = value;
  ManifestFeature entry;
  entry.kind = kind;
  entry.name = name;
  entry.type = type;
  entry.index = index;
  entry.table = table;
  manifest_.inputs.push_back(std::move(entry));
  return value;
}

Value* FunctionContext::Total() {
  if (total_ != nullptr) return total_;
  Value* mask = Offers(FeatureKind::kMask) ? Input(FeatureKind::kMask) : Input(FeatureKind::kSlidingMask);
  Value* shape = b_.Op("shape", {{"x", mask}}, "mask_shape");
  return total_ = blocks_.Slice(shape, 0, 3, 4, "total_length");
}

Value* FunctionContext::Start() {
  if (start_ != nullptr) return start_;
  if (!build_.contract.flexible_length) return start_ = Input(FeatureKind::kPosition);
  // The mask's last size is the length with these tokens.
  Value* shape = b_.Op("shape", {{"x", Input(FeatureKind::kTokenIds)}}, "tokens_shape");
  Value* count = blocks_.Slice(shape, 0, 1, 2, "tokens_length");
  return start_ = blocks_.Binary("sub", Total(), count, "past_length");
}

Value* FunctionContext::Positions() {
  if (positions_ != nullptr) return positions_;
  if (Offers(FeatureKind::kPositionIds)) return positions_ = Input(FeatureKind::kPositionIds);
  Value* start = Start();
  if (build_.contract.flexible_length) {
    const auto scalar = [&](Value* x, std::string_view name) {
      return b_.Op("squeeze", {{"x", x}, {"axes", Literal::Int32s({0})}}, name);
    };
    return positions_ = b_.Op("range_1d",
                              {{"end", scalar(Total(), "positions_end")},
                               {"start", scalar(start, "positions_start")},
                               {"step", Literal::Int32(1)}},
                              "positions");
  }
  if (blocks_.length() == 1) return positions_ = start;
  Value* offsets = b_.Const(Literal::Int32s(Iota(blocks_.length())), "token_offsets");
  return positions_ = blocks_.Binary("add", start, offsets, "positions");
}

std::pair<Value*, Value*> FunctionContext::Rotary(int rope) {
  if (const auto known = rotary_.find(rope); known != rotary_.end()) return known->second;
  const RopeTable& table = build_.model.ropes[static_cast<size_t>(rope)];
  const std::string name = table.name.empty() ? "rotary" : fmt::format("rotary_{}", table.name);
  const auto pair = Offers(FeatureKind::kCosine, table.name) ? RotaryInputs(table, name) : RotaryInGraph(table, name);
  rotary_[rope] = pair;
  return pair;
}

std::pair<Value*, Value*> FunctionContext::RotaryInputs(const RopeTable& table, std::string_view name) {
  const Symbols extra = {{"R", table.rotary_size()}};
  const auto row = [&](FeatureKind kind, std::string_view what) {
    Value* input = blocks_.Cast(Input(kind, -1, table.name, extra), build_.compute);
    if (input == nullptr || input->type.rank() == 4) return input;
    return blocks_.Reshape(input, {1, 1, blocks_.length(), table.rotary_size()}, fmt::format("{}_{}", name, what));
  };
  Value* cosine = row(FeatureKind::kCosine, "cosine");
  return {cosine, row(FeatureKind::kSine, "sine")};
}

std::pair<Value*, Value*> FunctionContext::RotaryInGraph(const RopeTable& table, std::string_view name) {
  const auto half = static_cast<int64_t>(table.frequencies.size());
  const int64_t rows = build_.caches.context_length;
  // Tables hold one position for every frequency; with M-RoPE the right axis is chosen below.
  RopeTable plain = table;
  plain.mrope_section.clear();
  std::vector<float> cosines, sines, cosine, sine;
  cosines.reserve(static_cast<size_t>(rows * half));
  sines.reserve(static_cast<size_t>(rows * half));
  for (int64_t n = 0; n < rows; ++n) {
    RopeRow(plain, {n, n, n}, cosine, sine);
    cosines.insert(cosines.end(), cosine.begin(), cosine.begin() + half);
    sines.insert(sines.end(), sine.begin(), sine.begin() + half);
  }
  const bool by_axis = !table.mrope_section.empty() && Offers(FeatureKind::kMropePositions);
  const auto rows_of = [&](const std::vector<float>& values, std::string_view what) -> Value* {
    const std::string text = fmt::format("{}_{}", name, what);
    Value* constant = blocks_.Constant(values, {rows, half}, build_.compute, text + "_table");
    const auto gather = [&](Value* positions, std::string_view suffix) {
      return b_.Op("gather", {{"x", constant}, {"indices", positions}, {"axis", Literal::Int32(0)}},
                   fmt::format("{}_rows{}", text, suffix));
    };
    Value* halves = nullptr;
    if (by_axis) {
      Value* positions = Input(FeatureKind::kMropePositions);
      for (int axis = 0; axis < 3; ++axis) {
        std::vector<float> uses(static_cast<size_t>(half));
        for (size_t i = 0; i < uses.size(); ++i) uses[i] = MropeAxis(table, i) == axis ? 1.0F : 0.0F;
        Value* one = blocks_.Reshape(blocks_.Slice(positions, 0, axis, axis + 1, text + "_axis"), {blocks_.length()},
                                     text + "_axis_positions");
        Value* part = blocks_.Binary("mul", gather(one, "_by_axis"),
                                     blocks_.Constant(uses, {half}, build_.compute, text + "_uses"), text + "_part");
        halves = halves == nullptr ? part : blocks_.Binary("add", halves, part, text + "_mixed");
      }
    } else {
      halves = gather(Positions(), "");
    }
    Value* whole = blocks_.Concat({halves, halves}, 1, text + "_whole");
    return blocks_.Reshape(whole, {1, 1, blocks_.length(), 2 * half}, text);
  };
  Value* first = rows_of(cosines, "cosine");
  return {first, rows_of(sines, "sine")};
}

Value* FunctionContext::HostMask(int64_t layer) {
  const LayerPlan& l = this->layer(layer);
  const bool all_sliding =
      std::all_of(build_.model.layers.begin(), build_.model.layers.end(),
                  [](const LayerPlan& other) { return other.mixer != Mixer::kAttention || other.sliding; });
  // A contract with one mask serves models whose attention layers are all of one kind.
  const bool own = l.sliding && (Offers(FeatureKind::kSlidingMask) || !all_sliding);
  const FeatureKind kind = own ? FeatureKind::kSlidingMask : FeatureKind::kMask;
  const int64_t columns = LayerColumns(build_.model, build_.caches, layer);
  Value* mask = Input(kind, -1, {}, {{"W", columns}, {"C", own ? columns : build_.caches.context_length}});
  if (mask == nullptr) return nullptr;
  for (ManifestFeature& feature : manifest_.inputs) {
    if (!IsMask(feature.kind) || feature.name != mask->name) continue;
    feature.window = l.sliding ? build_.model.window : 0;
    const CacheUpdate update = LayerUpdate(build_.model, build_.caches, layer);
    feature.columns = update == CacheUpdate::kRing    ? MaskColumns::kRing
                      : update == CacheUpdate::kShift ? MaskColumns::kShift
                                                      : MaskColumns::kAbsolute;
  }
  return mask;
}

/// [1, 1, rows, columns]: 0 where `visible` (bool [rows, columns]) holds, the mask's fill elsewhere.
Value* FunctionContext::FromVisible(Value* visible, std::string_view name) {
  Value* one = blocks_.Cast(visible, build_.compute);
  Value* shifted = blocks_.Binary("sub", one, blocks_.Scalar(1, build_.compute, fmt::format("{}_one", name)),
                                  fmt::format("{}_minus_one", name));
  Value* filled = blocks_.Multiply(shifted, -build_.contract.mask_fill, fmt::format("{}_filled", name));
  return b_.Op("expand_dims", {{"x", filled}, {"axes", Literal::Int32s({0, 1})}}, name);
}

/// The mask over [old ring, new columns]. The host's mask speaks of the ring after the call; of the columns before it,
/// slot s is the (d+1)-th youngest, d = (ring - 1 - s) mod W, and token t still sees it when d < W - 1 - t.
Value* FunctionContext::RingMaskWithOld(Value* mask, int64_t window) {
  const int64_t length = blocks_.length();
  std::vector<int64_t> slots, limits;
  for (int64_t s = 0; s < window; ++s) slots.push_back(window - 1 - s);
  for (int64_t t = 0; t < length; ++t) limits.push_back(window - 1 - t);
  Value* sum = blocks_.Binary("add", RingPosition(), b_.Const(Literal::Int32s(slots), "ring_slots"), "ring_sum");
  Value* age = b_.Op("mod", {{"x", sum}, {"y", Literal::Int32(window)}}, "ring_age");
  Value* age_row = blocks_.Reshape(age, {1, window}, "ring_age_row");
  Value* limit = blocks_.Reshape(
      blocks_.Binary("minimum", b_.Const(Literal::Int32s(limits), "ring_limits"), Start(), "ring_limit"), {length, 1},
      "ring_limit_column");
  Value* old = FromVisible(blocks_.Binary("less", age_row, limit, "ring_visible"), "ring_old");
  Value* begin = blocks_.Concat({b_.Const(Literal::Int32s({0, 0, 0}), "ring_zeros"), RingPosition()}, 0, "ring_begin");
  Value* fresh = b_.Op("slice_by_size",
                       {{"x", mask}, {"begin", begin}, {"size", Literal::Int32s({1, 1, length, length})}}, "ring_new");
  return blocks_.Concat({old, fresh}, 3, "ring_mask");
}

/// The mask over [old window, new columns]: columns in order of position. The host's mask covers the last W of them;
/// token t sees old column c < T when c > t and the column holds a position at all.
Value* FunctionContext::ShiftMaskWithOld(Value* mask, int64_t window) {
  const int64_t length = blocks_.length();
  std::vector<int64_t> needs;  // position from which on the column is visible
  for (int64_t t = 0; t < length; ++t) {
    for (int64_t c = 0; c < length; ++c) needs.push_back(c > t ? window - c : INT32_MAX);
  }
  Value* limit = blocks_.Reshape(b_.Const(Literal::Int32s(needs), "shift_needs"), {length, length}, "shift_limit");
  Value* visible = blocks_.Binary("less_equal", limit, Start(), "shift_visible");
  return blocks_.Concat({FromVisible(visible, "shift_old"), mask}, 3, "shift_mask");
}

/// With any number of tokens, hosts give masks of zeros for the last token: causality and window come from the graph.
Value* FunctionContext::FlexibleMask(Value* mask, int64_t window) {
  const std::string name = window > 0 ? "band" : "causal";
  Value* row = b_.Op("expand_dims", {{"x", Positions()}, {"axes", Literal::Int32s({1})}}, name + "_rows");
  Value* end = b_.Op("squeeze", {{"x", Total()}, {"axes", Literal::Int32s({0})}}, name + "_end");
  Value* column =
      b_.Op("range_1d", {{"end", end}, {"start", Literal::Int32(0)}, {"step", Literal::Int32(1)}}, name + "_columns");
  Value* visible = blocks_.Binary("less_equal", column, row, name + "_seen");
  if (window > 0) {
    Value* oldest = b_.Op("sub", {{"x", row}, {"y", Literal::Int32(window)}}, name + "_oldest");
    visible = blocks_.Binary("logical_and", visible, blocks_.Binary("greater", column, oldest, name + "_young"),
                             name + "_visible");
  }
  // The smaller of both, not the sum, which could go beyond fp16.
  return blocks_.Binary("minimum", mask, FromVisible(visible, name), name + "_mask");
}

Value* FunctionContext::MaskOf(int64_t layer) {
  const LayerPlan& l = this->layer(layer);
  const CacheUpdate update = LayerUpdate(build_.model, build_.caches, layer);
  const bool with_old = blocks_.length() > 1 && (update == CacheUpdate::kRing || update == CacheUpdate::kShift);
  Value*& known = masks_[{l.sliding, with_old}];
  if (known != nullptr) return known;
  Value* mask = blocks_.Cast(HostMask(layer), build_.compute);
  if (build_.contract.flexible_length) return known = FlexibleMask(mask, l.sliding ? build_.model.window : 0);
  if (!with_old) return known = mask;
  const int64_t window = LayerColumns(build_.model, build_.caches, layer);
  return known = update == CacheUpdate::kRing ? RingMaskWithOld(mask, window) : ShiftMaskWithOld(mask, window);
}

}  // namespace milwright
