// What checking a model of 36 layers in 6 packages with 4 GB of weights costs: time of opening all six, of rules and
// verdicts in this process, and time and peak memory of `milwright check` over the folder. The weights are sparse
// files. Target (issue 4): about 300 ms and 200 MB.
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <vector>

#include "check/verdict.h"
#include "format/package.h"
#include "ops/builder.h"
#include "sparse_package.h"

namespace {

using namespace milwright;
namespace fs = std::filesystem;

constexpr int64_t kChunks = 6;
constexpr int64_t kLayersPerChunk = 6;
constexpr int64_t kHidden = 4096;
constexpr int64_t kInner = 14336;
constexpr int64_t kHeads = 32;
constexpr int64_t kKeyHeads = 8;
constexpr int64_t kHeadSize = 128;
constexpr int64_t kContext = 2048;
constexpr int64_t kGroup = 64;  // rows that share a table of 16 entries
constexpr int64_t kPrefill = 8;
constexpr size_t kChunkBytes = size_t{800} << 20;
constexpr const char* kTarget = "ane-macos26";
constexpr int kRuns = 9;

Type Half(Shape shape) { return Type::Tensor(DataType::kFp16, std::move(shape)); }

// A weight of four bits and its tables, shared by the functions of a chunk.
struct Palette {
  Literal indices;
  Literal tables;
};

struct Layer {
  Palette q, k, v, o, gate, up, down;
  Literal norm_1, norm_2;
};

Palette MakePalette(bench::SparseWeights& weights, int64_t rows, int64_t columns) {
  return {weights.Add({DataType::kUInt4, {rows, columns}}), weights.Add({DataType::kFp16, {rows / kGroup, 1, 16, 1}})};
}

Layer MakeLayer(bench::SparseWeights& weights) {
  const auto norm = [&weights] { return weights.Add({DataType::kFp16, {1, 1, kHidden}}); };
  return {MakePalette(weights, kHidden, kHidden),
          MakePalette(weights, kKeyHeads * kHeadSize, kHidden),
          MakePalette(weights, kKeyHeads * kHeadSize, kHidden),
          MakePalette(weights, kHidden, kHidden),
          MakePalette(weights, kInner, kHidden),
          MakePalette(weights, kInner, kHidden),
          MakePalette(weights, kHidden, kInner),
          norm(),
          norm()};
}

// A decoder of layers with keys and values in one state, for `rows` tokens a step.
class FunctionMaker {
 public:
  FunctionMaker(Function& function, int64_t rows)
      : function_(function),
        rows_(rows),
        cos_(function.AddInput("cos", Half({1, 1, rows, kHeadSize}))),
        sin_(function.AddInput("sin", Half({1, 1, rows, kHeadSize}))),
        mask_(function.AddInput("causal_mask", Half({1, 1, rows, kContext}))),
        position_(function.AddInput("current_pos", Type::Tensor(DataType::kInt32, {1}))),
        x_(function.AddInput("hidden_in", Half({1, rows, kHidden}))),
        state_(function.AddInput(
            "kv_cache_0", Type::State({DataType::kFp16, {2 * kLayersPerChunk, kKeyHeads, kContext, kHeadSize}}))),
        b_(function.body()) {
    end_ = b_.Op("add", {{"x", position_}, {"y", Literal::Int32(rows)}});
  }

  void Add(const Layer& layer, int64_t index) {
    Value* normed = Norm(x_, layer.norm_1);
    Value* q = Rotated(Heads(Linear(normed, layer.q), kHeads));
    Value* keys = Cached(Rotated(Heads(Linear(normed, layer.k), kKeyHeads)), 2 * index);
    Value* values = Cached(Heads(Linear(normed, layer.v), kKeyHeads), 2 * index + 1);
    Value* scores = MatMul(q, Repeated(keys), true);
    Value* scaled = b_.Op("mul", {{"x", scores}, {"y", Literal::Float(DataType::kFp16, 0.088)}});
    Value* weights = b_.Op("softmax", {{"x", Sum(scaled, mask_)}, {"axis", Literal::Int32(-1)}});
    Value* mixed =
        b_.Op("transpose", {{"x", MatMul(weights, Repeated(values), false)}, {"perm", Literal::Int32s({0, 2, 1, 3})}});
    Value* joined = b_.Op("reshape", {{"x", mixed}, {"shape", Literal::Int32s({1, rows_, kHidden})}});
    x_ = Sum(x_, Linear(joined, layer.o));
    Value* inner = Norm(x_, layer.norm_2);
    Value* gate = b_.Op("silu", {{"x", Linear(inner, layer.gate)}});
    x_ = Sum(x_, Linear(b_.Op("mul", {{"x", gate}, {"y", Linear(inner, layer.up)}}), layer.down));
  }

