#include "compress/kmeans.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "compress/ordered_bits.h"
#include "compress/partition.h"

namespace milwright {
namespace {

using compress::BestPartition;
using compress::FromOrderedBits;
using compress::OrderedBits;
using compress::Partition;
using compress::PrefixSums;
using compress::Sums;

// How much costlier than the best the splits at bins are: first one that tells the cost and the price, then one that is
// good enough. Where that would take bins for most of the points, the points themselves serve.
constexpr std::array<double, 2> kTolerances = {0.064, 0.001};

// Up to so many points, putting them into bins first does not pay.
constexpr size_t kFewPoints = 768;

// The cost of the best k clusters of a smooth density (Panter and Dite 1951), which is taken from parts of the points.
template <typename Value>
double SmoothCost(std::span<const Value> values, std::span<const Sums> sums, int k) {
  constexpr size_t kParts = 128;
  const size_t parts = std::min(kParts, values.size() - 1);
  double root = 0;
  for (size_t part = 0; part < parts; ++part) {
    const size_t begin = part * (values.size() - 1) / parts;
    const size_t end = (part + 1) * (values.size() - 1) / parts;
    const double width = static_cast<double>(values[end]) - values[begin];
    root += std::cbrt((sums[end].weight - sums[begin].weight) * width * width);
  }
  return root * root * root / (12.0 * k * k);
}

// Starts of bins of neighbours, and the end of the last. Of a bin of several values, weight times width is at most
// `limit`.
std::vector<uint32_t> Bins(std::span<const float> values, std::span<const Sums> sums, double limit) {
  std::vector<uint32_t> starts;
  for (uint32_t begin = 0; begin < values.size();) {
    starts.push_back(begin);
    uint32_t end = begin + 1;
    const double first = values[begin];
    const double weight = sums[begin].weight;
    while (end < values.size() && (sums[end + 1].weight - weight) * (values[end] - first) <= limit) ++end;
    begin = end;
  }
  starts.push_back(static_cast<uint32_t>(values.size()));
  return starts;
}

// The best split of the points whose bounds are among `places`.
Partition SplitAt(std::span<const Sums> sums, std::span<const uint32_t> places, int k, double price) {
  std::vector<Sums> chosen(places.size());
  for (size_t i = 0; i < places.size(); ++i) chosen[i] = sums[places[i]];
  Partition partition = BestPartition(chosen, static_cast<size_t>(k), price);
  for (uint32_t& bound : partition.bounds) bound = places[bound];
  return partition;
}

// Moves the bounds of a split at bins to places within the bins around them, all at once.
Partition Refine(std::span<const Sums> sums, std::span<const uint32_t> bins, const Partition& coarse) {
  std::vector<uint32_t> places;
  for (const uint32_t bound : coarse.bounds) {
    const size_t bin = static_cast<size_t>(std::ranges::lower_bound(bins, bound) - bins.begin());
    const uint32_t from = bins[bin - std::min<size_t>(bin, 1)];
    const uint32_t to = bins[std::min(bin + 1, bins.size() - 1)];
    for (uint32_t place = places.empty() ? from : std::max(from, places.back() + 1); place <= to; ++place) {
      places.push_back(place);
    }
  }
  return SplitAt(sums, places, static_cast<int>(coarse.bounds.size() - 1), coarse.price);
}

// Any centres cost at most (sum over neighbours of gap * A(bin between them)) less than the same centres with every bin
// given to one of them whole, where A is the sum of distances of the bin to its mean: a point at x costs 2 * gap *
// |x - halfway| more with the wrong one of two, and half of A is on either side. A is at most half of weight * width,
// and gaps add up to the range of the values at most. So with bins of weight * width <= limit, the best split at bins
// costs at most limit * range / 2 more than the best of all.
Partition Split(std::span<const float> values, std::span<const Sums> sums, int k) {
  const double smooth = SmoothCost(values, sums, k);
  double price = 2 * smooth / k;
  double cost = 0.7 * smooth;
  const double range = static_cast<double>(values.back()) - values.front();
  for (size_t level = 0; level < kTolerances.size() && values.size() > kFewPoints;) {
    const double tolerance = kTolerances[level];
    const std::vector<uint32_t> bins = Bins(values, sums, 2 * tolerance / (1 + tolerance) * cost / range);
    if (bins.size() > values.size() / 2 || bins.size() <= static_cast<size_t>(k) + 1) break;
    const Partition coarse = SplitAt(sums, bins, k, price);
    price = coarse.price;
    const bool holds = coarse.cost >= cost;
    if (holds && level + 1 == kTolerances.size()) return Refine(sums, bins, coarse);
    cost = coarse.cost / (1 + tolerance);  // the best costs no less, if the tolerance holds
    level += holds ? 1 : 0;
  }
  std::vector<uint32_t> all(sums.size());
  std::iota(all.begin(), all.end(), 0U);
  return SplitAt(sums, all, k, price);
}

// Means of runs of points whose middle value is `reference`.
std::vector<float> Centers(std::span<const Sums> sums, std::span<const uint32_t> bounds, double reference) {
  std::vector<float> centers;
  for (size_t c = 0; c + 1 < bounds.size(); ++c) {
    const Sums& begin = sums[bounds[c]];
    const Sums& end = sums[bounds[c + 1]];
    centers.push_back(static_cast<float>(reference + (end.values - begin.values) / (end.weight - begin.weight)));
  }
  return centers;
}

// Sorts by the bit patterns, made to order like the values, in three passes of eleven bits.
void SortFloats(std::vector<float>& values) {
  constexpr size_t kFew = 512;
  if (values.size() < kFew) {
    std::ranges::sort(values);
    return;
  }
  constexpr std::array<uint32_t, 3> kShifts = {0, 11, 22};
  constexpr uint32_t kDigits = 1U << 11U;
  std::array<std::vector<uint32_t>, kShifts.size()> starts;
  starts.fill(std::vector<uint32_t>(kDigits));
  std::vector<uint32_t> keys(values.size());
  std::vector<uint32_t> sorted(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    keys[i] = OrderedBits(values[i]);
    for (size_t pass = 0; pass < kShifts.size(); ++pass) ++starts[pass][keys[i] >> kShifts[pass] & (kDigits - 1)];
  }
  for (size_t pass = 0; pass < kShifts.size(); ++pass) {
    uint32_t start = 0;
    for (uint32_t& count : starts[pass]) start += std::exchange(count, start);
    for (const uint32_t key : keys) sorted[starts[pass][key >> kShifts[pass] & (kDigits - 1)]++] = key;
    std::swap(keys, sorted);
  }
  for (size_t i = 0; i < values.size(); ++i) values[i] = FromOrderedBits(keys[i]);
}

}  // namespace

std::vector<float> KMeans1d(std::vector<float>& values, int k) {
  SortFloats(values);
  std::vector<float> distinct;
  std::vector<uint32_t> counts;
  for (size_t i = 0; i < values.size();) {
    size_t end = i;
    while (end < values.size() && values[end] == values[i]) ++end;
    distinct.push_back(values[i]);
    counts.push_back(static_cast<uint32_t>(end - i));
    i = end;
  }
  return KMeans1d(distinct, counts, k);
}

std::vector<float> KMeans1d(std::span<const float> values, std::span<const uint32_t> counts, int k) {
  if (values.size() <= static_cast<size_t>(k)) return {values.begin(), values.end()};
  const std::vector<Sums> sums = PrefixSums(values, counts);
  return Centers(sums, Split(values, sums, k).bounds, values[values.size() / 2]);
}

Clusters OptimalClusters(std::span<const double> values, std::span<const double> weights, int k, double price) {
  if (values.size() <= static_cast<size_t>(k)) return {{values.begin(), values.end()}, 0, price};
  const std::vector<Sums> sums = PrefixSums(values, weights);
  if (price == 0) price = 2 * SmoothCost(values, sums, k) / k;
  const Partition best = BestPartition(sums, static_cast<size_t>(k), price);
  return {Centers(sums, best.bounds, values[values.size() / 2]), best.cost, best.price};
}

std::vector<float> Middles(std::span<const float> centers) {
  std::vector<float> middles;
  for (size_t c = 0; c + 1 < centers.size(); ++c) {
    const double exact = (static_cast<double>(centers[c]) + centers[c + 1]) / 2;
    const auto nearest = static_cast<float>(exact);
    middles.push_back(nearest > exact ? std::nextafter(nearest, -std::numeric_limits<float>::infinity()) : nearest);
  }
  return middles;
}

void NearestCenters(std::span<const float> values, std::span<const float> centers, std::span<uint8_t> indices) {
  // A search of the same steps for every value, without branches that would be guessed wrong.
  std::vector<float> middles = Middles(centers);
  const size_t size = std::bit_ceil(middles.size() + 1);
  middles.resize(size - 1, std::numeric_limits<float>::infinity());
  for (size_t i = 0; i < values.size(); ++i) {
    const float value = values[i];
    size_t index = 0;
    for (size_t step = size / 2; step > 0; step /= 2) index += middles[index + step - 1] < value ? step : 0;
    indices[i] = static_cast<uint8_t>(index);
  }
}

double ClusterError(std::span<const float> values, std::span<const float> centers) {
  std::vector<uint8_t> indices(values.size());
  NearestCenters(values, centers, indices);
  double error = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double d = static_cast<double>(values[i]) - centers[indices[i]];
    error += d * d;
  }
  return error;
}

}  // namespace milwright
