#include "compress/kmeans.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <string>

#include "compress/partition.h"
#include "compress/streamed_kmeans.h"
#include "kernels/thread_pool.h"
#include "milwright/half.h"

namespace milwright {
namespace {

constexpr std::array<size_t, 8> kSizes = {1, 2, 3, 4, 8, 16, 64, 256};

// Different ascending values and how often each occurs.
struct Points {
  std::vector<float> values;
  std::vector<uint32_t> counts;
};

struct Distribution {
  std::string name;
  float (*draw)(std::mt19937& random);
};

float Normal(std::mt19937& random) { return std::normal_distribution<float>()(random); }

const std::vector<Distribution>& Distributions() {
  static const std::vector<Distribution> all = {
      {"normal", Normal},
      {"heavy tails", [](std::mt19937& random) { return std::pow(Normal(random), 3.0F); }},
      {"skewed", [](std::mt19937& random) { return std::exp(Normal(random)); }},
      {"two modes", [](std::mt19937& random) { return (random() % 2 == 0 ? 3.0F : -3.0F) + 0.1F * Normal(random); }},
      {"gaps", [](std::mt19937& random) { return static_cast<float>(random() % 7) + 0.02F * Normal(random); }},
      {"outliers", [](std::mt19937& random) { return random() % 500 == 0 ? 1000 * Normal(random) : Normal(random); }},
      {"exponents", [](std::mt19937& random) { return std::exp2(3 * Normal(random)); }}};
  return all;
}

Points Draw(const Distribution& distribution, size_t different, bool half, unsigned seed) {
  std::mt19937 random(seed);
  std::set<float> values;
  while (values.size() < different) {
    const float value = distribution.draw(random);
    values.insert(half ? RoundToHalf(value) : value);
  }
  Points points{{values.begin(), values.end()}, {}};
  for (size_t i = 0; i < different; ++i) points.counts.push_back(1 + static_cast<uint32_t>(random() % 4));
  return points;
}

// Costs of runs in long double, from prefix sums around the middle value.
class ExactCosts {
 public:
  explicit ExactCosts(const Points& points) : weights_(1), sums_(1), squares_(1) {
    const long double reference = points.values[points.values.size() / 2];
    for (size_t i = 0; i < points.values.size(); ++i) {
      const long double value = points.values[i] - reference;
      const long double count = points.counts[i];
      weights_.push_back(weights_.back() + count);
      sums_.push_back(sums_.back() + count * value);
      squares_.push_back(squares_.back() + count * value * value);
    }
  }
  [[nodiscard]] size_t points() const { return weights_.size() - 1; }
  [[nodiscard]] long double Cost(size_t begin, size_t end) const {
    const long double sum = sums_[end] - sums_[begin];
    return squares_[end] - squares_[begin] - sum * sum / (weights_[end] - weights_[begin]);
  }

 private:
  std::vector<long double> weights_;
  std::vector<long double> sums_;
  std::vector<long double> squares_;
};

// The least costs for 1, 2, ... `most` runs: a dynamic program that tries every last cut of every prefix.
std::vector<double> LeastCostsByTryingAll(const Points& points, size_t most) {
  const ExactCosts costs(points);
  const size_t n = costs.points();
  std::vector<std::vector<double>> run_costs(n + 1);
  for (size_t end = 1; end <= n; ++end) {
    for (size_t cut = 0; cut < end; ++cut) run_costs[end].push_back(static_cast<double>(costs.Cost(cut, end)));
  }
  constexpr double kNone = std::numeric_limits<double>::infinity();
  std::vector<double> before(n + 1, kNone);
  std::vector<double> now(n + 1, kNone);
  before[0] = 0;
  std::vector<double> least;
  for (size_t runs = 1; runs <= most; ++runs) {
    for (size_t end = runs; end <= n; ++end) {
      const double* cost = run_costs[end].data();
      double best = kNone;
      for (size_t cut = runs - 1; cut < end; ++cut) best = std::min(best, before[cut] + cost[cut]);
      now[end] = best;
    }
    std::swap(before, now);
    before[runs - 1] = kNone;  // too few points
    least.push_back(before[n]);
  }
  return least;
}

// The same by divide and conquer: the best last cut grows with the prefix (Wu 1991).
class LeastCosts {
 public:
  explicit LeastCosts(const Points& points) : costs_(points), before_(costs_.points() + 1), now_(before_.size()) {}
  std::vector<double> Run(size_t most) {
    const size_t n = costs_.points();
    for (size_t end = 1; end <= n; ++end) before_[end] = costs_.Cost(0, end);
    std::vector<double> least = {static_cast<double>(before_[n])};
    for (size_t runs = 2; runs <= most; ++runs) {
      Fill(runs, n, runs - 1, n - 1);
      std::swap(before_, now_);
      least.push_back(static_cast<double>(before_[n]));
    }
    return least;
  }

