#include "milwright/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>

#include "engine/fusion.h"
#include "engine/graph.h"
#include "engine/plan.h"
#include "engine/plan_builder.h"
#include "engine/weight_store.h"
#include "exec/prepared_call.h"
#include "mil/model.h"

namespace milwright {
namespace {

using engine::Frame;
using engine::Memory;
using engine::Plan;

// A plan with the frames that wait for their next prediction, or why there is none.
struct Compiled {
  std::unique_ptr<const Plan> plan;
  std::string why_not;
  std::mutex mutex;
  std::vector<std::unique_ptr<Frame>> idle;
  std::vector<double> seconds;  ///< by step, while profiling
  int64_t profiled_runs = 0;
};

// One prediction at a time uses a frame; it goes back to the others afterwards.
class FrameLease {
 public:
  static Result<FrameLease> Take(Compiled& compiled, const kernels::Kernels& kernels, kernels::ThreadPool& pool) {
    {
      const std::lock_guard lock(compiled.mutex);
      if (!compiled.idle.empty()) {
        std::unique_ptr<Frame> frame = std::move(compiled.idle.back());
        compiled.idle.pop_back();
        return FrameLease(compiled, std::move(frame));
      }
    }
    MW_ASSIGN_OR_RETURN(std::unique_ptr<Frame> frame, compiled.plan->MakeFrame(kernels, pool));
    return FrameLease(compiled, std::move(frame));
  }
  ~FrameLease() {
    if (frame_ == nullptr) return;
    const std::lock_guard lock(compiled_->mutex);
    compiled_->idle.push_back(std::move(frame_));
  }
  FrameLease(FrameLease&& other) noexcept = default;
  FrameLease& operator=(FrameLease&&) = delete;
  FrameLease(const FrameLease&) = delete;
  FrameLease& operator=(const FrameLease&) = delete;
  Frame& operator*() const { return *frame_; }

 private:
  FrameLease(Compiled& compiled, std::unique_ptr<Frame> frame) : compiled_(&compiled), frame_(std::move(frame)) {}
  Compiled* compiled_;
  std::unique_ptr<Frame> frame_;
};

using Clock = std::chrono::steady_clock;

// Asks for what the steps up to and with the next one that empties the caches will look at. Asked for together it comes
// in the time of one miss.
void PrefetchSteps(std::span<const engine::PlannedStep> steps, const Frame& frame) {
  constexpr size_t kLine = 64;
  constexpr size_t kMostSteps = 32;  // some 32 KB of objects: what a first-level cache holds
  size_t count = 0;
  while (count < std::min(steps.size(), kMostSteps) && (count == 0 || !steps[count - 1].empties_caches)) {
    const auto* object = reinterpret_cast<const std::byte*>(steps[count].step.get());
    for (size_t at = 0; at < steps[count].bytes; at += kLine) __builtin_prefetch(object + at);
    ++count;
  }
  for (size_t i = 0; i < count; ++i) steps[i].step->Prefetch(frame);
}

float LargestMagnitude(const kernels::Kernels& kernels, const Tensor& tensor) {
  return tensor.dtype() == DataType::kFp16 ? kernels.abs_max_f16(tensor.As<uint16_t>().data(), tensor.size())
                                           : kernels.abs_max_f32(tensor.As<float>().data(), tensor.size());
}

// The last row of [.., rows, columns] as [.., 1, columns].
Result<Tensor> LastRow(const Tensor& tensor) {
  TensorType type = tensor.type();
  const size_t rank = type.shape.size();
  if (rank < 2 || type.shape[rank - 2] < 2) return tensor;
  const int64_t rows = std::exchange(type.shape[rank - 2], 1);
  MW_ASSIGN_OR_RETURN(Tensor last, Tensor::Zeros(type));
  const int64_t columns = type.shape[rank - 1];
  for (int64_t i = 0; i < last.size(); ++i) {
    last.SetDouble(i, tensor.GetDouble((i / columns * rows + rows - 1) * columns + i % columns));
  }
  return last;
}

}  // namespace

struct Engine::Impl {
  Impl(Model model, EngineOptions options, const kernels::Kernels& kernels, int threads)
      : model(std::move(model)),
        options(std::move(options)),
        kernels(kernels),
        pool(threads),
        weights(kernels, pool, this->options.weights, this->options.numerics) {}

