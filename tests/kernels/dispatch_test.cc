#include "kernels/dispatch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <set>

#include "kernels/stored_weights.h"

namespace milwright::kernels::testing {
namespace {

using ::testing::HasSubstr;

TEST(DispatchTest, EveryAvailableTableCanBeAskedForByName) {
  ASSERT_FALSE(AvailableKernels().empty());
  EXPECT_STREQ(AvailableKernels().back()->name, "scalar");
  for (const Kernels* kernels : AvailableKernels()) {
    const Result<const Kernels*> selected = SelectKernels(kernels->name);
    ASSERT_TRUE(selected.ok());
    EXPECT_EQ(*selected, kernels);
  }
  EXPECT_EQ(*SelectKernels(""), AvailableKernels().front());
}

TEST(DispatchTest, AnUnknownNameIsAnErrorThatNamesTheChoices) {
  const Result<const Kernels*> selected = SelectKernels("sse9");
  ASSERT_FALSE(selected.ok());
  EXPECT_EQ(selected.status().code(), ErrorCode::kUsage);
  EXPECT_THAT(selected.status().message(), HasSubstr("unknown kernels 'sse9'"));
  for (const Kernels* kernels : AvailableKernels()) {
    EXPECT_THAT(selected.status().message(), HasSubstr(kernels->name));
  }
}

TEST(DispatchTest, KernelsOfAnotherMachineAreAnError) {
#if defined(__aarch64__)
  const char* other = "avx2";
#else
  const char* other = "neon";
#endif
  const Result<const Kernels*> selected = SelectKernels(other);
  ASSERT_FALSE(selected.ok());
  EXPECT_THAT(selected.status().message(), HasSubstr("this machine cannot run"));
}

TEST(DispatchTest, TheEnvironmentForcesATable) {
  const char* before = std::getenv("MILWRIGHT_KERNELS");
  const std::string restore = before == nullptr ? "" : before;
  setenv("MILWRIGHT_KERNELS", "scalar", 1);
  EXPECT_STREQ((*SelectKernelsFromEnvironment())->name, "scalar");
  setenv("MILWRIGHT_KERNELS", "abacus", 1);
  EXPECT_FALSE(SelectKernelsFromEnvironment().ok());
  before == nullptr ? unsetenv("MILWRIGHT_KERNELS") : setenv("MILWRIGHT_KERNELS", restore.c_str(), 1);
}

TEST(DispatchTest, NamesOfKernelsAreUniqueAndEndInTheIsa) {
  for (const Kernels* kernels : AvailableKernels()) {
    std::set<std::string> names;
    for (const MatVecKernel& kernel : kernels->matvec) {
      EXPECT_TRUE(names.insert(kernel.name).second) << kernel.name;
      EXPECT_THAT(kernel.name, HasSubstr(std::string("_") + kernels->name));
    }
    for (const MatMulKernel& kernel : kernels->matmul) {
      EXPECT_TRUE(names.insert(kernel.name).second) << kernel.name;
      EXPECT_THAT(kernel.name, HasSubstr(std::string("_") + kernels->name));
    }
  }
}

TEST(WeightsTest, StoredBytesCountsEverything) {
  Random random(TestSeed());
  const StoredWeights block(FormatNamed("int4_block32"), 8, 64, random);
  EXPECT_EQ(StoredBytes(block.view), 8 * 64 / 2 + 8 * 2 * 2);
  const StoredWeights grouped(FormatNamed("lut4_grouped"), 16, 64, random);
  EXPECT_EQ(StoredBytes(grouped.view), 16 * 64 / 2 + 2 * 16 * 2);
  const StoredWeights sparse(FormatNamed("fp16_sparse"), 8, 64, random);
  EXPECT_EQ(StoredBytes(sparse.view), 8 * 64 / 8 + static_cast<int64_t>(sparse.row_starts.back()) * 2);
}

TEST(WeightsTest, ReadsTheDocumentedBytes) {
  // int4, LSB first, two's complement: 0x8F is -1, -8; scale 0.5 per row.
  const uint8_t codes[] = {0x8F, 0x71};
  const uint16_t scale[] = {0x3800, 0x3800};
  WeightView view;
  view.rows = 2;
  view.cols = 2;
  view.codec = Codec::kInt4;
  view.codes = codes;
  view.code_bytes = 2;
  view.scale = {scale, DataType::kFp16, 1, 2};
  EXPECT_EQ(WeightAt(view, 0, 0), -0.5F);
  EXPECT_EQ(WeightAt(view, 0, 1), -4.0F);
  EXPECT_EQ(WeightAt(view, 1, 0), 0.5F);
  EXPECT_EQ(WeightAt(view, 1, 1), 3.5F);
  // 3-bit indices 1, 2, 7 in one stream: 001 010 111 from the low end.
  const uint8_t packed[] = {0b11010001, 0b00000001};
  const uint16_t table[] = {0, 0x3C00, 0x4000, 0, 0, 0, 0, 0x4400};
  WeightView lut;
  lut.rows = 1;
  lut.cols = 3;
  lut.codec = Codec::kLut3;
  lut.codes = packed;
  lut.code_bytes = 2;
  lut.table = {table, DataType::kFp16, 1, 3};
  EXPECT_EQ(WeightAt(lut, 0, 0), 1.0F);
  EXPECT_EQ(WeightAt(lut, 0, 1), 2.0F);
  EXPECT_EQ(WeightAt(lut, 0, 2), 4.0F);
}

TEST(WeightsTest, CheckFindsWhatIsMissing) {
  Random random(TestSeed());
  const StoredWeights weights(FormatNamed("lut4_tensor"), 4, 8, random);
  EXPECT_TRUE(CheckWeights(weights.view).ok());
  WeightView view = weights.view;
  view.code_bytes -= 1;
  EXPECT_THAT(CheckWeights(view).message(), HasSubstr("take 16 bytes but only 15"));
  view = weights.view;
  view.table = {};
  EXPECT_THAT(CheckWeights(view).message(), HasSubstr("without a table"));
  view = weights.view;
  view.cols = std::numeric_limits<int64_t>::max() / 4;
  EXPECT_THAT(CheckWeights(view).message(), HasSubstr("more than can be addressed"));
  view = weights.view;
  view.table.col_block = 0;
  EXPECT_THAT(CheckWeights(view).message(), HasSubstr("at least 1"));
  view = weights.view;
  view.table.type = DataType::kInt32;
  EXPECT_FALSE(CheckWeights(view).ok());
  view = weights.view;
  view.mask = view.codes;
  EXPECT_THAT(CheckWeights(view).message(), HasSubstr("row starts"));
  view = weights.view;
  view.rows = 0;
  EXPECT_FALSE(CheckWeights(view).ok());
}

TEST(TopKTest, FallsAndBreaksTiesByIndex) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const float x[] = {1, 5, kNan, 5, -2, 7, 1};
  float values[7];
  int32_t indices[7];
  TopK(x, 7, 7, values, indices);
  EXPECT_THAT(indices, ::testing::ElementsAre(5, 1, 3, 0, 6, 4, 2));
  EXPECT_TRUE(std::isnan(values[6]));
  TopK(x, 7, 2, values, indices);
  EXPECT_EQ(indices[0], 5);
  EXPECT_EQ(indices[1], 1);
  EXPECT_EQ(values[1], 5);
}

}  // namespace
}  // namespace milwright::kernels::testing
