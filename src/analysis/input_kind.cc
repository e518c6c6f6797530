#include "analysis/input_kind.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <set>

#include "analysis/dataflow.h"
#include "analysis/effects.h"

namespace milwright {
namespace {

using Names = std::unordered_set<std::string_view>;

constexpr std::pair<InputKind, std::string_view> kKindNames[] = {
    {InputKind::kFree, "free"},
    {InputKind::kPosition, "position"},
    {InputKind::kRingPosition, "ring-position"},
    {InputKind::kPositionIds, "position-ids"},
    {InputKind::kUpdateMask, "update-mask"},
    {InputKind::kCausalMask, "causal-mask"},
    {InputKind::kSlidingMaskLeft, "sliding-mask-left"},
    {InputKind::kSlidingMaskRight, "sliding-mask-right"},
    {InputKind::kTokenId, "token-id"},
    {InputKind::kRotaryCos, "rotary-cos"},
    {InputKind::kRotarySin, "rotary-sin"},
    {InputKind::kHidden, "hidden"},
    {InputKind::kCache, "cache"},
};

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

bool NameHas(const Value& value, std::initializer_list<std::string_view> parts) {
  const std::string name = Lower(value.name);
  return std::ranges::any_of(parts, [&name](std::string_view part) { return name.find(part) != std::string::npos; });
}

bool IsMask(InputKind kind) {
  return kind == InputKind::kCausalMask || kind == InputKind::kSlidingMaskLeft || kind == InputKind::kSlidingMaskRight;
}
bool IsRotary(InputKind kind) { return kind == InputKind::kRotaryCos || kind == InputKind::kRotarySin; }

std::optional<int64_t> KnownSize(const Shape& shape, int64_t axis) {
  if (axis < 0) axis += static_cast<int64_t>(shape.size());
  if (axis < 0 || axis >= static_cast<int64_t>(shape.size())) return std::nullopt;
  const int64_t size = shape[static_cast<size_t>(axis)];
  return size == kUnknownDim ? std::nullopt : std::optional(size);
}

void Limit(std::optional<int64_t>& bound, std::optional<int64_t> by) {
  if (by.has_value()) bound = std::min(bound.value_or(*by), *by);
}

// ---- integers ----

// What an index goes into, seen through arithmetic on indices.
struct IndexUse {
  bool writes = false;                ///< where a cache is written
  std::optional<int64_t> write_size;  ///< rows there
  bool compared = false;              ///< with a range of positions, or made one-hot
  std::set<const Value*> tables;      ///< constants that it picks rows of
  std::optional<int64_t> table_size;  ///< fewest rows among them
  std::optional<int64_t> ring_size;   ///< the constant of a `mod` behind it
};

class IndexWalk {
 public:
  explicit IndexWalk(const Value* input) {
    Add(input);
    while (!pending_.empty()) {
      const Value* value = pending_.back();
      pending_.pop_back();
      for (const Use& use : value->uses()) {
        if (use.op != nullptr) Visit(*use.op, use.input);
      }
    }
  }
  [[nodiscard]] const IndexUse& result() const { return result_; }

 private:
  void Add(const Value* value) {
    if (seen_.insert(value).second) pending_.push_back(value);
  }

