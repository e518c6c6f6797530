// Every checkpoint, built and run by the reference interpreter, against Hugging Face's logits.
#include "golden.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace milwright {
namespace {

using testing::Difference;
using testing::Golden;

class GoldenTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    checkpoint_ = testing::FindCheckpoint(GetParam());
    if (checkpoint_.empty()) GTEST_SKIP() << "needs ../shared/checkpoints/" << GetParam();
    std::string source = checkpoint_;
    // The sharded copy has the same weights as its single-file sibling, and no golden file of its own.
    if (GetParam() == "qwen3-tiny-sharded") source = testing::FindCheckpoint("qwen3-tiny");
    auto golden = testing::ReadGolden(source);
    ASSERT_TRUE(golden.ok()) << golden.status().message();
    golden_ = *std::move(golden);
    options_.checkpoint = checkpoint_;
    options_.context_length = std::max<int64_t>(48, static_cast<int64_t>(golden_.tokens.size()));
    options_.compute = DataType::kFp32;
  }

  void Expect(const BuildOptions& options, double bound, double margin, const std::string& what) {
    const auto logits = testing::BuildAndRun(options, golden_);
    ASSERT_TRUE(logits.ok()) << what << ": " << logits.status().message();
    const Difference d = testing::Compare(*logits, golden_.logits, golden_.vocabulary, margin);
    fmt::print("{:20} {:44} max {:.2e} mean {:.2e} (bound {:.0e}) top-1 wrong {} of {}\n", GetParam(), what, d.max,
               d.mean, bound, d.wrong_top, d.rows);
    EXPECT_LE(d.max, bound) << what;
    EXPECT_EQ(d.wrong_top, 0) << what;
  }

  std::string checkpoint_;
  Golden golden_;
  BuildOptions options_;
};

// fp32 with fp32 explicit caches: the bounds of checkpoints/README.md, in both styles.
TEST_P(GoldenTest, ExplicitCachesInFp32) {
  const double bound = testing::Fp32Bound(GetParam());
  options_.layout = LayoutOption{StateLayout::kKvPair, CacheStorage::kExplicitWhole, {}};
  for (const GraphStyle style : {GraphStyle::kPlain, GraphStyle::kAne}) {
    options_.style = style;
    Expect(options_, bound, 2 * bound, fmt::format("explicit-io fp32 {}", StyleName(style)));
  }
}

// States are fp16: rounding K and V alone moves the logits by up to 1.2e-2 (checkpoints/README.md).
TEST_P(GoldenTest, KvPairStates) {
  options_.layout = LayoutOption{StateLayout::kKvPair, CacheStorage::kState, {}};
  Expect(options_, 5e-2, 0.1, "kv-pair fp32");
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, GoldenTest, ::testing::ValuesIn(testing::CheckpointNames()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace milwright
