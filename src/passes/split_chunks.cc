#include "passes/split_chunks.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <set>

#include "analysis/dataflow.h"
#include "analysis/effects.h"
#include "base/file_io.h"
#include "format/package.h"
#include "passes/edit.h"
#include "passes/entries.h"
#include "passes/layer_cuts.h"
#include "passes/relayout.h"

namespace milwright {
namespace {

// Layers [first, last] of every function.
struct Chunk {
  size_t first = 0;
  size_t last = 0;
};

struct HiddenNames {
  std::string in;
  std::string out;
};

Result<std::vector<Chunk>> ChunksOf(const std::vector<int64_t>& counts, size_t layers) {
  std::vector<Chunk> chunks;
  size_t next = 0;
  for (const int64_t count : counts) {
    if (count < 1 || static_cast<size_t>(count) > layers - next) {
      return Refuse(fmt::format("there are {} layers to put into chunks, which does not fit {}", layers,
                                fmt::join(counts, " + ")));
    }
    chunks.push_back({next, next + static_cast<size_t>(count) - 1});
    next += static_cast<size_t>(count);
  }
  if (next != layers) {
    return Refuse(fmt::format("there are {} layers, but the chunks take {}", layers, next));
  }
  return chunks;
}

Result<std::vector<Chunk>> PlanChunks(const ChunkOptions& options, const std::vector<Layer>& layers) {
  std::vector<int64_t> counts = options.layers;
  if (options.count > 0) {
    if (static_cast<size_t>(options.count) > layers.size()) {
      return Refuse(fmt::format("{} chunks cannot be made of {} layers", options.count, layers.size()));
    }
    const auto total = static_cast<int64_t>(layers.size());
    for (int64_t i = 0; i < options.count; ++i) {
      counts.push_back(total * (i + 1) / options.count - total * i / options.count);
    }
  } else if (options.max_bytes > 0) {
    int64_t filled = 0;
    for (size_t i = 0; i < layers.size(); ++i) {
      const int64_t bytes = layers[i].weight_bytes;
      if (bytes > options.max_bytes) {
        return Refuse(fmt::format("layer {} alone has {} bytes of weights, more than {}", i, bytes, options.max_bytes));
      }
      if (counts.empty() || filled + bytes > options.max_bytes) {
        counts.push_back(0);
        filled = 0;
      }
      ++counts.back();
      filled += bytes;
    }
  }
  return ChunksOf(counts, layers.size());
}

// Keeps the layers of `chunk` in `function`.
class Cutter {
 public:
  Cutter(Function& function, const Chunk& chunk, const HiddenNames& names)
      : function_(function),
        body_(function.body()),
        names_(names),
        layers_(FindLayers(function)),
        chunk_(chunk),
        order_(BodyOrder(function)) {}

  Status Cut() {
    std::vector<Value*> outputs;
    for (Value* output : body_.outputs()) {
      if (IsOwn(*output)) outputs.push_back(output);
    }
    if (chunk_.last + 1 < layers_.size()) outputs.push_back(HiddenOutput());
    Value* input = nullptr;
    if (chunk_.first > 0) {
      Value* hidden = layers_[chunk_.first - 1].hidden;
      input = AddTensorInput(function_, function_.UniqueName(names_.in), hidden->type);
      hidden->ReplaceAllUsesWith(input);
    }
    if (outputs.empty() || outputs.back() == nullptr) {
      return Refuse(fmt::format("a chunk of '{}' would have no output", function_.name));
    }
    body_.SetOutputs(std::move(outputs));
    MW_RETURN_IF_ERROR(EraseOthers());
    if (input != nullptr) {
      ReleaseName(function_, names_.in);
      input->name = names_.in;
    }
    EraseUnusedInputs(function_);
    return Status::Ok();
  }

  static void EraseUnusedInputs(Function& function) {
    std::vector<Value*> unused;
    for (const auto& input : function.inputs()) {
      if (input->uses().empty()) unused.push_back(input.get());
    }
    for (Value* input : unused) function.EraseInput(input);
  }