  void Visit(const Operation& op, std::string_view parameter) {
    static const Names kPassing = {"cast",          "add",       "sub",      "mul",       "expand_dims",
                                   "squeeze",       "concat",    "reshape",  "select",    "greater_equal",
                                   "less",          "identity",  "stack",    "tile",      "maximum",
                                   "minimum",       "shape",     "range_1d", "equal",     "slice_by_index",
                                   "slice_by_size", "not_equal", "greater",  "less_equal"};
    static const Names kComparing = {"equal", "less", "less_equal", "greater", "greater_equal", "not_equal"};
    const std::string& type = op.type();
    const Value* x = op.InputValue("x");
    if (parameter == "begin" || parameter == "end") {
      const std::optional<int64_t> size = x != nullptr ? SlicedSize(op, x->type.shape()) : std::nullopt;
      if (type == "slice_update") {
        result_.writes = true;
        Limit(result_.write_size, size);
      } else if (x != nullptr && x->constant() != nullptr) {
        UseTable(x, size);
      }
      return;
    }
    if (type.starts_with("gather") && parameter == "indices") {
      const Literal* axis = op.InputConstant("axis");
      if (x != nullptr) UseTable(x, KnownSize(x->type.shape(), axis != nullptr ? axis->tensor.GetInt(0) : 0));
      return;
    }
    if (type.starts_with("scatter") && parameter == "indices") {
      const Value* data = op.InputValue("data");
      const Literal* axis = op.InputConstant("axis");
      result_.writes = true;
      if (data != nullptr) {
        Limit(result_.write_size, KnownSize(data->type.shape(), axis != nullptr ? axis->tensor.GetInt(0) : 0));
      }
      return;
    }
    const Value* range = kComparing.contains(type) ? ComparedRange(op) : nullptr;
    if (type == "one_hot" || range != nullptr) {
      result_.compared = true;
      const Shape& places = range != nullptr ? range->type.shape() : op.output()->type.shape();
      if (IsStatic(places)) Limit(result_.write_size, std::ranges::max(places));
      return;
    }
    if (type == "mod" && parameter == "x") {
      if (const Literal* y = op.InputConstant("y"); y != nullptr && y->tensor.size() == 1) {
        result_.ring_size = y->tensor.GetInt(0);
      }
      return;
    }
    if (!kPassing.contains(type)) return;
    for (const auto& output : op.outputs()) Add(output.get());
  }

  void UseTable(const Value* table, std::optional<int64_t> rows) {
    if (table->producer() == nullptr && table->constant() == nullptr) return;
    result_.tables.insert(table);
    Limit(result_.table_size, rows);
  }

  // Along which axis the index slices `shape`: its place in the begin vector.
  [[nodiscard]] std::optional<int64_t> SlicedSize(const Operation& op, const Shape& shape) const {
    for (const char* parameter : {"begin", "end"}) {
      const Value* vector = op.InputValue(parameter);
      if (vector == nullptr) continue;
      vector = PeelViews(vector);
      const Operation* concat = vector->producer();
      if (concat == nullptr || (concat->type() != "concat" && concat->type() != "stack")) continue;
      int64_t at = 0;
      for (const Operand& operand : concat->FindInput("values")->arguments) {
        if (operand.value != nullptr && operand.value->constant() == nullptr && seen_.contains(operand.value)) {
          return KnownSize(shape, at);
        }
        at += operand.type().rank() == 0 ? 1 : std::max<int64_t>(operand.type().shape()[0], 1);
      }
    }
    return shape.size() == 1 ? KnownSize(shape, 0) : std::nullopt;
  }

  // What an index is compared with when that is the positions of the rows: several constants, or a range.
  static const Value* ComparedRange(const Operation& op) {
    for (const char* side : {"x", "y"}) {
      const Value* value = op.InputValue(side);
      if (value == nullptr) continue;
      const Value* peeled = PeelViews(value);
      const Operation* producer = peeled->producer();
      const Literal* constant = peeled->constant();
      if ((constant != nullptr && constant->tensor.size() > 1) ||
          (producer != nullptr && producer->type() == "range_1d")) {
        return value;
      }
    }
    return nullptr;
  }