 private:
  void Fill(size_t low, size_t high, size_t from, size_t to) {
    if (low > high) return;
    const size_t middle = (low + high) / 2;
    size_t best = from;
    long double least = std::numeric_limits<long double>::infinity();
    for (size_t cut = from; cut <= std::min(middle - 1, to); ++cut) {
      const long double cost = before_[cut] + costs_.Cost(cut, middle);
      if (cost < least) {
        least = cost;
        best = cut;
      }
    }
    now_[middle] = least;
    if (middle > low) Fill(low, middle - 1, from, best);
    Fill(middle + 1, high, best, to);
  }

  ExactCosts costs_;
  std::vector<long double> before_;
  std::vector<long double> now_;
};

double WeightedError(const Points& points, std::span<const float> centers) {
  std::vector<uint8_t> indices(points.values.size());
  NearestCenters(points.values, centers, indices);
  long double error = 0;
  for (size_t i = 0; i < points.values.size(); ++i) {
    const long double d = static_cast<long double>(points.values[i]) - centers[indices[i]];
    error += points.counts[i] * d * d;
  }
  return static_cast<double>(error);
}

compress::Partition Best(const Points& points, size_t k, double price) {
  const std::vector<compress::Sums> sums =
      compress::PrefixSums(std::span<const float>(points.values), std::span<const uint32_t>(points.counts));
  return compress::BestPartition(sums, k, price);
}

void ExpectBest(const Points& points, std::span<const double> least, const std::string& what) {
  for (const size_t k : kSizes) {
    if (k >= points.values.size()) continue;
    const double wanted = least[k - 1];
    // Whatever the first guess of the price.
    for (const double price : {2 * wanted / static_cast<double>(k), 1e-9, 1e9}) {
      const compress::Partition best = Best(points, k, price);
      ASSERT_EQ(best.bounds.size(), k + 1) << what;
      EXPECT_TRUE(std::ranges::adjacent_find(best.bounds, std::greater_equal()) == best.bounds.end()) << what;
      EXPECT_NEAR(best.cost, wanted, 1e-7 * wanted) << what << ", k " << k << ", price " << price;
    }
  }
}

TEST(BestPartition, IsTheBestOfAll) {
  for (const Distribution& distribution : Distributions()) {
    const Points points = Draw(distribution, 600, /*half=*/true, 11);
    ExpectBest(points, LeastCostsByTryingAll(points, 256), distribution.name);
  }
}

TEST(BestPartition, TwoWaysOfTellingTheBestAgree) {
  const Points points = Draw(Distributions()[1], 300, /*half=*/false, 12);
  const std::vector<double> all = LeastCostsByTryingAll(points, 64);
  const std::vector<double> fast = LeastCosts(points).Run(64);
  for (size_t k = 0; k < 64; ++k) EXPECT_NEAR(all[k], fast[k], 1e-12 * all[k]);
}

// On a line of equal steps and counts the least cost is straight between n/3, n/2 and n runs: there is no price for the
// numbers between, and two splits have to be joined.
TEST(BestPartition, JoinsSplitsWhereNoPriceGivesKRuns) {
  Points points;
  for (int i = 0; i < 600; ++i) {
    points.values.push_back(static_cast<float>(i));
    points.counts.push_back(3);
  }
  const std::vector<double> least = LeastCostsByTryingAll(points, 600);
  for (size_t k = 1; k <= 600; ++k) {
    const compress::Partition best = Best(points, k, 1);
    ASSERT_EQ(best.bounds.size(), k + 1);
    EXPECT_NEAR(best.cost, least[k - 1], 1e-9 * (1 + least[k - 1])) << k;
  }
}

// Values of which nearly all are one or two apart by rounding, or lie where squares are lost: k runs come out still.
TEST(BestPartition, SurvivesValuesThatDoublesCannotTellApart) {
  Points points;
  float value = 1e30F;
  for (int i = 0; i < 700; ++i) {
    points.values.push_back(value);
    points.counts.push_back(1 + i % 3);
    value = std::nextafter(value, std::numeric_limits<float>::infinity());
  }
  points.values.push_back(std::numeric_limits<float>::max());
  points.counts.push_back(1);
  points.values.insert(points.values.begin(), {-std::numeric_limits<float>::max(), 0, 1e-45F});
  points.counts.insert(points.counts.begin(), {1, 5, 5});
  for (const size_t k : kSizes) {
    const compress::Partition best = Best(points, k, 1);
    ASSERT_EQ(best.bounds.size(), k + 1);
    EXPECT_TRUE(std::ranges::adjacent_find(best.bounds, std::greater_equal()) == best.bounds.end());
    const std::vector<float> centers = KMeans1d(points.values, points.counts, static_cast<int>(k));
    EXPECT_TRUE(std::ranges::is_sorted(centers));
    EXPECT_EQ(centers.size(), k);
  }
}

// Few enough different values for no bins at all: what is best.
TEST(KMeans, IsOptimalOnSmallSets) {
  std::mt19937 random(5);
  for (const int k : {1, 2, 3, 4, 8, 16}) {
    for (const size_t n : {1U, 2U, 7U, 40U, 200U}) {
      Points points = Draw(Distributions()[0], n, /*half=*/true, static_cast<unsigned>(random()));
      std::vector<float> values;
      for (size_t i = 0; i < n; ++i) values.insert(values.end(), points.counts[i], points.values[i]);
      std::ranges::shuffle(values, random);
      const double best =
          n <= static_cast<size_t>(k) ? 0 : LeastCostsByTryingAll(points, static_cast<size_t>(k)).back();
      EXPECT_NEAR(WeightedError(points, KMeans1d(values, k)), best, 1e-9 + 1e-6 * best) << k << " " << n;
      EXPECT_TRUE(std::ranges::is_sorted(values));
    }
  }
}

void ExpectNearlyBest(const Points& points, std::span<const double> least, const std::string& what) {
  for (const size_t k : kSizes) {
    const double error = WeightedError(points, KMeans1d(points.values, points.counts, static_cast<int>(k)));
    EXPECT_LE(error, least[k - 1] * 1.001) << what << ", k " << k;
    EXPECT_GE(error, least[k - 1] * (1 - 1e-6)) << what << ", k " << k;
  }
}

TEST(KMeans, IsWithinATenthOfAPercentOfTryingAll) {
  for (const Distribution& distribution : Distributions()) {
    const Points points = Draw(distribution, 2000, /*half=*/false, 6);
    ExpectNearlyBest(points, LeastCostsByTryingAll(points, 256), distribution.name);
  }
}

// More values than fp16 weights have in a group of field size, where bins come first for small k.
TEST(KMeans, IsWithinATenthOfAPercentOnLargeSets) {
  for (const Distribution& distribution : Distributions()) {
    const Points points = Draw(distribution, 16384, /*half=*/false, 7);
    ExpectNearlyBest(points, LeastCosts(points).Run(256), distribution.name);
  }
}

Points CountUp(std::vector<float> values) {
  std::ranges::sort(values);
  Points points;
  for (const float value : values) {
    if (points.values.empty() || points.values.back() != value) {
      points.values.push_back(value);
      points.counts.push_back(0);
    }
    ++points.counts.back();
  }
  return points;
}

TEST(StreamedKMeans, IsWithinATenthOfAPercent) {
  kernels::ThreadPool one(1);
  kernels::ThreadPool three(3);
  for (const Distribution& distribution : Distributions()) {
    std::mt19937 random(8);
    std::vector<float> values(200000);
    for (float& value : values) value = distribution.draw(random);
    values[17] = -0.0F;
    const auto read = [&values](size_t begin, std::span<float> out) {
      std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(begin), out.size(), out.begin());
    };
    const Points points = CountUp(values);
    for (const size_t k : {2U, 16U, 256U}) {
      const double least = Best(points, k, 1).cost;
      const std::vector<float> centers = compress::StreamedKMeans1d(one, values.size(), read, static_cast<int>(k));
      EXPECT_EQ(centers, compress::StreamedKMeans1d(three, values.size(), read, static_cast<int>(k)));
      const double error = WeightedError(points, centers);
      EXPECT_LE(error, least * 1.001) << distribution.name << ", k " << k;
      EXPECT_GE(error, least * (1 - 1e-6)) << distribution.name << ", k " << k;
    }
  }
}

// Of values that share all their upper bits, the first pass sees nothing; few enough values are their own centres.
TEST(StreamedKMeans, TellsNeighboursApart) {
  kernels::ThreadPool pool(2);
  std::vector<float> values;
  for (int i = 0; i < 3000; ++i) values.push_back(1.0F + static_cast<float>(i * 7919 % 16) * 0x1p-23F);
  values[5] = -2;
  const auto read = [&values](size_t begin, std::span<float> out) {
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(begin), out.size(), out.begin());
  };
  const Points points = CountUp(values);
  ASSERT_EQ(points.values.size(), 17U);
  EXPECT_EQ(compress::StreamedKMeans1d(pool, values.size(), read, 32), points.values);
  const std::vector<float> centers = compress::StreamedKMeans1d(pool, values.size(), read, 8);
  EXPECT_EQ(centers.size(), 8U);
  EXPECT_EQ(centers.front(), -2);
  // Centres are floats, as coarse as half the distance of these values.
  EXPECT_LE(WeightedError(points, centers), WeightedError(points, KMeans1d(points.values, points.counts, 8)) * 1.001);
}

}  // namespace
}  // namespace milwright