  Model model;
  const EngineOptions options;
  const kernels::Kernels& kernels;
  kernels::ThreadPool pool;
  engine::WeightStore weights;

  std::mutex mutex;  // guards what follows
  std::map<std::tuple<const Function*, std::vector<Shape>, std::vector<std::string>>, std::shared_ptr<Compiled>> plans;
  std::multiset<const std::byte*> locked;  // buffers that running predictions read
  EngineCounters counters;
  std::atomic<bool> profiling{false};

  std::shared_ptr<Compiled> Compile(const Function& function, const std::vector<Shape>& shapes,
                                    const std::vector<std::string>& last_rows = {});
  Status Run(Compiled& compiled, Frame& frame);
  Status BindFrame(const Plan& plan, Frame& frame, const PreparedCall& call, std::vector<Tensor>& outputs,
                   TensorMap& backings);
  Result<TensorMap> PredictPlanned(Compiled& compiled, const PreparedCall& call, TensorMap backings);
  bool IsLocked(const Tensor& tensor);
};

Engine::Engine(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<Engine> Engine::Load(const std::filesystem::path& path, const EngineOptions& options) {
  MW_ASSIGN_OR_RETURN(Model model, Model::Load(path));
  return FromModel(std::move(model), options);
}

Result<Engine> Engine::FromModel(Model model, const EngineOptions& options) {
  const kernels::Kernels* kernels = nullptr;
  if (options.kernels.empty()) {
    MW_ASSIGN_OR_RETURN(kernels, kernels::SelectKernelsFromEnvironment());
  } else {
    MW_ASSIGN_OR_RETURN(kernels, kernels::SelectKernels(options.kernels));
  }
  constexpr int kMaxThreads = 256;
  const auto cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const int threads = std::clamp(options.threads > 0 ? options.threads : cores, 1, kMaxThreads);
  return Engine(std::make_shared<Impl>(std::move(model), options, *kernels, threads));
}

const Model& Engine::model() const { return impl_->model; }
const EngineOptions& Engine::options() const { return impl_->options; }
int Engine::threads() const { return impl_->pool.threads(); }
std::string_view Engine::kernels() const { return impl_->kernels.name; }
WeightCounts Engine::weight_counts() const { return impl_->weights.counts(); }

void Engine::SetProfiling(bool on) {
  if (on && !impl_->profiling) {
    const std::lock_guard lock(impl_->mutex);
    for (auto& [key, compiled] : impl_->plans) {
      const std::lock_guard plan_lock(compiled->mutex);
      std::ranges::fill(compiled->seconds, 0.0);
      compiled->profiled_runs = 0;
    }
  }
  impl_->profiling = on;
}

EngineCounters Engine::counters() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->counters;
}

std::vector<ProfileEntry> Engine::Profile() const {
  std::vector<ProfileEntry> entries;
  const std::lock_guard lock(impl_->mutex);
  for (const auto& [key, compiled] : impl_->plans) {
    const std::lock_guard plan_lock(compiled->mutex);
    if (compiled->plan == nullptr || compiled->profiled_runs == 0) continue;
    for (size_t i = 0; i < compiled->plan->steps.size(); ++i) {
      const engine::StepInfo& info = compiled->plan->steps[i].info;
      entries.push_back({info.kind, OperationPath(*info.op), info.operations, info.reference, info.weight_bytes,
                         compiled->profiled_runs, compiled->seconds[i]});
    }
  }
  return entries;
}

std::shared_ptr<Compiled> Engine::Impl::Compile(const Function& function, const std::vector<Shape>& shapes,
                                                const std::vector<std::string>& last_rows) {
  const std::lock_guard lock(mutex);
  std::shared_ptr<Compiled>& entry = plans[{&function, shapes, last_rows}];
  if (entry != nullptr) return entry;
  entry = std::make_shared<Compiled>();
  const auto make = [&]() -> Result<std::unique_ptr<Plan>> {
    MW_ASSIGN_OR_RETURN(std::unique_ptr<engine::Graph> graph, engine::BuildGraph(function, shapes));
    if (!last_rows.empty()) engine::KeepLastRows(*graph, last_rows);
    engine::Fuse(*graph, options.numerics);
    return engine::PlanBuilder(std::move(graph), weights, pool.threads()).Build();
  };
  auto plan = make();
  if (plan.ok()) {
    entry->seconds.resize((*plan)->steps.size());
    entry->plan = std::move(*plan);
  } else {
    entry->why_not = plan.status().message();
  }
  return entry;
}

bool Engine::Impl::IsLocked(const Tensor& tensor) {
  const std::lock_guard lock(mutex);
  return locked.contains(tensor.bytes().data());
}

Status Engine::Impl::BindFrame(const Plan& plan, Frame& frame, const PreparedCall& call, std::vector<Tensor>& outputs,
                               TensorMap& backings) {
  State::Impl& held = *call.state;
  for (const engine::PlannedOutput& output : plan.outputs) {
    Tensor tensor;
    if (const auto it = backings.find(output.name); it != backings.end()) {
      if (!(it->second.type() == output.type)) {
        return {ErrorCode::kUsage, fmt::format("the backing of output '{}' is {}, but the output is {}", output.name,
                                               TypeToString(it->second.type()), TypeToString(output.type))};
      }
      if (IsLocked(it->second)) {
        const std::lock_guard lock(mutex);
        ++counters.locked_backings;
      } else {
        tensor = std::move(it->second);
      }
      backings.erase(it);
    }
    if (tensor.type().dtype == DataType::kInvalid) {
      MW_ASSIGN_OR_RETURN(tensor, Tensor::Zeros(output.type));
    }
    outputs.push_back(std::move(tensor));
  }
  if (!backings.empty()) {
    return {ErrorCode::kUsage, fmt::format("there is no output '{}' to back", backings.begin()->first)};
  }
  for (size_t i = 0; i < plan.states.size(); ++i) {
    Tensor& value = held.values.at(plan.states[i]);
    const bool floats = value.dtype() == DataType::kFp16 || value.dtype() == DataType::kFp32;
    frame.state_bounds[i] = nullptr;
    if (!floats) continue;
    const auto [it, unknown] = held.bounds.emplace(plan.states[i], 0.0F);
    if (unknown) it->second = LargestMagnitude(kernels, value);
    frame.state_bounds[i] = &it->second;
  }
  for (size_t i = 0; i < plan.roots.size(); ++i) {
    const engine::Root& root = plan.roots[i];
    const auto index = static_cast<size_t>(root.index);
    if (root.memory == Memory::kInput) {
      frame.bases[i] = const_cast<std::byte*>(call.arguments[index].tensor.bytes().data());  // inputs are only read
    } else if (root.memory == Memory::kOutput) {
      frame.bases[i] = outputs[index].mutable_bytes().data();
    } else if (root.memory == Memory::kState) {
      frame.bases[i] = held.values.at(plan.states[index]).mutable_bytes().data();
    }
  }
  frame.scanned.assign(frame.scanned.size(), false);
  frame.counters = {};
  frame.undo.Clear();
  return Status::Ok();
}

Status Engine::Impl::Run(Compiled& compiled, Frame& frame) {
  const auto& steps = compiled.plan->steps;
  const bool timed = profiling;
  std::vector<double> seconds(timed ? steps.size() : 0);
  for (size_t i = 0; i < steps.size(); ++i) {
    const auto start = timed ? Clock::now() : Clock::time_point();
    if (const Status status = steps[i].step->Run(frame); !status.ok())
      return status.WithContext(OperationPath(*steps[i].info.op));
    if (steps[i].empties_caches) PrefetchSteps(std::span(steps).subspan(i + 1), frame);
    if (timed) seconds[i] = std::chrono::duration<double>(Clock::now() - start).count();
  }
  if (!timed) return Status::Ok();
  const std::lock_guard lock(compiled.mutex);
  for (size_t i = 0; i < steps.size(); ++i) compiled.seconds[i] += seconds[i];
  ++compiled.profiled_runs;
  return Status::Ok();
}

Result<TensorMap> Engine::Impl::PredictPlanned(Compiled& compiled, const PreparedCall& call, TensorMap backings) {
  const Plan& plan = *compiled.plan;
  const StateClaim claim(call.state->busy);
  MW_RETURN_IF_ERROR(claim.status());
  MW_ASSIGN_OR_RETURN(const FrameLease lease, FrameLease::Take(compiled, kernels, pool));
  Frame& frame = *lease;
  std::vector<Tensor> outputs;
  MW_RETURN_IF_ERROR(BindFrame(plan, frame, call, outputs, backings));
  if (const Status status = Run(compiled, frame); !status.ok()) {
    frame.undo.Restore();
    for (const std::string& state : plan.states) call.state->bounds.erase(state);
    return status.WithContext(model.spec().source);
  }
  TensorMap result;
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    const engine::PlannedOutput& output = plan.outputs[i];
    if (!output.in_place) {
      output.copier.Run(kernels, frame.At<std::byte>(output.view, BitWidth(output.view.dtype) / 8),
                        outputs[i].mutable_bytes().data());
    }
    result.insert_or_assign(output.name, std::move(outputs[i]));
  }
  const std::lock_guard lock(mutex);
  ++counters.predictions;
  counters.state_bytes_written += frame.counters.state_bytes_written;
  counters.bytes_copied += frame.counters.bytes_copied;
  counters.attention_columns += frame.counters.attention_columns;
  counters.cache_bytes_read += frame.counters.cache_bytes_read;
  counters.multiply_adds += plan.multiply_adds;
  return result;
}