  IndexUse result_;
  ValueSet seen_;
  std::vector<const Value*> pending_;
};

// ---- masks ----

// What a float or bool input goes into, seen through what is done to masks.
struct MaskUse {
  std::vector<const Operation*>
      scores;  ///< where it is added to the scores of an attention (or passed to the fused op)
  bool multiplies = false;
  bool complemented = false;  ///< 1 - m
  bool rotated = false;       ///< its columns are moved by computed amounts on the way
};

const Names& ScoreOps() {
  static const Names kOps = {"add",       "mul",           "real_div", "sub",    "cast",           "reshape",
                             "transpose", "select",        "squeeze",  "tanh",   "slice_by_index", "maximum",
                             "clip",      "slice_by_size", "identity", "concat", "expand_dims"};
  return kOps;
}

class MaskWalk {
 public:
  explicit MaskWalk(const Value* input) {
    Add(input);
    while (!pending_.empty()) {
      const Value* value = pending_.back();
      pending_.pop_back();
      for (const Use& use : value->uses()) {
        if (use.op != nullptr) Visit(*use.op, use.input, *value);
      }
    }
  }
  [[nodiscard]] const MaskUse& result() const { return result_; }

 private:
  void Add(const Value* value) {
    if (seen_.insert(value).second) pending_.push_back(value);
  }
  void Pass(const Operation& op) {
    for (const auto& output : op.outputs()) Add(output.get());
  }

  void Visit(const Operation& op, std::string_view parameter, const Value& value) {
    static const Names kPassing = {"cast",     "expand_dims", "squeeze",        "reshape",           "transpose",
                                   "identity", "tile",        "slice_by_index", "slice_by_size",     "logical_not",
                                   "concat",   "stack",       "gather",         "gather_along_axis", "reverse"};
    const std::string& type = op.type();
    if (type == "scaled_dot_product_attention") {
      if (parameter == "attn_mask") result_.scores.push_back(&op);
      return;
    }
    const bool select = type == "select" && parameter == "cond";
    const Value* other = Other(op, value);
    const bool by_constant = other == nullptr || other->constant() != nullptr;
    if ((type == "add" && !by_constant) || select) {
      const bool to_softmax = !op.outputs().empty() && LeadsToSoftmax(op);
      if (to_softmax && HoldsScores(op, value)) {
        result_.scores.push_back(&op);
      } else if (to_softmax) {
        Pass(op);  // part of a mask
      } else if (select) {
        result_.multiplies = result_.complemented = true;  // select(mask, new, old) updates a cache
      }
      return;
    }
    if (type == "sub" && parameter == "y" && by_constant) {
      result_.complemented = true;
      return Pass(op);
    }
    if (type == "mul") {
      if (by_constant) return Pass(op);
      result_.multiplies = true;
      return;
    }
    if (!kPassing.contains(type) && !((type == "add" || type == "sub" || type == "real_div") && by_constant)) return;
    const bool computed_slice =
        type.starts_with("slice_by_") && op.InputValue("begin") != nullptr && op.InputConstant("begin") == nullptr;
    const bool computed_gather =
        type.starts_with("gather") && parameter == "x" && op.InputConstant("indices") == nullptr;
    if (computed_slice || computed_gather) result_.rotated = true;
    if (parameter != "indices" && parameter != "begin") Pass(op);
  }

  static const Value* Other(const Operation& op, const Value& value) {
    for (const char* side : {"x", "y"}) {
      const Value* operand = op.InputValue(side);
      if (operand != nullptr && operand != &value) return operand;
    }
    return nullptr;
  }

  // Whether an operand besides `mask` is the product of queries and keys.
  static bool HoldsScores(const Operation& op, const Value& mask) {
    return std::ranges::any_of(op.inputs(), [&mask](const Input& input) {
      const Value* operand = input.arguments.front().value;
      return operand != nullptr && operand != &mask && ComesFrom(operand, {"matmul", "einsum"}, ScoreOps());
    });
  }

  static bool LeadsToSoftmax(const Operation& op) {
    return LeadsTo(op.output(), {"softmax", "exp", "reduce_log_sum_exp"}, ScoreOps());
  }

