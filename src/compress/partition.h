// The best split of sorted points into k runs: 1-D k-means as a path of k links of least cost.
#ifndef MILWRIGHT_COMPRESS_PARTITION_H_
#define MILWRIGHT_COMPRESS_PARTITION_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace milwright::compress {

/// Sums over the points before a place in their order: of weights, weighted values and weighted squares. Only
/// differences count, so they may start anywhere; PrefixSums starts them in the middle.
struct Sums {
  double weight = 0;
  double values = 0;
  double squares = 0;
};

/// Sums before each of `points` ascending values and after the last. Values are taken relative to the middle one, and
/// sums run outwards from there: rounding errors at a place follow the values up to it, and neither tight clusters far
/// from 0 nor a few huge values at the ends cost the others their digits.
template <typename Value, typename Count>
std::vector<Sums> PrefixSums(std::span<const Value> values, std::span<const Count> counts) {
  const size_t middle = values.size() / 2;
  const double reference = values[middle];
  std::vector<Sums> sums(values.size() + 1);
  for (size_t i = middle; i < values.size(); ++i) {
    const double weight = counts[i];
    const double value = values[i] - reference;
    sums[i + 1] = {sums[i].weight + weight, sums[i].values + weight * value, sums[i].squares + weight * value * value};
  }
  for (size_t i = middle; i-- > 0;) {
    const double weight = counts[i];
    const double value = values[i] - reference;
    sums[i] = {sums[i + 1].weight - weight, sums[i + 1].values - weight * value,
               sums[i + 1].squares - weight * value * value};
  }
  return sums;
}

/// Sum of squared distances of the points between two places to their mean.
double RunCost(const Sums& begin, const Sums& end);

struct Partition {
  std::vector<uint32_t> bounds;  ///< k + 1 places, the first and last included
  double cost = 0;
  double price = 0;  ///< about what one more run would save, where k is neither one nor all
};

/// The split at `places` (ascending, of positive weight between any two, more than k) into exactly `k` > 0 runs with
/// the least sum of RunCosts; optimal up to the rounding of doubles.
///
/// Run costs are concave Monge: w(a,c) + w(b,d) <= w(a,d) + w(b,c) for a <= b <= c <= d. So the least cost is convex in
/// the number of runs, and the split into any number that costs least with a price on each run is the best split into
/// as many as it has (Aggarwal, Schieber, Tokuyama 1994). The price is searched for; each try is one pass over the
/// places. Where the least cost is straight around k, no price gives k runs: two best splits for the same price, into
/// more and fewer runs, are then joined at a run of one that lies in a run of the other, which is a best split too.
/// `price`, above 0, is where the search starts: twice the cost over k, about.
Partition BestPartition(std::span<const Sums> places, size_t k, double price);

}  // namespace milwright::compress

#endif  // MILWRIGHT_COMPRESS_PARTITION_H_
