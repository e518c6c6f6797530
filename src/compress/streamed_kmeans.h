// One-dimensional k-means of values that are read in blocks, as often as need be: memory does not grow with their
// number.
#ifndef MILWRIGHT_COMPRESS_STREAMED_KMEANS_H_
#define MILWRIGHT_COMPRESS_STREAMED_KMEANS_H_

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "kernels/thread_pool.h"

namespace milwright::compress {

/// Fills `out` with the values from `begin` on, all finite. Called by several threads at once.
using ReadValues = std::function<void(size_t begin, std::span<float> out)>;

/// Centres of at most `k` clusters of `size` values (below 2^32), ascending.
///
/// Values are counted in bins, first by the upper 16 bits of a float, then in as many equal parts of each such bin as
/// it takes: the best split of the bins, each as a point at its exact mean, costs within 0.1 % of the least for the
/// values (by the bound in kmeans.cc, from the weight and the width that each bin turned out to have), unless that
/// takes more than five passes or 2^19 bins, which are as fine as that allows then: a range of 10^5 standard
/// deviations, say. Bins are counts and whole numbers, so that the result does not depend on the number of threads. 8
/// MB for each of up to four threads that count, and some 40 MB at the most for the split.
std::vector<float> StreamedKMeans1d(kernels::ThreadPool& pool, size_t size, const ReadValues& read, int k);

}  // namespace milwright::compress

#endif  // MILWRIGHT_COMPRESS_STREAMED_KMEANS_H_