 private:
  bool IsInside(size_t place) const {
    const bool behind = chunk_.first == 0 || place > layers_[chunk_.first - 1].last;
    return behind && place <= layers_[chunk_.last].last;
  }

  bool IsOwn(const Value& output) const {
    return output.producer() == nullptr ? chunk_.first == 0 : IsInside(order_.at(output.producer()));
  }

  Value* HiddenOutput() {
    Value* hidden = layers_[chunk_.last].hidden;
    ReleaseName(function_, names_.out);
    if (!IsFunctionOutput(*hidden)) {
      hidden->name = names_.out;
      return hidden;
    }
    Builder builder(body_);
    return builder.Op("identity", {{"x", hidden}}, names_.out);
  }

  // Removes what belongs to other chunks: their effects, and what nobody needs any more.
  Status EraseOthers() {
    Operation* op = body_.operations().empty() ? nullptr : body_.operations().back().get();
    while (op != nullptr) {
      Operation* previous = body_.Previous(op);
      const auto place = order_.find(op);
      const bool inside = place == order_.end() || IsInside(place->second);
      const bool used = std::ranges::any_of(op->outputs(), [](const auto& value) { return !value->uses().empty(); });
      if (!used && (!inside || !HasEffect(*op))) {
        body_.Erase(op);
      } else if (!inside && IsImpure(*op)) {
        return Refuse(
            fmt::format("{} belongs to another chunk, but its value is needed in this one", OperationPath(*op)));
      }
      op = previous;
    }
    return Status::Ok();
  }

