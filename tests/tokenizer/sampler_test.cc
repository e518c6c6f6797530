#include "tokenizer/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

namespace milwright {
namespace {

using ::testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Sampler MakeSampler(const SamplingOptions& options) {
  Result<Sampler> sampler = Sampler::Create(options);
  EXPECT_TRUE(sampler.ok()) << sampler.status().message();
  return *std::move(sampler);
}

/// How often each id comes in `count` samples.
std::map<int32_t, int> Count(const SamplingOptions& options, const std::vector<float>& logits, int count) {
  Sampler sampler = MakeSampler(options);
  std::map<int32_t, int> counts;
  for (int i = 0; i < count; ++i) ++counts[*sampler.Sample(logits, {})];
  return counts;
}

TEST(SplitMix64Test, GivesThePublishedSequence) {
  // The reference implementation's output for seed 1234567 (Vigna, splitmix64.c).
  SplitMix64 random(1234567);
  EXPECT_EQ(random.Next(), 6457827717110365317U);
  EXPECT_EQ(random.Next(), 3203168211198807973U);
  EXPECT_EQ(random.Next(), 9817491932198370423U);
}

TEST(SamplerTest, GreedyTakesTheHighestAndOfEqualsTheFirst) {
  Sampler sampler = MakeSampler({});
  EXPECT_EQ(*sampler.Sample(std::vector<float>{1, 5, 2, 5}, {}), 1);
  EXPECT_EQ(*sampler.Sample(std::vector<float>{-kInfinity, -3}, {}), 1);
}

TEST(SamplerTest, RefusesLogitsThatMeanNothing) {
  Sampler sampler = MakeSampler({.temperature = 1});
  EXPECT_THAT(sampler.Sample(std::vector<float>{0, std::nanf("")}, {}).status().message(), HasSubstr("token 1"));
  EXPECT_FALSE(sampler.Sample(std::vector<float>{0, kInfinity}, {}).ok());
  EXPECT_FALSE(sampler.Sample(std::vector<float>{-kInfinity, -kInfinity}, {}).ok());
  EXPECT_FALSE(sampler.Sample(std::vector<float>{}, {}).ok());
}

TEST(SamplerTest, RefusesOptionsOutOfRange) {
  const SamplingOptions bad[] = {{.temperature = -1},
                                 {.temperature = std::nan("")},
                                 {.top_k = -1},
                                 {.top_p = 0},
                                 {.top_p = 1.5},
                                 {.min_p = -0.1},
                                 {.min_p = 2},
                                 {.repetition_penalty = 0},
                                 {.repetition_penalty = -1}};
  for (const SamplingOptions& options : bad) EXPECT_EQ(Sampler::Create(options).status().code(), ErrorCode::kUsage);
}

TEST(SamplerTest, FollowsTheProbabilities) {
  // Probabilities 1/2, 1/4, 1/4 at temperature 1; at temperature 1/2 their squares: 2/3, 1/6, 1/6.
  const std::vector<float> logits = {std::log(2.0F), 0, 0};
  constexpr int kSamples = 20000;
  const auto expect = [&](double temperature, double first) {
    const auto counts = Count({.temperature = temperature, .seed = 42}, logits, kSamples);
    // Five standard deviations of a binomial distribution.
    const double bound = 5 * std::sqrt(first * (1 - first) * kSamples);
    EXPECT_NEAR(counts.at(0), first * kSamples, bound);
    EXPECT_NEAR(counts.at(1), (1 - first) / 2 * kSamples, bound);
  };
  expect(1.0, 0.5);
  expect(0.5, 2.0 / 3);
}

TEST(SamplerTest, FiltersKeepWhatTheyShould) {
  // Probabilities 0.4, 0.3, 0.2, 0.1, in another order than the ids.
  const std::vector<float> logits = {std::log(0.1F), std::log(0.4F), std::log(0.2F), std::log(0.3F)};
  const auto kept = [&](SamplingOptions options) {
    options.temperature = 1;
    std::vector<int32_t> ids;
    for (const auto& [id, count] : Count(options, logits, 2000)) ids.push_back(id);
    return ids;
  };
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(kept({}), (Ids{0, 1, 2, 3}));
  EXPECT_EQ(kept({.top_k = 1}), (Ids{1}));
  EXPECT_EQ(kept({.top_k = 2}), (Ids{1, 3}));
  EXPECT_EQ(kept({.top_k = 100}), (Ids{0, 1, 2, 3}));
  EXPECT_EQ(kept({.top_p = 0.01}), (Ids{1}));
  EXPECT_EQ(kept({.top_p = 0.5}), (Ids{1, 3}));
  EXPECT_EQ(kept({.top_p = 0.75}), (Ids{1, 2, 3}));
  EXPECT_EQ(kept({.min_p = 0.6}), (Ids{1, 3}));
  EXPECT_EQ(kept({.min_p = 1}), (Ids{1}));
  // After top_k 2 the probabilities are 4/7 and 3/7, so half is reached with one.
  EXPECT_EQ(kept({.top_k = 2, .top_p = 0.5}), (Ids{1}));
}

TEST(SamplerTest, PenalizesRepetition) {
  Sampler sampler = MakeSampler({.repetition_penalty = 2});
  // 4 / 2 < 3; and -1 * 2 < -1.5.
  EXPECT_EQ(*sampler.Sample(std::vector<float>{4, 3}, std::vector<int32_t>{0, 0, 99, -5}), 1);
  EXPECT_EQ(*sampler.Sample(std::vector<float>{-1, -1.5}, std::vector<int32_t>{0}), 1);
  EXPECT_EQ(*sampler.Sample(std::vector<float>{4, 3}, {}), 0);
}

TEST(SamplerTest, ProcessorsRunInOrderBeforeTheRest) {
  Sampler sampler = MakeSampler({});
  sampler.AddProcessor([](std::span<const int32_t> ids, std::span<float> logits) {
    logits[0] = -kInfinity;
    logits[1] += static_cast<float>(ids.size());
    return Status::Ok();
  });
  sampler.AddProcessor([](std::span<const int32_t>, std::span<float> logits) {
    logits[1] *= 10;
    return Status::Ok();
  });
  EXPECT_EQ(*sampler.Sample(std::vector<float>{99, 1, 15}, std::vector<int32_t>{7}), 1);
  sampler.AddProcessor([](auto, auto) { return Status(ErrorCode::kRuntime, "stop"); });
  EXPECT_EQ(sampler.Sample(std::vector<float>{1}, {}).status().message(), "stop");
}

TEST(SamplerTest, TheSeedDecidesAndTheStateContinues) {
  const std::vector<float> logits(50, 0.0F);
  const auto draw = [&](uint64_t seed) {
    Sampler sampler = MakeSampler({.temperature = 1, .seed = seed});
    std::vector<int32_t> ids;
    for (int i = 0; i < 20; ++i) ids.push_back(*sampler.Sample(logits, {}));
    return ids;
  };
  EXPECT_EQ(draw(7), draw(7));
  EXPECT_NE(draw(7), draw(8));
  // The first numbers of seed 7 times 50, by hand from the definition in random.h.
  SplitMix64 random(7);
  const std::vector<int32_t> ids = draw(7);
  for (const int32_t id : ids) EXPECT_EQ(id, static_cast<int32_t>(random.NextUnit() * 50));
  Sampler first = MakeSampler({.temperature = 1, .seed = 7});
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(first.Sample(logits, {}).ok());
  Sampler second = MakeSampler({.temperature = 1, .seed = first.random_state()});
  for (size_t i = 10; i < 20; ++i) EXPECT_EQ(*second.Sample(logits, {}), ids[i]);
}

}  // namespace
}  // namespace milwright