  MaskUse result_;
  ValueSet seen_;
  std::vector<const Value*> pending_;
};

// The states and cache inputs whose content the scores at `op` are computed from.
ValueSet CachesBehind(const Operation& op, const ValueSet& caches) {
  static const Names kBackOfKeys = {"slice_by_index",
                                    "slice_by_size",
                                    "split",
                                    "reshape",
                                    "transpose",
                                    "expand_dims",
                                    "squeeze",
                                    "concat",
                                    "stack",
                                    "tile",
                                    "cast",
                                    "identity",
                                    "slice_update",
                                    "select",
                                    "pad",
                                    "add",
                                    "mul",
                                    "sub",
                                    "gather",
                                    "reverse",
                                    "repeat_interleave",
                                    "scatter",
                                    "scatter_nd",
                                    "write_state",
                                    "real_div",
                                    "scatter_along_axis"};
  ValueSet found;
  ValueSet seen;
  std::vector<std::pair<const Value*, bool>> pending;  // a value, and whether the product is behind us
  const auto add = [&](const Value* value, bool keys) {
    if (value != nullptr && seen.insert(value).second) pending.emplace_back(value, keys);
  };
  if (op.type() == "scaled_dot_product_attention") {
    add(op.InputValue("key"), true);
  } else {
    for (const char* side : {"x", "y", "a", "b"}) add(op.InputValue(side), false);
  }
  while (!pending.empty()) {
    const auto [value, keys] = pending.back();
    pending.pop_back();
    if (caches.contains(value)) found.insert(value);
    const Operation* producer = value->producer();
    if (producer == nullptr) continue;
    if (IsStateRead(*producer) || producer->type() == "coreml_update_state") {
      found.insert(StateOf(*producer));
      continue;
    }
    const bool product = producer->type() == "matmul" || producer->type() == "einsum";
    if (product ? keys : !(keys ? kBackOfKeys : ScoreOps()).contains(producer->type())) continue;
    for (const Input& input : producer->inputs()) {
      for (const Operand& operand : input.arguments) add(operand.value, keys || product);
    }
  }
  return found;
}

// ---- the whole function ----

class KindFinder {
 public:
  KindFinder(const Function& function, const InputKindChoices& choices)
      : function_(function), choices_(choices), states_(AnalyzeStates(function)) {
    for (const CachePair& pair : states_.cache_pairs) caches_.insert(pair.input);
  }

  Result<FunctionInputs> Find() {
    for (const Value* input : function_.TensorInputs()) {
      InputFacts facts;
      facts.input = input;
      const auto pair = std::ranges::find(states_.cache_pairs, input, &CachePair::input);
      if (pair != states_.cache_pairs.end() && Fits(*pair)) {
        facts.kind = InputKind::kCache;
        facts.pair = *pair;
        facts.shifts_rows = !pair->whole && Shifts(pair->form) && pair->role == StateRole::kConv;
      } else if (IsInteger(input->type.dtype())) {
        FindIndex(facts);
      } else {
        FindMask(facts);
      }
      result_.inputs.push_back(std::move(facts));
    }
    SeparateRings();
    SeparateSlidingMasks();
    for (InputFacts& facts : result_.inputs) MW_RETURN_IF_ERROR(Choose(facts));
    for (InputFacts& facts : result_.inputs) FindAxes(facts);
    FindQueryLength();
    FindContextLength();
    return std::move(result_);
  }

 private:
  void FindIndex(InputFacts& facts) {
    const Value& input = *facts.input;
    const IndexUse use = IndexWalk(&input).result();
    uses_.emplace(&input, use);
    Limit(facts.bound, use.write_size);
    Limit(facts.bound, use.table_size);
    const bool several = input.type.rank() > 0 && input.type.shape().back() != 1;
    const InputKind place = several || input.type.rank() > 1 ? InputKind::kPositionIds : InputKind::kPosition;
    if (use.writes || use.compared || use.ring_size.has_value()) {
      facts.kind = place;
    } else if (NameHas(input, {"pos", "offset", "current_len", "past_len"})) {
      facts.kind = place;
    } else if (NameHas(input, {"input_id", "inputid", "token", "input_ids"})) {
      facts.kind = InputKind::kTokenId;
    } else if (use.tables.size() > 1) {
      facts.kind = place;  // cosines and sines
    } else if (use.tables.size() == 1) {
      facts.kind = InputKind::kTokenId;
    }
    if (facts.kind == InputKind::kPosition && !use.writes && !use.compared && input.type.rank() > 0) {
      facts.kind = InputKind::kPositionIds;  // of a step of one row
    }
    if (NameHas(input, {"ring"}) && facts.kind == InputKind::kPosition) facts.kind = InputKind::kRingPosition;
  }

