#include "kernels/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

namespace milwright::kernels {
namespace {

TEST(PartOfTest, CoversAllTasksOnceInOrder) {
  for (const int64_t tasks : {0, 1, 2, 7, 16, 100}) {
    for (const int threads : {1, 2, 3, 8}) {
      for (const int64_t grain : {1, 4, 16}) {
        int64_t next = 0;
        for (int thread = 0; thread < threads; ++thread) {
          const TaskRange part = PartOf(tasks, thread, threads, grain);
          EXPECT_EQ(part.begin, next);
          EXPECT_LE(part.begin, part.end);
          EXPECT_TRUE(part.end == tasks || part.end % grain == 0);
          next = part.end;
        }
        EXPECT_EQ(next, tasks);
      }
    }
  }
}

TEST(PartOfTest, SizesDifferByAtMostOne) {
  EXPECT_EQ(PartOf(7, 0, 3).end, 3);
  EXPECT_EQ(PartOf(7, 1, 3).end, 5);
  EXPECT_EQ(PartOf(7, 2, 3).end, 7);
}

TEST(ThreadPoolTest, EveryThreadRunsOncePerRegion) {
  for (const int threads : {-1, 1, 2, 4}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), std::max(threads, 1));
    std::vector<int> runs(static_cast<size_t>(pool.threads()));
    for (int region = 0; region < 500; ++region) {
      pool.Run([&](int thread) { ++runs[static_cast<size_t>(thread)]; });
    }
    EXPECT_EQ(runs, std::vector<int>(runs.size(), 500));
  }
}

TEST(ThreadPoolTest, WritesOfOneRegionAreSeenInTheNext) {
  ThreadPool pool(3);
  std::vector<int64_t> values(1000, 1);
  for (int round = 0; round < 200; ++round) {
    // Each part reads what another thread wrote in the region before.
    std::vector<int64_t> next(values.size());
    pool.ParallelFor(1000, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) next[static_cast<size_t>(i)] = values[static_cast<size_t>(999 - i)] + 1;
    });
    values = next;
  }
  EXPECT_EQ(std::accumulate(values.begin(), values.end(), int64_t{0}), 201 * 1000);
}

TEST(ThreadPoolTest, WorkersWakeAfterTheySlept) {
  ThreadPool pool(2);
  for (int i = 0; i < 5; ++i) {
    int runs[2] = {};
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // far beyond the spinning time
    pool.Run([&](int thread) { ++runs[thread]; });
    EXPECT_EQ(runs[0] + runs[1], 2);
  }
}

TEST(ThreadPoolTest, TheCallerSleepsUntilASlowWorkerIsDone) {
  ThreadPool pool(2);
  bool done = false;
  pool.Run([&](int thread) {
    if (thread != 1) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    done = true;
  });
  EXPECT_TRUE(done);
}

TEST(ThreadPoolTest, NestedRegionsRunInline) {
  ThreadPool pool(3);
  std::atomic<int> inner{0};
  pool.Run([&](int) { pool.Run([&](int) { ++inner; }); });
  EXPECT_EQ(inner.load(), 9);
}

