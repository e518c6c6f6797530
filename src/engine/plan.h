// Plan: a function compiled for one set of input shapes: flat steps over views with every shape resolved, and one arena
// by liveness. Immutable once made; a Frame holds what one running prediction needs.
#ifndef MILWRIGHT_ENGINE_PLAN_H_
#define MILWRIGHT_ENGINE_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/copy.h"
#include "engine/graph.h"
#include "engine/view.h"
#include "kernels/aligned_buffer.h"
#include "kernels/attention.h"
#include "kernels/dispatch.h"
#include "kernels/thread_pool.h"
#include "milwright/status.h"
#include "milwright/tensor.h"

namespace milwright::engine {

/// Where the memory of a root is.
enum class Memory : uint8_t {
  kFixed,   ///< bytes that live as long as the plan: constants and weights
  kArena,   ///< at an offset of the frame's arena
  kInput,   ///< the tensor of an input
  kOutput,  ///< the tensor of an output, written in place
  kState,   ///< the tensor of a state, written in place
};

/// A block of memory that views look at.
struct Root {
  Memory memory = Memory::kArena;
  int64_t bytes = 0;
  const std::byte* fixed = nullptr;  ///< kFixed
  int32_t index = 0;                 ///< kInput, kOutput, kState
  int64_t offset = 0;                ///< kArena: assigned when the plan is finished
  size_t first_step = 0;             ///< kArena: the steps between which it holds something
  size_t last_step = 0;
};

/// What predictions moved besides reading weights. Sums over a frame's life.
struct Counters {
  int64_t state_bytes_written = 0;  ///< bytes stored into states
  int64_t bytes_copied = 0;         ///< bytes of values that were copied because they could not be viewed or updated
  int64_t attention_columns = 0;    ///< rows of K that attention looked at
  int64_t cache_bytes_read = 0;     ///< bytes of K and V that attention read
};

/// Remembers what in-place writes replaced, so that a prediction that fails leaves its states as they were.
class UndoLog {
 public:
  void Clear() {
    records_.clear();
    bytes_.clear();
  }
  /// Keeps the `bytes` bytes at `data`.
  void Save(std::byte* data, size_t bytes);
  /// Puts everything back, last first.
  void Restore();

 private:
  struct Record {
    std::byte* data;
    size_t offset;
    size_t bytes;
  };
  std::vector<Record> records_;
  std::vector<std::byte> bytes_;
};

/// The memory of one running prediction of one plan.
struct Frame {
  const kernels::Kernels* kernels = nullptr;
  kernels::ThreadPool* pool = nullptr;
  std::vector<std::byte*> bases;  ///< one for each root of the plan
  kernels::AlignedBuffer arena;
  kernels::AlignedBuffer scratch;
  std::vector<kernels::MaskScan> scans;  ///< by scan number
  std::vector<bool> scanned;
  std::vector<float*> state_bounds;  ///< upper bounds on |x|, by state number
  Counters counters;
  UndoLog undo;

  /// The address of a view's first element.
  template <typename T = std::byte>
  [[nodiscard]] T* At(const View& view, int64_t element_bytes = static_cast<int64_t>(sizeof(T))) const {
    return reinterpret_cast<T*>(bases[static_cast<size_t>(view.root)] + view.offset * element_bytes);
  }
};

/// Splits `tasks` over the frame's threads, or runs them here when their `elements` are too few to wake another.
template <typename Run>
void ForParts(const Frame& frame, int64_t tasks, int64_t elements, Run&& run) {
  constexpr int64_t kWorthAThread = 1 << 15;
  if (elements >= kWorthAThread) {
    frame.pool->ParallelFor(tasks, run);
  } else if (tasks > 0) {
    run(int64_t{0}, tasks);
  }
}

/// One unit of work. Stateless: what it needs at run time is in the frame.
class Step {
 public:
  Step() = default;
  virtual ~Step() = default;
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;
  /// Errors: an index out of range, or what a reference kernel reports.
  virtual Status Run(Frame& frame) const = 0;
  /// Asks for the memory outside the arena that Run will look at, so that it comes while other steps run.
  virtual void Prefetch(const Frame&) const {}
  /// Scratch bytes that Run uses.
  [[nodiscard]] virtual size_t ScratchBytes() const { return 0; }
};

/// A step that was just made, and the size of its object, which only its maker knows.
struct NewStep {
  template <typename S>
  NewStep(std::unique_ptr<S> made) : step(std::move(made)), bytes(sizeof(S)) {  // NOLINT: as make_unique gives it
    static_assert(!std::is_same_v<S, Step>, "the size of the object is lost");
  }
  std::unique_ptr<Step> step;
  size_t bytes;
};

/// What a profile says about a step.
struct StepInfo {
  std::string kind;               ///< op type, or the name of the fusion
  const Operation* op = nullptr;  ///< the (last) operation
  int operations = 1;             ///< operations of the program that it stands for
  int64_t weight_bytes = 0;       ///< stored bytes of weights that it reads
  int64_t multiply_adds = 0;      ///< with these weights
  bool reference = false;         ///< runs a reference kernel
};

struct PlannedStep {
  std::unique_ptr<Step> step;
  size_t bytes = 0;             ///< of the object
  bool empties_caches = false;  ///< reads so many weights that nothing else is left in the caches
  StepInfo info;
};

/// An output of the function.
struct PlannedOutput {
  std::string name;
  TensorType type;
  View view;
  bool in_place = false;  ///< the view's root is the output tensor itself
  Copier copier;          ///< from the view to the output tensor
};

struct Plan {
  std::vector<Root> roots;
  std::vector<PlannedStep> steps;
  std::vector<PlannedOutput> outputs;
  std::vector<std::string> states;  ///< names, by state number
  int32_t scans = 0;
  int64_t arena_bytes = 0;
  int64_t scratch_bytes = 0;
  std::vector<kernels::AlignedBuffer> owned;  ///< constants in the form that steps want
  std::unique_ptr<const Graph> graph;         ///< nodes and literals that steps refer to
  int64_t operations = 0;                     ///< of the program, constants left out
  int64_t multiply_adds = 0;                  ///< of all steps

  /// A frame with arena and scratch. Errors: no memory.
  [[nodiscard]] Result<std::unique_ptr<Frame>> MakeFrame(const kernels::Kernels& kernels,
                                                         kernels::ThreadPool& pool) const;
};

/// Gives every arena root its place: roots that are never alive together may share bytes. Returns the arena's size.
int64_t PlaceRoots(std::vector<Root>& roots);

}  // namespace milwright::engine

#endif  // MILWRIGHT_ENGINE_PLAN_H_