  void FindMask(InputFacts& facts) {
    const Value& input = *facts.input;
    const MaskUse use = MaskWalk(&input).result();
    if (!use.scores.empty()) {
      facts.kind = InputKind::kCausalMask;
      masks_.emplace(&input, use);
    } else if ((use.multiplies && use.complemented) || NameHas(input, {"update_mask", "write_mask"})) {
      facts.kind = InputKind::kUpdateMask;
    } else if (NameHas(input, {"mask"}) && !NameHas(input, {"visual"}) && input.type.rank() >= 2) {
      facts.kind = InputKind::kCausalMask;
      masks_.emplace(&input, use);
    } else if (use.multiplies && NameHas(input, {"cos"})) {
      facts.kind = InputKind::kRotaryCos;
    } else if (use.multiplies && NameHas(input, {"sin"})) {
      facts.kind = InputKind::kRotarySin;
    } else if (IsFloat(input.type.dtype()) && input.type.rank() >= 2 &&
               (NameHas(input, {"hidden", "embed"}) || FeedsWeights(input))) {
      facts.kind = InputKind::kHidden;
    }
  }

  static bool FeedsWeights(const Value& input) {
    static const Names kThrough = {
        "cast",     "mul",    "add",     "sub",           "reduce_mean", "transpose", "reshape",
        "rsqrt",    "square", "concat",  "layer_norm",    "expand_dims", "squeeze",   "reduce_sum_square",
        "real_div", "sqrt",   "l2_norm", "reduce_l2_norm"};
    bool found = false;
    WalkForward(
        &input, [](const Operation& op) { return kThrough.contains(op.type()); },
        [&found](const Operation& op, const Value*) {
          found = found || op.type() == "linear" || op.type() == "conv" || op.type() == "matmul";
        });
    return found;
  }

  // Of several write positions, those of shorter caches count modulo their length.
  void SeparateRings() {
    std::optional<int64_t> longest;
    for (const auto& [input, use] : uses_) {
      if (use.writes && use.write_size.has_value()) longest = std::max(longest.value_or(0), *use.write_size);
    }
    for (InputFacts& facts : result_.inputs) {
      const auto it = uses_.find(facts.input);
      if (it == uses_.end() || !it->second.writes || !it->second.write_size.has_value()) continue;
      if (facts.kind == InputKind::kPosition && it->second.write_size < longest) facts.kind = InputKind::kRingPosition;
    }
  }

  static bool Shifts(UpdateForm form) { return form == UpdateForm::kShiftConcat || form == UpdateForm::kShiftMatmul; }