TEST(ThreadPoolTest, CallersOnSeveralThreadsShareAPool) {
  ThreadPool pool(2);
  std::atomic<int64_t> sum{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 3; ++caller) {
    callers.emplace_back([&] {
      for (int region = 0; region < 300; ++region) {
        pool.ParallelFor(10, [&](int64_t begin, int64_t end) { sum += end - begin; });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum.load(), 3 * 300 * 10);
}

TEST(ThreadPoolTest, NoMoreThreadsThanItsLimitAreStarted) {
  ThreadPool pool(ThreadPool::kMaxThreads + 1);
  EXPECT_EQ(pool.threads(), ThreadPool::kMaxThreads);
  std::atomic<int> calls{0};
  pool.Run([&](int) { ++calls; });
  EXPECT_EQ(calls.load(), ThreadPool::kMaxThreads);
}

TEST(ThreadPoolTest, ThePartOfAWorkerThatIsNotAwakeIsRunOnceAndByTheCaller) {
  // The pauses let the workers fall asleep, or catch them as they do: whoever claims a part, it is run once, and a
  // worker that comes late takes no part of a later region twice.
  ThreadPool pool(4);
  for (int region = 0; region < 400; ++region) {
    if (region % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(region));
    std::array<std::atomic<int>, 4> runs{};
    pool.Run([&](int thread) { ++runs[static_cast<size_t>(thread)]; });
    for (const auto& count : runs) ASSERT_EQ(count.load(), 1) << "region " << region;
  }
}

TEST(ThreadPoolTest, WhenThePoolIsBusyTheCallerMakesAllCalls) {
  ThreadPool pool(2);
  std::atomic<bool> inside{false};
  std::atomic<bool> release{false};
  std::thread other([&] {
    pool.Run([&](int) {
      inside = true;
      while (!release) std::this_thread::yield();
    });
  });
  while (!inside) std::this_thread::yield();
  std::vector<std::thread::id> ran;
  pool.Run([&](int) { ran.push_back(std::this_thread::get_id()); });  // one after another: no lock is needed
  EXPECT_EQ(ran, std::vector<std::thread::id>(2, std::this_thread::get_id()));
  release = true;
  other.join();
}

TEST(ThreadPoolTest, EndsWhileWorkersSpinSleepOrHaveJustRun) {
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> calls{0};
    {
      ThreadPool pool(3);
      if (round % 3 != 0) pool.Run([&](int) { ++calls; });
      if (round % 3 == 2) std::this_thread::sleep_for(std::chrono::microseconds(500));
    }
    EXPECT_EQ(calls.load(), round % 3 != 0 ? 3 : 0);
  }
}

// How often each task was run; begins of pieces are checked against the rule of ParallelForBalanced.
std::vector<int> RunsOfBalanced(ThreadPool& pool, int64_t tasks, int64_t grain, int64_t piece) {
  std::vector<std::atomic<int>> runs(static_cast<size_t>(tasks));
  pool.ParallelForBalanced(
      tasks,
      [&](int64_t begin, int64_t end) {
        EXPECT_TRUE(0 <= begin && begin < end && end <= tasks) << begin << ", " << end;
        EXPECT_EQ(begin % std::gcd(grain, piece), 0);
        for (int64_t i = begin; i < end; ++i) ++runs[static_cast<size_t>(i)];
      },
      grain, piece);
  return {runs.begin(), runs.end()};
}

TEST(BalancedLoopTest, RunsEveryTaskOnce) {
  for (const int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    for (const int64_t tasks : {0, 1, 15, 16, 17, 100, 1003}) {
      for (const auto& [grain, piece] :
           {std::pair<int64_t, int64_t>(1, 1), {1, 7}, {16, 16}, {16, 48}, {48, 16}, {16, 4096}, {2000, 16}}) {
        EXPECT_EQ(RunsOfBalanced(pool, tasks, grain, piece), std::vector<int>(static_cast<size_t>(tasks), 1))
            << threads << " threads, " << tasks << " tasks, grain " << grain << ", piece " << piece;
      }
    }
  }
}

TEST(BalancedLoopTest, OneWhoIsDoneHelpsTheOthers) {
  // The caller is held at its first piece until all others are done: the worker must take those of the caller's part,
  // or all before the caller begins.
  ThreadPool pool(2);
  const std::thread::id caller = std::this_thread::get_id();
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> others{0};
    std::atomic<int> by_caller{0};
    pool.ParallelForBalanced(
        16,
        [&](int64_t, int64_t) {
          if (std::this_thread::get_id() != caller) {
            ++others;
            return;
          }
          if (++by_caller > 1) return;
          while (others + by_caller < 16) std::this_thread::yield();
        },
        1, 1);
    EXPECT_LE(by_caller.load(), 1);
    EXPECT_EQ(others + by_caller, 16);
  }
}

TEST(BalancedLoopTest, NestedLoopsAndThoseOfSeveralCallersRunEveryTaskOnce) {
  ThreadPool pool(2);
  std::atomic<int64_t> sum{0};
  const auto add = [&](int64_t begin, int64_t end) { sum += end - begin; };
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 3; ++caller) {
    callers.emplace_back([&] {
      for (int region = 0; region < 100; ++region) {
        pool.ParallelForBalanced(
            4, [&](int64_t, int64_t) { pool.ParallelForBalanced(100, add, 1, 8); }, 1, 1);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum.load(), 3 * 100 * 4 * 100);
}

TEST(ThreadPoolTest, FewTasksRunOnTheCallingThread) {
  ThreadPool pool(4);
  const std::thread::id caller = std::this_thread::get_id();
  int calls = 0;
  pool.ParallelFor(
      16,
      [&](int64_t begin, int64_t end) {
        ++calls;
        EXPECT_EQ(begin, 0);
        EXPECT_EQ(end, 16);
        EXPECT_EQ(std::this_thread::get_id(), caller);
      },
      16);
  pool.ParallelFor(0, [&](int64_t, int64_t) { ++calls; });
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace milwright::kernels