Result<TensorMap> Engine::Predict(const TensorMap& inputs, State* state, EngineCall call) const {
  Impl& impl = *impl_;
  PredictOptions options;
  options.function = call.function;
  options.state_binding = call.state_binding;
  MW_ASSIGN_OR_RETURN(const PreparedCall prepared, impl.model.Prepare(inputs, state, options));
  std::vector<Shape> shapes;
  for (const Literal& argument : prepared.arguments) shapes.push_back(argument.tensor.shape());
  const std::shared_ptr<Compiled> compiled = impl.Compile(*prepared.function, shapes, call.last_rows);
  if (compiled->plan == nullptr) {
    {
      const std::lock_guard lock(impl.mutex);
      ++impl.counters.predictions;
      ++impl.counters.reference_predictions;
    }
    MW_ASSIGN_OR_RETURN(TensorMap outputs, impl.model.Predict(inputs, state, options));
    for (const std::string& name : call.last_rows) {
      if (const auto it = outputs.find(name); it != outputs.end()) {
        MW_ASSIGN_OR_RETURN(it->second, LastRow(it->second));
      }
    }
    return outputs;
  }
  // What this prediction reads may not be written by this or another one meanwhile.
  std::vector<const std::byte*> reads;
  for (const auto& [name, tensor] : inputs) reads.push_back(tensor.bytes().data());
  {
    const std::lock_guard lock(impl.mutex);
    impl.locked.insert(reads.begin(), reads.end());
  }
  auto result = impl.PredictPlanned(*compiled, prepared, std::move(call.output_backings));
  const std::lock_guard lock(impl.mutex);
  for (const std::byte* data : reads) impl.locked.erase(impl.locked.find(data));
  return result;
}

