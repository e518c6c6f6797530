// A fixed pool of threads for short fork-join regions.
//
// A decode step runs about 200 regions of 20 to 500 microseconds each, so the cost of a region is what counts: workers
// spin for a moment after a region (the next one usually comes within microseconds), offer their core to others for a
// while, and then sleep on a futex, because pure spinning collapses when other processes share the cores
// (performance-anchors.md).
#ifndef MILWRIGHT_KERNELS_THREAD_POOL_H_
#define MILWRIGHT_KERNELS_THREAD_POOL_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace milwright::kernels {

/// A contiguous part [begin, end) of the tasks of a region.
struct TaskRange {
  int64_t begin = 0;
  int64_t end = 0;
};

/// The part of `tasks` that thread `thread` of `threads` gets: contiguous, sizes differ by at most one, the same every
/// time. Parts but the last begin at multiples of `grain`.
TaskRange PartOf(int64_t tasks, int thread, int threads, int64_t grain = 1);

class ThreadPool {
 public:
  /// `threads` counts the caller: 1 (or less) makes a pool that runs everything inline and starts no thread.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] int threads() const { return threads_; }

  /// Calls `fn(int thread)` once for each thread number and returns when all calls have returned. Everything written by
  /// the caller before is visible in the calls, and everything written in the calls is visible after. `fn` must not
  /// throw. A worker that sleeps takes tens of microseconds to wake: when it has not begun by the time the caller is
  /// done with its own call, the caller makes the worker's too.
  ///
  /// When the pool is busy with a region of another caller (or of this very thread: nested use), the calls are made one
  /// after another on the calling thread. So a call must not wait for another one of its region.
  template <typename Fn>
  void Run(Fn&& fn) {
    using Callable = std::remove_reference_t<Fn>;
    RunRegion({[](void* context, int thread) { (*static_cast<Callable*>(context))(thread); },
               const_cast<void*>(static_cast<const void*>(&fn))});
  }

  /// Splits `tasks` statically (see PartOf) and calls `fn(int64_t begin, int64_t end)` once per non-empty part.
  template <typename Fn>
  void ParallelFor(int64_t tasks, Fn&& fn, int64_t grain = 1) {
    if (threads_ == 1 || tasks <= grain) {
      if (tasks > 0) fn(int64_t{0}, tasks);
      return;
    }
    Run([&](int thread) {
      const TaskRange part = PartOf(tasks, thread, threads_, grain);
      if (part.begin < part.end) fn(part.begin, part.end);
    });
  }

  /// As ParallelFor, for tasks that take long enough to be worth balancing: each thread goes through its own part in
  /// pieces of `piece` tasks, and one that is done helps the others. A worker that wakes late, or whose core is taken
  /// by another program, then holds nobody up. All bounds but the last are multiples of `grain` plus multiples of
  /// `piece`; which thread runs a piece, and how many there are, must not matter to the results.
  template <typename Fn>
  void ParallelForBalanced(int64_t tasks, Fn&& fn, int64_t grain, int64_t piece) {
    if (threads_ == 1 || tasks <= grain) {
      if (tasks > 0) fn(int64_t{0}, tasks);
      return;
    }
    struct alignas(64) Part {
      int64_t next;  // atomic in the region; no std::atomic, which would set the parts of threads that there are not
      int64_t end;
    };
    std::array<Part, kMaxThreads> parts;
    for (int thread = 0; thread < threads_; ++thread) {
      const TaskRange range = PartOf(tasks, thread, threads_, grain);
      parts[static_cast<size_t>(thread)] = {range.begin, range.end};
    }
    Run([&](int thread) {
      for (int i = 0; i < threads_; ++i) {
        Part& part = parts[static_cast<size_t>((thread + i) % threads_)];
        const std::atomic_ref<int64_t> next(part.next);
        for (int64_t begin = next.fetch_add(piece, std::memory_order_relaxed); begin < part.end;
             begin = next.fetch_add(piece, std::memory_order_relaxed)) {
          fn(begin, std::min(begin + piece, part.end));
        }
      }
    });
  }

  /// More are not started.
  static constexpr int kMaxThreads = 256;

 private:
  struct Region {
    void (*call)(void* context, int thread) = nullptr;
    void* context = nullptr;
  };

  /// The region in which a part was claimed last: by its worker, or by the caller when that was not awake in time.
  struct alignas(64) LastClaim {
    std::atomic<uint32_t> epoch{0};
  };

  void RunRegion(Region region);
  void WorkerLoop(int thread);
  bool Claim(int thread, uint32_t epoch);

  const int threads_;
  Region region_;
  std::atomic_flag busy_ = ATOMIC_FLAG_INIT;
  alignas(64) std::atomic<uint32_t> epoch_{0};   // one more per region; workers wait for it to change
  alignas(64) std::atomic<int32_t> pending_{0};  // workers that have not finished the region
  std::atomic<bool> stopping_{false};            // published by epoch_
  std::vector<LastClaim> claims_;                // one for each thread
  std::vector<std::thread> workers_;
};

}  // namespace milwright::kernels

#endif  // MILWRIGHT_KERNELS_THREAD_POOL_H_