  Status Finish() {
    function_.body().SetOutputs({x_});
    return b_.status();
  }

 private:
  Value* Sum(Value* x, Value* y) { return b_.Op("add", {{"x", x}, {"y", y}}); }
  Value* Linear(Value* x, const Palette& weight) {
    Value* dense = b_.Op("constexpr_lut_to_dense", {{"indices", weight.indices}, {"lut", weight.tables}});
    return b_.Op("linear", {{"x", x}, {"weight", dense}});
  }
  Value* MatMul(Value* x, Value* y, bool transpose) {
    return b_.Op(
        "matmul",
        {{"x", x}, {"y", y}, {"transpose_x", Literal::Bool(false)}, {"transpose_y", Literal::Bool(transpose)}});
  }
  Value* Norm(Value* x, const Literal& weight) {
    Value* square = b_.Op("mul", {{"x", x}, {"y", x}});
    Value* mean =
        b_.Op("reduce_mean", {{"x", square}, {"axes", Literal::Int32s({-1})}, {"keep_dims", Literal::Bool(true)}});
    Value* shifted = b_.Op("add", {{"x", mean}, {"y", Literal::Float(DataType::kFp16, 1e-5)}});
    Value* scale = b_.Op("rsqrt", {{"x", shifted}, {"epsilon", Literal::Float(DataType::kFp16, 1e-5)}});
    return b_.Op("mul", {{"x", b_.Op("mul", {{"x", x}, {"y", scale}})}, {"y", b_.Const(weight)}});
  }
  Value* Heads(Value* x, int64_t heads) {
    Value* split = b_.Op("reshape", {{"x", x}, {"shape", Literal::Int32s({1, rows_, heads, kHeadSize})}});
    return b_.Op("transpose", {{"x", split}, {"perm", Literal::Int32s({0, 2, 1, 3})}});
  }
  Value* Part(Value* x, int64_t axis, int64_t begin, int64_t end) {
    Shape from(x->type.shape().size(), 0);
    Shape to = x->type.shape();
    from[static_cast<size_t>(axis)] = begin;
    to[static_cast<size_t>(axis)] = end;
    return b_.Op("slice_by_index", {{"x", x}, {"begin", Literal::Int32s(from)}, {"end", Literal::Int32s(to)}});
  }
  Value* Concat(std::vector<Value*> values, int64_t axis) {
    return b_.Op("concat",
                 {{"values", std::move(values)}, {"axis", Literal::Int32(axis)}, {"interleave", Literal::Bool(false)}});
  }
  Value* Rotated(Value* x) {
    Value* turned =
        b_.Op("mul", {{"x", Part(x, 3, kHeadSize / 2, kHeadSize)}, {"y", Literal::Float(DataType::kFp16, -1)}});
    Value* half = Concat({turned, Part(x, 3, 0, kHeadSize / 2)}, 3);
    return Sum(b_.Op("mul", {{"x", x}, {"y", cos_}}), b_.Op("mul", {{"x", half}, {"y", sin_}}));
  }
  // Writes new rows into a slot of the state; the slot as it is then.
  Value* Cached(Value* fresh, int64_t slot) {
    const auto place = [&](int64_t at, int64_t heads, Value* row, int64_t size) {
      return Concat({b_.Const(Literal::Int32s({at, heads})), row, b_.Const(Literal::Int32s({size}))}, 0);
    };
    Value* updated = b_.Op("slice_update", {{"x", b_.ReadState(state_)},
                                            {"update", fresh},
                                            {"begin", place(slot, 0, position_, 0)},
                                            {"end", place(slot + 1, kKeyHeads, end_, kHeadSize)}});
    b_.WriteState(state_, updated);
    return Part(b_.ReadState(state_), 0, slot, slot + 1);
  }
  Value* Repeated(Value* x) {
    Value* apart = b_.Op("reshape", {{"x", x}, {"shape", Literal::Int32s({kKeyHeads, 1, kContext, kHeadSize})}});
    Value* tiled = b_.Op("tile", {{"x", apart}, {"reps", Literal::Int32s({1, kHeads / kKeyHeads, 1, 1})}});
    return b_.Op("reshape", {{"x", tiled}, {"shape", Literal::Int32s({1, kHeads, kContext, kHeadSize})}});
  }

