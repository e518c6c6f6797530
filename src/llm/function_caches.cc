// Caches of a function: reading rows, writing columns in each update form, states and explicit inputs alike.
#include <fmt/format.h>

#include "llm/function_context.h"

namespace milwright {
namespace {

// What rounding x to fp16 leaves is at most 2^-11 |x|. Times 2^11 it is again a number of the size of x: no denormal
// where x is none, which hardware may flush to zero, and no overflow where x has none.
constexpr double kLowHalfScale = 2048;

}  // namespace

Value* FunctionContext::Current(Buffer& buffer) {
  if (buffer.current == nullptr) buffer.current = b_.ReadState(buffer.input);
  return buffer.current;
}

void FunctionContext::Replace(Buffer& buffer, Value* value) { buffer.current = value; }

/// Stores what was replaced in the state; the next use reads it again, as coremltools has it.
void FunctionContext::Commit(Buffer& buffer) {
  if (buffer.plan->storage != CacheStorage::kState || !blocks_.status().ok()) return;
  b_.WriteState(buffer.input, buffer.current);
  buffer.current = nullptr;
}

Value* FunctionContext::ReadRegion(Buffer& buffer, const Region& region) {
  Value* whole = Current(buffer);
  if (whole == nullptr) return nullptr;
  const Shape& shape = whole->type.shape();
  if (shape == Shape{1, region.heads, region.columns, region.size}) return whole;
  const std::string name = fmt::format("{}_{}_view", buffer.plan->name, region.row);
  if (region.columns == kUnknownDim) {  // as many columns as there are tokens so far
    Value* end = blocks_.Concat({b_.Const(Literal::Int32s({region.row + 1, region.heads}), name + "_end_head"), Total(),
                                 b_.Const(Literal::Int32s({region.size}), name + "_end_tail")},
                                0, name + "_end");
    return b_.Op("slice_by_index", {{"x", whole}, {"begin", Literal::Int32s({region.row, 0, 0, 0})}, {"end", end}},
                 name);
  }
  return b_.Op("slice_by_index",
               {{"x", whole},
                {"begin", Literal::Int32s({region.row, 0, 0, 0})},
                {"end", Literal::Int32s({region.row + 1, region.heads, region.columns, region.size})}},
               name);
}

/// `whole` with `value` at a fixed place.
Value* FunctionContext::PutRegion(Value* whole, const Region& region, Value* value) {
  if (whole == nullptr || value == nullptr) return nullptr;
  if (whole->type == value->type) return value;
  return b_.Op("slice_update",
               {{"x", whole},
                {"update", value},
                {"begin", Literal::Int32s({region.row, 0, 0, 0})},
                {"end", Literal::Int32s({region.row + 1, region.heads, region.columns, region.size})}},
               whole->name + "_put");
}

Value* FunctionContext::PutColumns(Buffer& buffer, const Region& region, Value* value, Value* begin, Value* end) {
  Value* whole = Current(buffer);
  if (whole == nullptr || value == nullptr) return nullptr;
  const std::string name = fmt::format("{}_{}_update", buffer.plan->name, region.row);
  const auto corner = [&](const std::vector<int64_t>& head, Value* middle, int64_t tail, std::string_view what) {
    const std::string text = fmt::format("{}_{}", name, what);
    return blocks_.Concat(
        {b_.Const(Literal::Int32s(head), text + "_head"), middle, b_.Const(Literal::Int32s({tail}), text + "_tail")}, 0,
        text);
  };
  // Axes that are not sliced carry end 0 with a mask (package-format.md, section 3).
  const bool all_heads = region.heads == buffer.plan->type.shape[1];
  const bool all_sizes = region.size == buffer.plan->type.shape[3];
  Value* from = corner({region.row, 0}, begin, 0, "begin");
  Value* to = corner({region.row + 1, all_heads ? 0 : region.heads}, end, all_sizes ? 0 : region.size, "end");
  return b_.Op("slice_update",
               {{"x", whole},
                {"update", value},
                {"begin", from},
                {"end", to},
                {"end_mask", Literal::Bools({0, all_heads ? 1 : 0, 0, all_sizes ? 1 : 0})}},
               name);
}

Value* FunctionContext::End(Value* begin) {
  if (build_.contract.flexible_length) return Total();
  Value*& known = ends_[begin];
  if (known != nullptr || begin == nullptr) return known;
  return known = b_.Op("add", {{"x", begin}, {"y", Literal::Int32(blocks_.length())}}, begin->name + "_end");
}

Value* FunctionContext::RingPosition() { return Input(FeatureKind::kRingPosition); }

/// Writes new columns into one row of a buffer, without committing.
void FunctionContext::StoreColumns(const LayerCache& cache, const CacheSlot& slot, int64_t layer, Value* value) {
  Buffer& buffer = buffers_[static_cast<size_t>(slot.buffer)];
  const LayerPlan& l = this->layer(layer);
  const Region row{slot.row, l.kv_heads, cache.columns, l.head_size};
  const DataType dtype = buffer.plan->type.dtype;
  const std::string name = fmt::format("{}_{}", buffer.plan->name, slot.row);
  if (value == nullptr) return;
  switch (cache.update) {
    case CacheUpdate::kSlice:
      Replace(buffer, PutColumns(buffer, row, value, Start(), End(Start())));
      if (buffer.plan->storage == CacheStorage::kExplicitNew) buffer.fresh[slot.row] = value;
      return;
    case CacheUpdate::kRing:
      Replace(buffer, PutColumns(buffer, row, value, RingPosition(), End(RingPosition())));
      return;
    case CacheUpdate::kShift: {
      Value* rest = blocks_.length() < cache.columns
                        ? blocks_.Slice(ReadRegion(buffer, row), 2, blocks_.length(), Blocks::kToEnd, name + "_kept")
                        : nullptr;
      Value* shifted = rest == nullptr ? value : blocks_.Concat({rest, value}, 2, name + "_shifted");
      Replace(buffer, PutRegion(Current(buffer), row, shifted));
      return;
    }
    case CacheUpdate::kMask: {
      Value* one_hot = blocks_.Cast(Input(FeatureKind::kUpdateMask), dtype);
      if (keep_ == nullptr) {
        Value* written =
            blocks_.length() == 1
                ? one_hot
                : b_.Op("reduce_sum",
                        {{"x", one_hot}, {"axes", Literal::Int32s({-1})}, {"keep_dims", Literal::Bool(true)}},
                        "written_columns");
        keep_ = b_.Op("sub", {{"x", Literal::Float(dtype, 1)}, {"y", written}}, "kept_columns");
      }
      Value* old = blocks_.Binary("mul", ReadRegion(buffer, row), keep_, name + "_kept");
      Value* placed = blocks_.length() == 1 ? blocks_.Binary("mul", one_hot, value, name + "_placed")
                                            : b_.Op("matmul", {{"x", one_hot}, {"y", value}}, name + "_placed");
      Replace(buffer, PutRegion(Current(buffer), row, blocks_.Binary("add", old, placed, name + "_blend")));
      return;
    }
  }
}

FunctionContext::View FunctionContext::Update(int64_t layer, Value* key, Value* value) {
  const LayerCache& cache = this->cache(layer);
  const LayerPlan& l = this->layer(layer);
  Buffer& keys = buffers_[static_cast<size_t>(cache.key.buffer)];
  Buffer& values = buffers_[static_cast<size_t>(cache.value.buffer)];
  // Rounded to the cache's type before anything reads them, so that T = 1 and T > 1 see the same numbers.
  key = blocks_.Cast(key, keys.plan->type.dtype);
  value = blocks_.Cast(value, values.plan->type.dtype);
  const bool windowed = cache.update == CacheUpdate::kRing || cache.update == CacheUpdate::kShift;
  const bool with_old = windowed && blocks_.length() > 1;
  const int64_t columns = build_.contract.flexible_length ? kUnknownDim : cache.columns;
  const Region key_row{cache.key.row, l.kv_heads, columns, l.head_size};
  const Region value_row{cache.value.row, l.kv_heads, columns, l.head_size};
  View view;
  if (with_old) {
    const std::string name = Blocks::Name(layer, "");
    view.key = blocks_.Concat({ReadRegion(keys, key_row), key}, 2, name + "old_and_new_keys");
    view.value = blocks_.Concat({ReadRegion(values, value_row), value}, 2, name + "old_and_new_values");
  }
  StoreColumns(cache, cache.key, layer, key);
  if (cache.key.buffer != cache.value.buffer) Commit(keys);
  StoreColumns(cache, cache.value, layer, value);
  Commit(values);
  if (!with_old) {
    view.key = ReadRegion(keys, key_row);
    view.value = ReadRegion(values, value_row);
  }
  view.key = blocks_.Cast(view.key, build_.compute);
  view.value = blocks_.Cast(view.value, build_.compute);
  view.mask = MaskOf(layer);
  views_[layer] = view;
  return view;
}

FunctionContext::View FunctionContext::Shared(int64_t source) {
  if (const auto known = views_.find(source); known != views_.end()) return known->second;
  const LayerPlan& l = layer(source);
  const CacheUpdate update = LayerUpdate(build_.model, build_.caches, source);
  const bool windowed = update == CacheUpdate::kRing || update == CacheUpdate::kShift;
  const int64_t columns =
      LayerColumns(build_.model, build_.caches, source) + (windowed && blocks_.length() > 1 ? blocks_.length() : 0);
  const Symbols extra = {{"K", l.kv_heads}, {"D", l.head_size}, {"S", columns}};
  View view;
  view.key = blocks_.Cast(Input(FeatureKind::kSharedKey, source, {}, extra), build_.compute);
  view.value = blocks_.Cast(Input(FeatureKind::kSharedValue, source, {}, extra), build_.compute);
  view.mask = MaskOf(source);
  views_[source] = view;
  return view;
}

Value* FunctionContext::JoinHalves(const Halves& halves, const std::string& name) {
  Value* high = blocks_.Cast(halves.high, DataType::kFp32);
  Value* low = blocks_.Multiply(blocks_.Cast(halves.low, DataType::kFp32), 1 / kLowHalfScale, name + "_low");
  return blocks_.Binary("add", high, low, name + "_sum");
}

FunctionContext::Halves FunctionContext::SplitHalves(Value* value, const std::string& name) {
  Value* high = blocks_.Cast(value, DataType::kFp16);
  Value* rest = blocks_.Binary("sub", value, blocks_.Cast(high, DataType::kFp32), name + "_rest");
  return {high, blocks_.Cast(blocks_.Multiply(rest, kLowHalfScale, name + "_scaled_rest"), DataType::kFp16)};
}

Value* FunctionContext::ThroughHalves(const CacheSlot& slot, Value* value) {
  if (value == nullptr || !buffers_[static_cast<size_t>(slot.buffer)].plan->halves) return value;
  return JoinHalves(SplitHalves(value, value->name), value->name + "_kept");
}

Value* FunctionContext::ReadRow(const CacheSlot& slot, const Shape& shape) {
  Buffer& buffer = buffers_[static_cast<size_t>(slot.buffer)];
  Value* whole = Current(buffer);
  if (whole == nullptr) return nullptr;
  const std::string name = fmt::format("{}_{}_row", buffer.plan->name, slot.row);
  const int64_t count = buffer.plan->rows_per_layer();
  Value* row = whole->type.shape()[0] == count ? whole : blocks_.Slice(whole, 0, slot.row, slot.row + count, name);
  if (buffer.plan->halves) {
    const std::vector<Value*> halves = blocks_.Split(row, {1, 1}, 0, name + "_halves");
    row = JoinHalves({halves[0], halves[1]}, name);
  }
  if (row != nullptr && row->type.shape() != shape) row = blocks_.Reshape(row, shape, name + "_shaped");
  return row;
}

void FunctionContext::WriteRow(const CacheSlot& slot, Value* value) {
  Buffer& buffer = buffers_[static_cast<size_t>(slot.buffer)];
  Value* whole = Current(buffer);
  if (whole == nullptr || value == nullptr) return;
  const std::string name = fmt::format("{}_{}_new", buffer.plan->name, slot.row);
  const int64_t count = buffer.plan->rows_per_layer();
  Shape shape = whole->type.shape();
  const int64_t rows = shape[0];
  shape[0] = 1;
  if (!buffer.plan->halves) value = blocks_.Cast(value, buffer.plan->type.dtype);
  if (value != nullptr && value->type.shape() != shape) value = blocks_.Reshape(value, shape, name + "_row");
  if (buffer.plan->halves) {
    const Halves halves = SplitHalves(value, name);
    value = blocks_.Concat({halves.high, halves.low}, 0, name + "_halves");
  }
  if (rows > count) {
    const size_t rank = shape.size();
    std::vector<int64_t> begin(rank, 0), end(rank, 0), end_mask(rank, 1);
    begin[0] = slot.row;
    end[0] = slot.row + count;
    end_mask[0] = 0;
    value = b_.Op("slice_update",
                  {{"x", whole},
                   {"update", value},
                   {"begin", Literal::Int32s(begin)},
                   {"end", Literal::Int32s(end)},
                   {"end_mask", Literal::Bools(end_mask)}},
                  name);
  }
  Replace(buffer, value);
  Commit(buffer);
}

std::vector<FunctionContext::CacheOutput> FunctionContext::Finish() {
  std::vector<CacheOutput> outputs;
  for (Buffer& buffer : buffers_) {
    if (buffer.plan->storage == CacheStorage::kState || !blocks_.status().ok()) continue;
    Value* result = buffer.current;
    if (buffer.plan->storage == CacheStorage::kExplicitNew && !buffer.fresh.empty()) {
      // Rows whose heads or entries are fewer than the cache's are padded with zeros.
      const Shape& shape = buffer.plan->type.shape;
      std::vector<Value*> rows;
      for (const auto& [row, value] : buffer.fresh) {
        const Shape& own = value->type.shape();
        const std::vector<int64_t> padding = {0, 0, 0, shape[1] - own[1], 0, 0, 0, shape[3] - own[3]};
        const bool padded = padding[3] != 0 || padding[7] != 0;
        rows.push_back(!padded ? value
                               : b_.Op("pad",
                                       {{"x", value},
                                        {"pad", Literal::Int32s(padding)},
                                        {"mode", Literal::String("constant")},
                                        {"constant_val", Literal::Float(value->type.dtype(), 0)}},
                                       value->name + "_padded"));
      }
      result = rows.size() == 1 ? rows.front() : blocks_.Concat(rows, 0, buffer.plan->name + "_fresh");
    }
    outputs.push_back({buffer.plan->output_name, result});
  }
  return outputs;
}

}  // namespace milwright
