// Aligned buffers and the measuring of bandwidth and peaks (that they measure something, not what).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "kernels/aligned_buffer.h"
#include "kernels/bandwidth.h"

namespace milwright::kernels {
namespace {

TEST(AlignedBufferTest, IsZeroAlignedAndCounted) {
  ByteCounter counter;
  {
    Result<AlignedBuffer> small = AlignedBuffer::Allocate(100, &counter);
    Result<AlignedBuffer> large = AlignedBuffer::Allocate(5 << 20, &counter);
    ASSERT_TRUE(small.ok());
    ASSERT_TRUE(large.ok());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(small->data()) % 64, 0U);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(large->data()) % (2 << 20), 0U);
    EXPECT_EQ(counter.bytes(), 100 + (5 << 20));
    EXPECT_TRUE(std::all_of(large->data(), large->data() + large->size(), [](uint8_t b) { return b == 0; }));
    large->data()[large->size() - 1] = 1;
    AlignedBuffer moved = *std::move(large);
    EXPECT_EQ(moved.As<uint32_t>().size(), size_t{5 << 18});
    EXPECT_EQ(counter.bytes(), 100 + (5 << 20));
    moved = AlignedBuffer();
    EXPECT_EQ(counter.bytes(), 100);
  }
  EXPECT_EQ(counter.bytes(), 0);
}

TEST(AlignedBufferTest, EmptyAndImpossibleSizes) {
  EXPECT_EQ(AlignedBuffer::Allocate(0)->size(), 0U);
  const Result<AlignedBuffer> impossible = AlignedBuffer::Allocate(std::numeric_limits<size_t>::max());
  ASSERT_FALSE(impossible.ok());
  EXPECT_EQ(impossible.status().code(), ErrorCode::kRuntime);
}

TEST(BandwidthTest, MeasuresSomething) {
  ThreadPool pool(2);
  for (const Kernels* kernels : AvailableKernels()) {
    Result<BandwidthProbe> probe = BandwidthProbe::Make(*kernels, pool, 4 << 20);
    ASSERT_TRUE(probe.ok());
    const RateSummary rate = probe->Read(3);
    EXPECT_EQ(rate.samples.size(), 3U);
    EXPECT_GT(rate.worst, 0.0);
    EXPECT_LE(rate.worst, rate.median);
    EXPECT_LE(rate.median, rate.best);
    EXPECT_GT(MeasureFmaPeak(*kernels, pool, 1).median, 0.0);
    EXPECT_EQ(MeasureInt8Peak(*kernels, pool, 1).median > 0, kernels->int8_dot_stream != nullptr);
  }
}

TEST(BandwidthTest, SummaryOfSamples) {
  const RateSummary odd = Summarize({3, 1, 2});
  EXPECT_EQ(odd.median, 2);
  EXPECT_EQ(odd.best, 3);
  EXPECT_EQ(odd.worst, 1);
  EXPECT_EQ(Summarize({1, 2, 4, 3}).median, 2.5);
}

}  // namespace
}  // namespace milwright::kernels