  Function& function_;
  Block& body_;
  const HiddenNames& names_;
  std::vector<Layer> layers_;
  Chunk chunk_;
  std::unordered_map<const Operation*, size_t> order_;
};

std::string ChunkName(size_t chunk, size_t chunks) { return fmt::format("chunk {} of {}", chunk + 1, chunks); }

// The slots of state `name` that a chunk uses.
std::vector<int64_t> UsedSlots(const ModelSpec& chunk, const std::string& name, int64_t slots) {
  std::vector<int64_t> used;
  for (int64_t slot = 0; slot < slots; ++slot) {
    const bool any = std::ranges::any_of(chunk.program.functions(), [&](const auto& function) {
      const Value* state = function->FindInput(name);
      return state != nullptr && UsesSlot(*state, slot);
    });
    if (any) used.push_back(slot);
  }
  return used;
}

// Leaves a state only the slots `used`.
Status KeepSlots(ModelSpec& chunk, const std::string& name, const std::vector<int64_t>& used, PassReport& report) {
  for (const auto& function : chunk.program.functions()) {
    Value* state = function->FindInput(name);
    if (state == nullptr) continue;
    Type type = state->type;
    const int64_t slots = type.tensor.shape[0];
    type.tensor.shape[0] = static_cast<int64_t>(used.size());
    Value* target = function->InsertInput(state->index(), function->UniqueName(name + "_slots"), type);
    StateLayout layout{state, {}};
    for (int64_t slot = 0; slot < slots; ++slot) {
      const auto place = std::ranges::find(used, slot);
      const bool kept = place != used.end();
      StatePiece piece{slot, 1, kept ? target : nullptr, kept ? place - used.begin() : 0};
      StatePiece* before = layout.pieces.empty() ? nullptr : &layout.pieces.back();
      if (before != nullptr && before->target == piece.target &&
          (!kept || before->target_slot + before->slots == piece.target_slot)) {
        ++before->slots;
      } else {
        layout.pieces.push_back(piece);
      }
    }
    MW_RETURN_IF_ERROR(Relayout(*function, {layout}, report));
    target->name = name;
  }
  return Status::Ok();
}

// No two chunks may use one slot: each chunk has states of its own.
Status DivideStates(std::vector<ModelSpec>& chunks, PassReport& report) {
  std::map<std::string, std::vector<size_t>> users;
  for (size_t i = 0; i < chunks.size(); ++i) {
    std::set<std::string> names;
    for (const auto& function : chunks[i].program.functions()) {
      for (const Value* state : function->States()) names.insert(state->name);
    }
    for (const std::string& name : names) users[name].push_back(i);
  }
  for (const auto& [name, where] : users) {
    if (where.size() < 2) continue;
    MW_ASSIGN_OR_RETURN(const Type type, SharedStateType(chunks[where.front()].program, name));
    std::map<int64_t, size_t> owner;
    std::vector<std::vector<int64_t>> used;
    for (const size_t chunk : where) {
      used.push_back(UsedSlots(chunks[chunk], name, type.shape().empty() ? 0 : type.shape()[0]));
      for (const int64_t slot : used.back()) {
        const auto [it, fresh] = owner.emplace(slot, chunk);
        if (fresh) continue;
        return Refuse(fmt::format("slot {} of '{}' is used in {} and in {}, which have no state in common", slot, name,
                                  ChunkName(it->second, chunks.size()), ChunkName(chunk, chunks.size())));
      }
    }
    for (size_t i = 0; i < where.size(); ++i) {
      MW_RETURN_IF_ERROR(KeepSlots(chunks[where[i]], name, used[i], report));
    }
  }
  return Status::Ok();
}

// The lookup of token rows: the gather from the largest table of floats, by indices that come from an input.
Operation* FindEmbedding(const Function& function) {
  Operation* found = nullptr;
  int64_t largest = 0;
  for (const auto& op : function.body().operations()) {
    if (op->type() != "gather" || op->InputConstant("x") == nullptr || op->InputValue("indices") == nullptr) continue;
    const Literal* axis = op->InputConstant("axis");
    const Tensor& table = op->InputConstant("x")->tensor;
    const bool rows = table.rank() == 2 && (axis == nullptr || axis->tensor.GetInt(0) == 0);
    if (!rows || !IsFloat(table.dtype()) || table.size() <= largest) continue;
    found = op.get();
    largest = table.size();
  }
  return found;
}

// Takes the embedding out of the first chunk; gives back its table.
Result<Tensor> TakeEmbedding(ModelSpec& chunk, const std::string& hidden) {
  std::optional<Tensor> table;
  for (const auto& function : chunk.program.functions()) {
    Operation* lookup = FindEmbedding(*function);
    if (lookup == nullptr) {
      return Refuse(
          fmt::format("'{}' looks no tokens up in a constant table of floats (a compressed table stays in "
                      "the package)",
                      function->name));
    }
    const Tensor& rows = lookup->InputConstant("x")->tensor;
    if (rows.dtype() != DataType::kFp16) {
      return Refuse(fmt::format("{} looks up {} rows; the side file holds fp16", OperationPath(*lookup),
                                DataTypeName(rows.dtype())));
    }
    if (table.has_value() && !table->BitEquals(rows)) {
      return Refuse(fmt::format("{} has another table than the other functions", OperationPath(*lookup)));
    }
    table = rows;
    Value* input = AddTensorInput(*function, function->UniqueName(hidden), lookup->output()->type);
    lookup->output()->ReplaceAllUsesWith(input);
    EraseUnused(lookup->output());
    ReleaseName(*function, hidden);
    input->name = hidden;
    Cutter::EraseUnusedInputs(*function);
  }
  return *std::move(table);
}

Result<int64_t> Positive(const PassArguments& arguments, std::string_view key) {
  MW_ASSIGN_OR_RETURN(const int64_t value, arguments.Int(key, 0));
  if (arguments.Has(key) && value < 1) return Usage(fmt::format("option '{}' is at least 1, not {}", key, value));
  return value;
}

}  // namespace

Result<ChunkOptions> ParseChunkOptions(const PassArguments& arguments) {
  ChunkOptions options;
  MW_ASSIGN_OR_RETURN(options.count, Positive(arguments, "count"));
  MW_ASSIGN_OR_RETURN(options.max_bytes, Positive(arguments, "bytes"));
  MW_ASSIGN_OR_RETURN(options.embedding, BoolOption(arguments, "embedding", false));
  for (const std::string& text : arguments.List("layers")) {
    int64_t count = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
    if (error != std::errc() || end != text.data() + text.size() || count < 1) {
      return Usage(
          fmt::format("option 'layers' is numbers of layers such as 7+7, not '{}'", arguments.String("layers")));
    }
    options.layers.push_back(count);
  }
  const int ways = (options.count > 0 ? 1 : 0) + (options.max_bytes > 0 ? 1 : 0) + (options.layers.empty() ? 0 : 1);
  if (ways != 1) return Usage("say one of count:N, layers:N+N.. and bytes:N");
  return options;
}

Result<ChunkedModel> SplitChunks(const ModelSpec& model, const ChunkOptions& options, PassReport& report) {
  ModelSpec base = model.Clone();
  std::vector<Layer> layers;
  for (const auto& function : base.program.functions()) {
    ReadWhereUsed(*function);
    const std::vector<Layer> found = FindLayers(*function);
    if (!layers.empty() && layers.size() != found.size()) {
      return Refuse(fmt::format("'{}' has {} layers, but '{}' has {}", function->name, found.size(),
                                base.program.functions().front()->name, layers.size()));
    }
    if (layers.empty()) layers = found;
    for (size_t i = 0; i < found.size(); ++i) {
      layers[i].weight_bytes = std::max(layers[i].weight_bytes, found[i].weight_bytes);
    }
  }
  MW_ASSIGN_OR_RETURN(const std::vector<Chunk> plan, PlanChunks(options, layers));
  const HiddenNames names{UniqueFeatureName(base.program, "hidden_in"), UniqueFeatureName(base.program, "hidden_out")};
  ChunkedModel result;
  for (size_t i = 0; i < plan.size(); ++i) {
    ModelSpec chunk = base.Clone();
    for (const auto& function : chunk.program.functions()) {
      MW_RETURN_IF_ERROR(Cutter(*function, plan[i], names).Cut());
    }
    chunk.description.metadata.user_defined["milwright.chunk"] = fmt::format("{} of {}", i + 1, plan.size());
    report.notes.push_back(fmt::format("{}: layers {} to {}", ChunkName(i, plan.size()), plan[i].first, plan[i].last));
    result.chunks.push_back(std::move(chunk));
  }
  MW_RETURN_IF_ERROR(DivideStates(result.chunks, report));
  if (options.embedding) {
    MW_ASSIGN_OR_RETURN(result.embedding, TakeEmbedding(result.chunks.front(), names.in));
  }
  for (ModelSpec& chunk : result.chunks) RefreshDescription(chunk);
  return result;
}

Status WriteChunks(const ChunkedModel& model, const std::string& folder, const WriteOptions& options) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return {ErrorCode::kIo, fmt::format("{}: cannot make the folder: {}", folder, error.message())};
  for (size_t i = 0; i < model.chunks.size(); ++i) {
    MW_RETURN_IF_ERROR(WriteModel(
        model.chunks[i], fmt::format("{}/chunk_{}of{}.mlpackage", folder, i + 1, model.chunks.size()), options));
  }
  if (!model.embedding.has_value()) return Status::Ok();
  const auto bytes = model.embedding->bytes();
  return WriteFileAtomically(folder + "/embed_weight.bin", {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

Status KeepChunk(ModelSpec& model, const PassArguments& arguments, PassReport& report) {
  MW_ASSIGN_OR_RETURN(const ChunkOptions options, ParseChunkOptions(arguments));
  MW_ASSIGN_OR_RETURN(const int64_t wanted, Positive(arguments, "chunk"));
  if (wanted == 0) return Usage("split-chunks comes last and writes a folder of packages; chunk:N keeps one chunk");
  MW_ASSIGN_OR_RETURN(ChunkedModel chunked, SplitChunks(model, options, report));
  if (static_cast<size_t>(wanted) > chunked.chunks.size()) {
    return Refuse(fmt::format("there is no chunk {} of {}", wanted, chunked.chunks.size()));
  }
  model = std::move(chunked.chunks[static_cast<size_t>(wanted) - 1]);
  return Status::Ok();
}

}  // namespace milwright
