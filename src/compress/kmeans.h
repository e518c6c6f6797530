// One-dimensional k-means: the table of a palettized weight.
#ifndef MILWRIGHT_COMPRESS_KMEANS_H_
#define MILWRIGHT_COMPRESS_KMEANS_H_

#include <cstdint>
#include <span>
#include <vector>

namespace milwright {

/// Centres of at most `k` clusters of `values` (finite), ascending, whose sum of squared distances is within 0.1 % of
/// the least by proof: it is the least (up to the rounding of doubles and of the centres to floats) unless bins of
/// neighbours that are narrow enough for that bound number less than half of the different values, which they do where
/// these are many for so few centres. Then the best split at bins is refined to the values; on 16384 values (normal,
/// heavy tails, modes, gaps, outliers) that is measured to be the least, too. Fewer than k centres come back when there
/// are fewer different values. Sorts `values`.
std::vector<float> KMeans1d(std::vector<float>& values, int k);

/// The same for `values` that are ascending and different, each of which occurs `counts` times.
std::vector<float> KMeans1d(std::span<const float> values, std::span<const uint32_t> counts, int k);

struct Clusters {
  std::vector<float> centers;
  double cost = 0;   ///< sum of squared distances to the means that `centers` are rounded from
  double price = 0;  ///< about what one more centre would save
};

/// The best clusters, whatever the number of values: some 0.2 microseconds for each of them. The search starts at
/// `price`, unless that is 0.
Clusters OptimalClusters(std::span<const double> values, std::span<const double> weights, int k, double price = 0);

/// Sum of squared distances of `values` to the nearest of `centers` (ascending).
double ClusterError(std::span<const float> values, std::span<const float> centers);

/// The largest float at most halfway between neighbours of `centers` (ascending).
std::vector<float> Middles(std::span<const float> centers);

/// Index of the centre nearest to each value (the lower one of equals).
void NearestCenters(std::span<const float> values, std::span<const float> centers, std::span<uint8_t> indices);

}  // namespace milwright

#endif  // MILWRIGHT_COMPRESS_KMEANS_H_
