// The segmenter's cost model against the worked examples of ane-placement.md, section B, and against what the segmenter
// itself chose in the published analytics.mil files.
#include "base/file_io.h"
#include "check/placement/segmenter.h"
#include "support/test_util.h"

namespace milwright {
namespace {

using testing::FindAll;
using testing::SharedDir;

constexpr size_t kCpu = 0;
constexpr size_t kAne = 1;
const BackendTimes kConv = {100.06, 4.67};

std::vector<std::optional<size_t>> Placed(size_t count, size_t backend) {
  return std::vector<std::optional<size_t>>(count, backend);
}

// "n convs all on ANE cost 4.67n + 250 us, all on CPU 100.06n"
TEST(Segmenter, ConvolutionsAlone) {
  const struct {
    size_t convs;
    double us;
    size_t backend;
  } cases[] = {{1, 100.06, kCpu}, {2, 200.12, kCpu}, {3, 264.01, kAne}, {4, 268.68, kAne}};
  for (const auto& expected : cases) {
    const std::vector<BackendTimes> operations(expected.convs, kConv);
    const Segmentation result = Segment(operations, CpuAndAneCosts());
    EXPECT_NEAR(result.total_us, expected.us, 1e-9) << expected.convs;
    EXPECT_EQ(result.backends, Placed(expected.convs, expected.backend)) << expected.convs;
    EXPECT_FALSE(result.tied);
  }
}

// "n convs, one CPU-only op (int32 argmax) of cost a, n convs"
TEST(Segmenter, ConvolutionsAroundAnOpOfTheCpu) {
  const struct {
    size_t convs;
    double us;  ///< without a
    size_t first, second;
  } cases[] = {{2, 400.24, kCpu, kCpu}, {3, 564.19, kAne, kCpu}, {4, 662.36, kAne, kAne}};
  for (const double a : {0.0, 1.5, 800.0}) {
    for (const auto& expected : cases) {
      std::vector<BackendTimes> operations(2 * expected.convs + 1, kConv);
      operations[expected.convs] = {a, std::nullopt};
      const Segmentation result = Segment(operations, CpuAndAneCosts());
      EXPECT_NEAR(result.total_us, expected.us + a, 1e-9) << expected.convs;
      std::vector<std::optional<size_t>> backends = Placed(expected.convs, expected.first);
      backends.emplace_back(kCpu);
      backends.insert(backends.end(), expected.convs, expected.second);
      EXPECT_EQ(result.backends, backends) << expected.convs;
    }
  }
}

// "an island in the middle of a graph or at its output end must save 0.375 ms; at the input end, or a whole graph,
// 0.25"
TEST(Segmenter, WhatAnIslandHasToSave) {
  const BackendTimes cpu_only = {1.0, std::nullopt};
  const auto island = [](double saving) { return BackendTimes{saving + 1, 1.0}; };
  const auto on_ane = [](const std::vector<BackendTimes>& operations, size_t place) {
    return Segment(operations, CpuAndAneCosts()).backends[place] == kAne;
  };
  for (const double more : {-0.01, 0.01}) {
    const bool wins = more > 0;
    EXPECT_EQ(on_ane({cpu_only, island(375 + more), cpu_only}, 1), wins);
    EXPECT_EQ(on_ane({cpu_only, island(375 + more)}, 1), wins);
    EXPECT_EQ(on_ane({island(250 + more), cpu_only}, 0), wins);
    EXPECT_EQ(on_ane({island(250 + more)}, 0), wins);
  }
}

TEST(Segmenter, EqualSumsAreTies) {
  const Segmentation whole = Segment(std::vector<BackendTimes>{{251.0, 1.0}}, CpuAndAneCosts());
  EXPECT_TRUE(whole.tied);
  EXPECT_EQ(whole.backends, Placed(1, kCpu));
  EXPECT_EQ(whole.total_us, 251.0);
  // All on ANE and only the first on ANE cost the same; the one without a change wins.
  const Segmentation tail = Segment(std::vector<BackendTimes>{{1000.0, 1.0}, {1.0, 1.0}}, CpuAndAneCosts());
  EXPECT_TRUE(tail.tied);
  EXPECT_EQ(tail.backends, Placed(2, kAne));
}

TEST(Segmenter, WhatNoBackendTakesFollowsItsNeighbour) {
  const BackendTimes none = {std::nullopt, std::nullopt};
  const Segmentation result =
      Segment(std::vector<BackendTimes>{none, {std::nullopt, 1.0}, none, {1.0, std::nullopt}, none}, CpuAndAneCosts());
  EXPECT_EQ(result.backends, (std::vector<std::optional<size_t>>{kAne, kAne, kAne, kCpu, kCpu}));
  EXPECT_EQ(result.total_us, 1 + 1 + kLaunchAneUs + kChangeBackendUs);
  EXPECT_EQ(Segment(std::vector<BackendTimes>{none}, CpuAndAneCosts()).backends.front(), std::nullopt);
  EXPECT_TRUE(Segment({}, CpuAndAneCosts()).backends.empty());
}

// SelectedBackend of every operation, from the file's own EstimatedRuntime, Launch and Src/Dest figures.
TEST(Segmenter, PublishedFiles) {
  const auto folder =
      SharedDir() / "real-files/751K__Apple-Neural-Engine-Microarchitecture-Study-M6/data/03_compile/opdispatch/ana";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "needs " << folder;
  size_t operations = 0;
  for (const auto& path : FindAll(folder, ".mil")) {
    const auto text = ReadFile(path, 1 << 20);
    ASSERT_OK(text);
    const auto analytics = ParseAnalytics(*text, path.string());
    ASSERT_OK(analytics);
    for (const AnalyticsFunction& function : analytics->functions) {
      const AnalyticsSegmentation result = Segment(function);
      ASSERT_EQ(result.backends.size(), function.operations.size());
      for (size_t i = 0; i < result.backends.size(); ++i, ++operations) {
        EXPECT_EQ(result.backends[i], function.operations[i].selected_backend) << path << " op " << i;
      }
    }
  }
  EXPECT_EQ(operations, 20U);
}

}  // namespace
}  // namespace milwright