std::future<Result<TensorMap>> Engine::PredictAsync(TensorMap inputs, State state, EngineCall call) const {
  std::vector<const std::byte*> reads;
  for (const auto& [name, tensor] : inputs) reads.push_back(tensor.bytes().data());
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->locked.insert(reads.begin(), reads.end());
  }
  return std::async(std::launch::async, [engine = *this, inputs = std::move(inputs), state = std::move(state),
                                         call = std::move(call), reads = std::move(reads)]() mutable {
    auto result = engine.Predict(inputs, &state, std::move(call));
    const std::lock_guard lock(engine.impl_->mutex);
    for (const std::byte* data : reads) engine.impl_->locked.erase(engine.impl_->locked.find(data));
    return result;
  });
}

Result<std::string> Engine::WhyNotPlanned(std::string_view function) const {
  MW_ASSIGN_OR_RETURN(const std::vector<Feature> features, impl_->model.Inputs(function));
  const ModelSpec& spec = impl_->model.spec();
  const Function* found = function.empty() ? spec.DefaultFunction() : spec.program.FindFunction(function);
  const FunctionDescription* described = spec.description.Find(found->name);
  std::vector<Shape> shapes;
  for (const Feature& feature : features) {
    Shape shape = feature.type.shape;
    if (!IsStatic(shape) && described != nullptr) {
      for (const FeatureDescription& input : described->inputs) {
        if (input.name == feature.name && !input.type.array.shape.empty()) shape = input.type.array.shape;
      }
    }
    if (!IsStatic(shape)) return fmt::format("the input '{}' has no default shape", feature.name);
    shapes.push_back(std::move(shape));
  }
  return impl_->Compile(*found, shapes)->why_not;
}

}  // namespace milwright