  Function& function_;
  int64_t rows_;
  Value* cos_;
  Value* sin_;
  Value* mask_;
  Value* position_;
  Value* x_;
  Value* state_;
  Builder b_;
  Value* end_ = nullptr;
};

void MakeChunk(const fs::path& path) {
  bench::SparseWeights weights(kChunkBytes);
  std::vector<Layer> layers;
  for (int64_t i = 0; i < kLayersPerChunk; ++i) layers.push_back(MakeLayer(weights));
  ModelSpec model;
  model.description.multi_function = true;
  model.description.default_function = "infer";
  for (const auto& [name, rows] : {std::pair("infer", int64_t{1}), std::pair("prefill_b8", kPrefill)}) {
    Function* function = model.program.AddFunction(name, Opset::kIOS18);
    FunctionMaker maker(*function, rows);
    for (int64_t i = 0; i < kLayersPerChunk; ++i) maker.Add(layers[static_cast<size_t>(i)], i);
    if (const Status status = maker.Finish(); !status.ok()) fmt::print("{}\n", status.message());
    model.description.functions.push_back(DescribeFunction(*function));
  }
  bench::WriteSparsePackage(model, path);
}

template <typename F>
double MedianMilliseconds(F run) {
  std::vector<double> times;
  for (int i = 0; i < kRuns; ++i) {
    const auto start = std::chrono::steady_clock::now();
    run();
    times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() * 1e3);
  }
  std::ranges::sort(times);
  return times[times.size() / 2];
}

// Runs `milwright check` over the folder; aborts when it does not run.
void RunCheck(const fs::path& folder) {
  const pid_t child = fork();
  if (child == 0) {
    const int null = open("/dev/null", O_WRONLY);
    dup2(null, 1);
    execl(MILWRIGHT_BINARY, "milwright", "check", "--target", kTarget, folder.c_str(), nullptr);
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) > 1) std::abort();
}

}  // namespace

int main() {
  const fs::path folder = fs::temp_directory_path() / fmt::format("milwright-check-bench-{}", getpid());
  std::vector<fs::path> chunks;
  double weight_bytes = 0;
  double model_bytes = 0;
  for (int64_t i = 0; i < kChunks; ++i) {
    chunks.push_back(folder / fmt::format("chunk_{}.mlpackage", i + 1));
    MakeChunk(chunks.back());
    weight_bytes += static_cast<double>(fs::file_size(chunks.back() / "Data/com.apple.CoreML/weights/weight.bin"));
    model_bytes += static_cast<double>(fs::file_size(chunks.back() / "Data/com.apple.CoreML/model.mlmodel"));
  }
  fmt::print("{} packages of {} layers and 2 functions, weights {:.2f} GB (sparse), model files {:.2f} MB\n", kChunks,
             kLayersPerChunk, weight_bytes / 1e9, model_bytes / 1e6);
  const double opening = MedianMilliseconds([&] {
    for (const fs::path& chunk : chunks) {
      if (!OpenModel(chunk).ok()) std::abort();
    }
  });
  std::vector<ModelSpec> models;
  for (const fs::path& chunk : chunks) models.push_back(*OpenModel(chunk));
  const double rules = MedianMilliseconds([&] {
    for (const ModelSpec& model : models) CheckModel(model, {kTarget, {}});
  });
  const double verdicts = MedianMilliseconds([&] {
    for (const ModelSpec& model : models) JudgeModel(model, *FindTarget(kTarget), BuiltInLedger().observations, {});
  });
  fmt::print("opening all: {:.1f} ms; rules: {:.1f} ms; verdicts: {:.1f} ms (medians of {})\n", opening, rules,
             verdicts, kRuns);
  const double check = MedianMilliseconds([&] { RunCheck(folder); });
  rusage usage{};
  getrusage(RUSAGE_CHILDREN, &usage);
  fmt::print("milwright check: {:.1f} ms (median of {} processes; target 300), peak memory {:.1f} MB (target 200)\n",
             check, kRuns, static_cast<double>(usage.ru_maxrss) / 1024);
  fs::remove_all(folder);
  return 0;
}