  void SeparateSlidingMasks() {
    std::optional<int64_t> longest;
    for (const InputFacts& facts : result_.inputs) {
      if (facts.kind != InputKind::kCausalMask) continue;
      if (const auto columns = KnownSize(facts.input->type.shape(), -1); columns.has_value()) {
        longest = std::max(longest.value_or(0), *columns);
      }
    }
    for (InputFacts& facts : result_.inputs) {
      if (facts.kind != InputKind::kCausalMask) continue;
      const MaskUse& use = masks_.at(facts.input);
      const auto columns = KnownSize(facts.input->type.shape(), -1);
      bool shifted = use.rotated;
      for (const Operation* op : use.scores) {
        for (const Value* cache : CachesBehind(*op, caches_)) {
          if (const StateFacts* state = states_.Find(cache); state != nullptr) {
            // One buffer may hold windows that shift and longer caches that do not.
            const bool all = std::ranges::all_of(state->writes, Shifts, &StateWrite::form);
            shifted = shifted || (Shifts(state->form) && (all || columns < longest));
            const bool behind = !Shifts(state->form) && columns.has_value() && AppendsRows(*state, *columns);
            facts.own_rows_last = facts.own_rows_last || behind;
            continue;
          }
          const auto pair = std::ranges::find(states_.cache_pairs, cache, &CachePair::input);
          if (pair == states_.cache_pairs.end()) continue;
          if (pair->whole) {
            shifted = shifted || Shifts(pair->form);
          } else if (Shifts(pair->form)) {
            // Either the whole cache and behind it the new rows, or the new rows in place of the oldest.
            const auto rows = RowsOf(*pair);
            const bool behind = rows.has_value() && columns.has_value() && *columns > *rows;
            (behind ? facts.own_rows_last : shifted) = true;
            std::ranges::find(result_.inputs, pair->input, &InputFacts::input)->shifts_rows = !behind;
          }
        }
      }
      if (shifted) {
        facts.kind = InputKind::kSlidingMaskRight;
      } else if (NameHas(*facts.input, {"sliding", "swa", "local", "window"}) || columns < longest) {
        facts.kind = InputKind::kSlidingMaskLeft;
      }
    }
  }

  // Whether the program puts new rows behind what it reads of `state`, `columns` rows in all, to attend to both: the
  // state itself gets the rows elsewhere.
  static bool AppendsRows(const StateFacts& state, int64_t columns) {
    static const Names kViews = {"slice_by_index", "slice_by_size", "split",    "reshape", "transpose",
                                 "expand_dims",    "squeeze",       "identity", "cast"};
    bool appends = false;
    for (const StateRead& read : state.reads) {
      WalkForward(
          read.value, [](const Operation& op) { return kViews.contains(op.type()); },
          [&](const Operation& op, const Value* content) {
            const Literal* axis = op.type() == "concat" ? op.InputConstant("axis") : nullptr;
            if (axis == nullptr || op.FindInput("values")->arguments.front().value != content) return;
            const int64_t at = axis->tensor.GetInt(0);
            const auto rows = KnownSize(op.output()->type.shape(), at);
            const auto old_rows = KnownSize(content->type.shape(), at);
            appends = appends || (rows == columns && old_rows < columns);
          });
    }
    return appends;
  }

  static std::optional<int64_t> RowsOf(const CachePair& pair) {
    const Shape& cache = pair.input->type.shape();
    const Shape& rows = pair.output->type.shape();
    for (size_t i = 0; i < cache.size() && i < rows.size(); ++i) {
      if (cache[i] != rows[i]) return KnownSize(cache, static_cast<int64_t>(i));
    }
    return std::nullopt;
  }

  // Whether a host can put what `pair` gives out back into its cache: whole, or rows along one axis.
  static bool Fits(const CachePair& pair) {
    const Type& cache = pair.input->type;
    const Type& given = pair.output->type;
    if (cache.rank() != given.rank() || cache.dtype() != given.dtype()) return false;
    int narrower = 0;
    for (size_t i = 0; i < cache.shape().size(); ++i) {
      if (given.shape()[i] > cache.shape()[i]) return false;
      narrower += given.shape()[i] != cache.shape()[i] ? 1 : 0;
    }
    return pair.whole ? narrower == 0 : narrower == 1;
  }

  // The pair of a cache and the output that the caller names; nothing when this function has no such output.
  Result<std::optional<CachePair>> StatedPair(const Value& input, const std::string& output) const {
    for (Value* value : function_.body().outputs()) {
      if (value->name != output) continue;
      const bool whole = value->type == input.type;
      CachePair pair{
          function_.FindInput(input.name), value, whole, UpdateForm::kReadModifyWrite, StateRole::kUnknown, {}};
      if (Fits(pair)) return std::optional(pair);
      return Status(
          ErrorCode::kUsage,
          fmt::format("output '{}' is {} and does not go back into the cache '{}' of '{}', which is {}", output,
                      TypeToString(value->type), input.name, function_.name, TypeToString(input.type)));
    }
    return std::optional<CachePair>();
  }

