#include "kernels/thread_pool.h"

#include <algorithm>
#include <chrono>

namespace milwright::kernels {
namespace {

/// How long a waiter spins, and how long it goes on offering its core to others before it sleeps: waking takes longer
/// than most gaps between two regions.
constexpr std::chrono::microseconds kSpin(40);
constexpr std::chrono::microseconds kYield(150);

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Waits until `done()` holds or the time for that is over; says whether it holds.
template <typename Done>
bool WaitAwake(Done done) {
  const auto start = std::chrono::steady_clock::now();
  while (true) {
    for (int i = 0; i < 16; ++i) {
      if (done()) return true;
      Pause();
    }
    const auto waited = std::chrono::steady_clock::now() - start;
    if (waited > kYield) return done();
    if (waited > kSpin) std::this_thread::yield();
  }
}

}  // namespace

TaskRange PartOf(int64_t tasks, int thread, int threads, int64_t grain) {
  const int64_t grains = (tasks + grain - 1) / grain;
  const int64_t each = grains / threads;
  const int64_t more = grains % threads;  // the first `more` parts get one grain extra
  const int64_t begin = each * thread + std::min<int64_t>(thread, more);
  const int64_t end = begin + each + (thread < more ? 1 : 0);
  return {std::min(begin * grain, tasks), std::min(end * grain, tasks)};
}

ThreadPool::ThreadPool(int threads)
    : threads_(std::clamp(threads, 1, kMaxThreads)), claims_(static_cast<size_t>(threads_)) {
  workers_.reserve(static_cast<size_t>(threads_ - 1));
  for (int thread = 1; thread < threads_; ++thread) {
    workers_.emplace_back([this, thread] { WorkerLoop(thread); });
  }
}

ThreadPool::~ThreadPool() {
  stopping_.store(true, std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

bool ThreadPool::Claim(int thread, uint32_t epoch) {
  // Every part of every region is claimed once, so the last claim before this one is that of the region before; who
  // comes with an older epoch fails.
  uint32_t before = epoch - 1;
  return claims_[static_cast<size_t>(thread)].epoch.compare_exchange_strong(before, epoch, std::memory_order_acq_rel);
}

void ThreadPool::RunRegion(Region region) {
  if (threads_ == 1 || busy_.test_and_set(std::memory_order_acquire)) {
    for (int thread = 0; thread < threads_; ++thread) region.call(region.context, thread);
    return;
  }
  region_ = region;
  pending_.store(threads_ - 1, std::memory_order_relaxed);
  const uint32_t epoch = epoch_.fetch_add(1, std::memory_order_release) + 1;
  epoch_.notify_all();  // a system call only when a worker sleeps
  region.call(region.context, 0);
  for (int thread = 1; thread < threads_; ++thread) {
    if (!Claim(thread, epoch)) continue;
    region.call(region.context, thread);  // its worker is not awake yet
    pending_.fetch_sub(1, std::memory_order_acq_rel);
  }
  const auto finished = [this] { return pending_.load(std::memory_order_acquire) == 0; };
  while (!finished() && !WaitAwake(finished)) {
    const int32_t pending = pending_.load(std::memory_order_acquire);
    if (pending != 0) pending_.wait(pending, std::memory_order_acquire);
  }
  busy_.clear(std::memory_order_release);
}

void ThreadPool::WorkerLoop(int thread) {
  uint32_t seen = 0;
  while (true) {
    const auto changed = [this, seen] { return epoch_.load(std::memory_order_acquire) != seen; };
    if (!changed() && !WaitAwake(changed)) epoch_.wait(seen, std::memory_order_acquire);
    seen = epoch_.load(std::memory_order_acquire);
    if (stopping_.load(std::memory_order_relaxed)) return;
    if (!Claim(thread, seen)) continue;
    // From here on the region stays what it is until this part is done.
    region_.call(region_.context, thread);
    if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) pending_.notify_one();
  }
}

}  // namespace milwright::kernels
