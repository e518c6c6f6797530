#include "compress/kmeans.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace milwright {
namespace {

constexpr size_t kExactPoints = 2048;
constexpr int kMaxIterations = 50;

// Weighted points with prefix sums: the error of any run of them in constant time.
class Points {
 public:
  void Add(double value, double weight) {
    if (weights_.size() == 1)
      reference_ = value;  // sums around a value in range: no cancellation for tight clusters far from 0
    const double x = value - reference_;
    weights_.push_back(weights_.back() + weight);
    sums_.push_back(sums_.back() + weight * x);
    squares_.push_back(squares_.back() + weight * x * x);
  }
  [[nodiscard]] size_t size() const { return weights_.size() - 1; }
  [[nodiscard]] double Error(size_t begin, size_t end) const {
    const double weight = weights_[end] - weights_[begin];
    if (weight <= 0) return 0;
    const double sum = sums_[end] - sums_[begin];
    return std::max(0.0, squares_[end] - squares_[begin] - sum * sum / weight);
  }
  [[nodiscard]] double Weight(size_t begin, size_t end) const { return weights_[end] - weights_[begin]; }
  [[nodiscard]] double Mean(size_t begin, size_t end) const {
    const double weight = weights_[end] - weights_[begin];
    return weight > 0 ? reference_ + (sums_[end] - sums_[begin]) / weight : reference_;
  }

 private:
  double reference_ = 0;
  std::vector<double> weights_ = {0};
  std::vector<double> sums_ = {0};
  std::vector<double> squares_ = {0};
};

// The best split of points [0, n) into k runs, by divide and conquer: the best last cut grows with n (Wu 1991).
class Optimal {
 public:
  Optimal(const Points& points, int k) : points_(points), n_(points.size()), k_(k) {}

  std::vector<size_t> Cuts() {
    std::vector<double> previous(n_ + 1);
    for (size_t end = 0; end <= n_; ++end) previous[end] = points_.Error(0, end);
    cuts_.assign(static_cast<size_t>(k_), std::vector<uint32_t>(n_ + 1, 0));
    for (int cluster = 1; cluster < k_; ++cluster) {
      std::vector<double> current(n_ + 1, std::numeric_limits<double>::infinity());
      Fill(previous, current, cuts_[static_cast<size_t>(cluster)], 1, n_, 0, n_);
      current[0] = 0;
      previous = std::move(current);
    }
    std::vector<size_t> ends(static_cast<size_t>(k_) + 1, n_);
    for (int cluster = k_ - 1; cluster >= 0; --cluster) {
      const auto i = static_cast<size_t>(cluster);
      ends[i] = cluster == 0 ? 0 : cuts_[i][ends[i + 1]];
    }
    return ends;
  }

 private:
  void Fill(const std::vector<double>& previous, std::vector<double>& current, std::vector<uint32_t>& cut, size_t low,
            size_t high, size_t from, size_t to) const {
    if (low > high) return;
    const size_t middle = (low + high) / 2;
    size_t best = from;
    for (size_t split = from; split <= std::min(middle, to); ++split) {
      const double error = previous[split] + points_.Error(split, middle);
      if (error < current[middle]) {
        current[middle] = error;
        best = split;
      }
    }
    cut[middle] = static_cast<uint32_t>(best);
    if (middle > low) Fill(previous, current, cut, low, middle - 1, from, best);
    Fill(previous, current, cut, middle + 1, high, best, to);
  }

  const Points& points_;
  size_t n_;
  int k_;
  std::vector<std::vector<uint32_t>> cuts_;
};

}  // namespace

std::vector<float> KMeans1d(std::vector<float>& values, int k) {
  std::ranges::sort(values);
  std::vector<float> distinct;
  Points exact;
  for (size_t i = 0; i < values.size();) {
    size_t end = i;
    while (end < values.size() && values[end] == values[i]) ++end;
    distinct.push_back(values[i]);
    exact.Add(values[i], static_cast<double>(end - i));
    i = end;
  }
  if (distinct.size() <= static_cast<size_t>(k)) return distinct;
  const bool small = distinct.size() <= kExactPoints;
  // Start: the optimum over the points themselves, or over equally many points in each of 2048 bins.
  std::vector<size_t> bounds;
  if (!small) {
    // A bin ends when it holds its share of the points or spans its share of the range, so that neither a dense middle
    // nor a gap between two modes is smeared.
    const size_t most = distinct.size() / (kExactPoints / 2) + 1;
    const double widest = (static_cast<double>(distinct.back()) - distinct.front()) / (kExactPoints / 2);
    Points binned;
    std::vector<size_t> starts;
    for (size_t begin = 0; begin < distinct.size();) {
      size_t end = begin + 1;
      while (end < distinct.size() && end - begin < most &&
             static_cast<double>(distinct[end]) - distinct[begin] <= widest)
        ++end;
      starts.push_back(begin);
      binned.Add(exact.Mean(begin, end), exact.Weight(begin, end));
      begin = end;
    }
    starts.push_back(distinct.size());
    for (const size_t cut : Optimal(binned, k).Cuts()) bounds.push_back(starts[cut]);
  } else {
    bounds = Optimal(exact, k).Cuts();
  }
  std::vector<float> centers;
  const auto recompute = [&] {
    centers.clear();
    for (size_t c = 0; c + 1 < bounds.size(); ++c) {
      if (bounds[c + 1] > bounds[c]) centers.push_back(static_cast<float>(exact.Mean(bounds[c], bounds[c + 1])));
    }
  };
  recompute();
  for (int iteration = 0; !small && iteration < kMaxIterations; ++iteration) {
    std::vector<size_t> next = {0};
    for (size_t c = 0; c + 1 < centers.size(); ++c) {
      const float middle = (centers[c] + centers[c + 1]) / 2;
      next.push_back(static_cast<size_t>(std::ranges::upper_bound(distinct, middle) - distinct.begin()));
    }
    next.push_back(distinct.size());
    if (next == bounds) break;
    bounds = std::move(next);
    recompute();
  }
  return centers;
}

void NearestCenters(std::span<const float> values, std::span<const float> centers, std::span<uint8_t> indices) {
  std::vector<float> middles;
  for (size_t c = 0; c + 1 < centers.size(); ++c) middles.push_back((centers[c] + centers[c + 1]) / 2);
  for (size_t i = 0; i < values.size(); ++i) {
    indices[i] = static_cast<uint8_t>(std::ranges::lower_bound(middles, values[i]) - middles.begin());
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