  Status Choose(InputFacts& facts) {
    const Value& input = *facts.input;
    const auto choice = choices_.find(input.name);
    if (choice != choices_.end()) {
      const InputKind kind = choice->second.kind;
      const bool integer = kind == InputKind::kPosition || kind == InputKind::kRingPosition ||
                           kind == InputKind::kPositionIds || kind == InputKind::kTokenId;
      const bool floating = IsRotary(kind) || kind == InputKind::kHidden;
      if (kind == InputKind::kCache && choice->second.cache_output.has_value()) {
        MW_ASSIGN_OR_RETURN(facts.pair, StatedPair(input, *choice->second.cache_output));
        facts.shifts_rows = false;
      } else if (kind == InputKind::kCache && !facts.pair.has_value()) {
        return {ErrorCode::kUsage,
                fmt::format("say which output the cache '{0}' of '{1}' comes back from: --input-kind {0}=cache:OUTPUT",
                            input.name, function_.name)};
      }
      if ((integer && !IsInteger(input.type.dtype())) || (floating && !IsFloat(input.type.dtype()))) {
        return {ErrorCode::kUsage, fmt::format("input '{}' of '{}' is {} and cannot be of kind {}", input.name,
                                               function_.name, TypeToString(input.type), InputKindName(kind))};
      }
      facts.kind = kind;
      facts.window = choice->second.window;
      if (kind != InputKind::kCausalMask) facts.own_rows_last = false;
    }
    if (facts.kind != InputKind::kRingPosition || facts.window.has_value()) return Status::Ok();
    const auto use = uses_.find(&input);
    facts.window = use != uses_.end() ? use->second.write_size : std::nullopt;
    for (const InputFacts& mask : result_.inputs) {  // a ring in a buffer that is longer than its window
      if (mask.kind == InputKind::kSlidingMaskLeft) Limit(facts.window, KnownSize(mask.input->type.shape(), -1));
    }
    if (facts.window.has_value()) return Status::Ok();
    if (choice != choices_.end()) {
      return {ErrorCode::kUsage,
              fmt::format("say how long the ring of '{0}' is: --input-kind {0}=ring-position:W", input.name)};
    }
    facts.kind = InputKind::kPosition;
    return Status::Ok();
  }

  // Which dimensions hold the rows of the step and the rows of the cache.
  void FindAxes(InputFacts& facts) const {
    const Shape& shape = facts.input->type.shape();
    if (shape.empty()) return;
    const size_t last = shape.size() - 1;
    if (facts.kind == InputKind::kTokenId || facts.kind == InputKind::kPositionIds) {
      facts.query_axis = last;
    } else if (IsMask(facts.kind) || facts.kind == InputKind::kUpdateMask) {
      // The longest dimension runs over the cache; one that is open, or not 1, beside it over the step.
      size_t context = last;
      for (size_t i = shape.size(); i-- > 0;) {
        if (shape[i] > shape[context]) context = i;
      }
      if (shape[last] == kUnknownDim) context = last;
      facts.context_axis = context;
      for (size_t i = shape.size(); i-- > 0;) {
        if (i != context && (shape[i] != 1 || (!facts.query_axis.has_value() && IsMask(facts.kind)))) {
          facts.query_axis = i;
          if (shape[i] != 1) break;
        }
      }
    } else if (IsRotary(facts.kind) || facts.kind == InputKind::kHidden) {
      // [1, T, H], [1, 1, T, D]; or [1, H, 1, T], channels first.
      const bool channels_first = shape.size() == 4 && shape[2] == 1 && shape[1] > shape[last];
      if (channels_first) {
        facts.query_axis = last;
      } else if (shape.size() == 3 || (IsRotary(facts.kind) && shape.size() >= 2)) {
        facts.query_axis = last - 1;
      }
    }
  }

  void FindQueryLength() {
    constexpr std::array kOrder = {
        InputKind::kTokenId,         InputKind::kPositionIds, InputKind::kCausalMask, InputKind::kSlidingMaskRight,
        InputKind::kSlidingMaskLeft, InputKind::kRotaryCos,   InputKind::kHidden};
    std::optional<int64_t> rows;  // that the caches and tables have
    for (const InputFacts& facts : result_.inputs) {
      if (facts.kind == InputKind::kPosition) Limit(rows, facts.bound);
    }
    for (const InputKind kind : kOrder) {
      for (const InputFacts& facts : result_.inputs) {
        if (facts.kind != kind || !facts.query_axis.has_value()) continue;
        const int64_t length = facts.input->type.shape()[*facts.query_axis];
        if (rows.has_value() && length > *rows) continue;  // no rows of a step
        result_.query_length = length;
        return;
      }
    }
  }

  void FindContextLength() {
    for (const InputFacts& facts : result_.inputs) {
      if (facts.kind == InputKind::kPosition || facts.kind == InputKind::kPositionIds) {
        Limit(result_.context_length, facts.bound);
      } else if (facts.kind == InputKind::kCausalMask || facts.kind == InputKind::kUpdateMask) {
        auto columns = KnownSize(facts.input->type.shape(), static_cast<int64_t>(facts.context_axis.value_or(0)));
        if (columns.has_value() && facts.own_rows_last) *columns -= std::max<int64_t>(result_.query_length, 1);
        Limit(result_.context_length, columns);
      }
    }
  }

  const Function& function_;
  const InputKindChoices& choices_;
  FunctionStates states_;
  ValueSet caches_;
  std::map<const Value*, IndexUse> uses_;
  std::map<const Value*, MaskUse> masks_;
  FunctionInputs result_;
};

}  // namespace

std::string_view InputKindName(InputKind kind) {
  const auto* it = std::ranges::find(kKindNames, kind, &std::pair<InputKind, std::string_view>::first);
  return it->second;
}

std::optional<InputKind> InputKindFromName(std::string_view name) {
  const auto* it = std::ranges::find(kKindNames, name, &std::pair<InputKind, std::string_view>::second);
  return it != std::end(kKindNames) ? std::optional(it->first) : std::nullopt;
}

Status AddInputKindChoice(std::string_view text, InputKindChoices& choices) {
  const size_t equals = text.rfind('=');
  if (equals == std::string_view::npos || equals == 0) {
    return {ErrorCode::kUsage, fmt::format("an input kind is written NAME=KIND, not '{}'", text)};
  }
  std::string_view name = text.substr(equals + 1);
  InputKindChoice choice;
  if (const size_t colon = name.find(':'); colon != std::string_view::npos) {
    const std::string_view detail = name.substr(colon + 1);
    name = name.substr(0, colon);
    int64_t window = 0;
    const auto [rest, error] = std::from_chars(detail.data(), detail.data() + detail.size(), window);
    if (name == InputKindName(InputKind::kCache)) {
      choice.cache_output = std::string(detail);
    } else if (error == std::errc() && rest == detail.data() + detail.size() && window > 0) {
      choice.window = window;
    } else {
      return {ErrorCode::kUsage, fmt::format("the window in '{}' is no positive number", text)};
    }
  }
  const auto kind = InputKindFromName(name);
  if (!kind.has_value()) {
    std::string known;
    for (const auto& [value, text_name] : kKindNames)
      known += fmt::format("{}{}", known.empty() ? "" : ", ", text_name);
    return {ErrorCode::kUsage, fmt::format("there is no input kind '{}'; the kinds are: {}", name, known)};
  }
  choice.kind = *kind;
  choices.insert_or_assign(std::string(text.substr(0, equals)), choice);
  return Status::Ok();
}

Result<FunctionInputs> FindInputKinds(const Function& function, const InputKindChoices& choices) {
  return KindFinder(function, choices).Find();
}

}  // namespace milwright
