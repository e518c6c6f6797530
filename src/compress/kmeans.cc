#include "compress/kmeans.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

namespace milwright {
namespace {

// Up to so many points are split into k runs exactly; more go into half as many bins, or up to twice that.
size_t ExactPoints(int k) { return static_cast<size_t>(std::clamp(32 * k, 512, 2048)); }

// Weighted points with prefix sums: mean and gain of any run of them in constant time. Sums are taken around a value
// in range: no cancellation for tight clusters far from 0.
class Points {
 public:
  Points(size_t capacity, double reference) : reference_(reference) {
    weights_.reserve(capacity + 1);
    sums_.reserve(capacity + 1);
    weights_.push_back(0);
    sums_.push_back(0);
  }
  void Add(double value, double weight) {
    weights_.push_back(weights_.back() + weight);
    sums_.push_back(sums_.back() + weight * (value - reference_));
  }
  [[nodiscard]] size_t size() const { return weights_.size() - 1; }
  // By how much one centre for a run that is not empty lowers the sum of squares around the reference.
  [[nodiscard]] double Gain(size_t begin, size_t end) const {
    const double sum = sums_[end] - sums_[begin];
    return sum * sum / (weights_[end] - weights_[begin]);
  }
  [[nodiscard]] double Weight(size_t begin, size_t end) const { return weights_[end] - weights_[begin]; }
  [[nodiscard]] double Mean(size_t begin, size_t end) const {
    return reference_ + (sums_[end] - sums_[begin]) / Weight(begin, end);
  }

 private:
  double reference_;
  std::vector<double> weights_;
  std::vector<double> sums_;
};

// The best split of points [0, n) into k runs, none empty (k <= n), by divide and conquer: the best last cut grows with
// n (Wu 1991).
class Optimal {
 public:
  Optimal(const Points& points, int k)
      : points_(points),
        n_(points.size()),
        k_(static_cast<size_t>(k)),
        previous_(n_ + 1),
        current_(n_ + 1),
        cuts_(k_ * (n_ + 1)) {}

  std::vector<size_t> Cuts() {
    for (size_t end = 1; end <= n_; ++end) previous_[end] = points_.Gain(0, end);
    for (size_t cluster = 1; cluster < k_; ++cluster) {
      Fill(cuts_.data() + cluster * (n_ + 1), cluster + 1, n_, cluster, n_ - 1);
      std::swap(previous_, current_);
    }
    std::vector<size_t> ends(k_ + 1, n_);
    ends[0] = 0;
    for (size_t cluster = k_ - 1; cluster > 0; --cluster) {
      ends[cluster] = cuts_[cluster * (n_ + 1) + ends[cluster + 1]];
    }
    return ends;
  }

 private:
  // Finds the last cuts of the prefixes that end in [low, high], which lie in [from, to].
  void Fill(uint32_t* cut, size_t low, size_t high, size_t from, size_t to) {
    if (low > high) return;
    const size_t middle = (low + high) / 2;
    size_t best = from;
    double most = -1;
    for (size_t split = from; split <= std::min(middle - 1, to); ++split) {
      const double gain = previous_[split] + points_.Gain(split, middle);
      if (gain > most) {
        most = gain;
        best = split;
      }
    }
    current_[middle] = most;
    cut[middle] = static_cast<uint32_t>(best);
    if (middle > low) Fill(cut, low, middle - 1, from, best);
    Fill(cut, middle + 1, high, best, to);
  }

  const Points& points_;
  size_t n_;
  size_t k_;
  std::vector<double> previous_;
  std::vector<double> current_;
  std::vector<uint32_t> cuts_;
};

// The optimum of `values` put into bins, as bounds of runs of `values`. A bin ends when it holds its share of the
// points or spans its share of the range, so that neither a dense middle nor a gap between two modes is smeared.
std::vector<size_t> BinnedCuts(std::span<const float> values, const Points& exact, int k) {
  const size_t bins = ExactPoints(k) / 2;
  const size_t most = values.size() / bins + 1;
  const double widest = (static_cast<double>(values.back()) - values.front()) / static_cast<double>(bins);
  Points binned(2 * bins + 2, exact.Mean(0, values.size()));
  std::vector<size_t> starts;
  for (size_t begin = 0; begin < values.size();) {
    size_t end = begin + 1;
    const double last = values[begin] + widest;
    while (end < values.size() && end - begin < most && values[end] <= last) ++end;
    starts.push_back(begin);
    binned.Add(exact.Mean(begin, end), exact.Weight(begin, end));
    begin = end;
  }
  starts.push_back(values.size());
  std::vector<size_t> bounds;
  for (const size_t cut : Optimal(binned, k).Cuts()) bounds.push_back(starts[cut]);
  return bounds;
}

// Moves the cuts of a split to places nearby, all at once: a dynamic program over a few places for each cut, which are
// a step apart, again and again while the split gets better, then with smaller steps.
class Refiner {
 public:
  Refiner(const Points& points, std::vector<size_t>& bounds)
      : points_(points), bounds_(bounds), steps_((bounds.size() - 1) * kPlaces) {}

  void Run(size_t step) {
    for (step = std::max<size_t>(step, 1);; step /= 2) {
      for (int pass = 0; pass < kMaxPasses && Pass(step); ++pass) {
      }
      if (step == 1) return;
    }
  }

 private:
  static constexpr size_t kReach = 2;
  static constexpr size_t kPlaces = 2 * kReach + 1;
  static constexpr int kMaxPasses = 50;

  struct Step {
    size_t place = 0;
    double gain = -1;  ///< of the best split up to here; negative where there is none
    size_t before = 0;
  };

  // Whether any cut moved.
  bool Pass(size_t step) {
    const size_t k = bounds_.size() - 1;
    const size_t n = points_.size();
    for (size_t c = 1; c < k; ++c) {
      for (size_t j = 0; j < kPlaces; ++j) {
        Step& to = steps_[c * kPlaces + j];
        to = Step();
        to.place = bounds_[c] + j * step - kReach * step;  // below 0 wraps to beyond n
        if (to.place >= n || to.place == 0) continue;
        if (c == 1) {
          to.gain = points_.Gain(0, to.place);
          continue;
        }
        for (size_t i = 0; i < kPlaces; ++i) {
          const Step& from = steps_[(c - 1) * kPlaces + i];
          if (from.gain < 0 || from.place >= to.place) continue;
          const double gain = from.gain + points_.Gain(from.place, to.place);
          if (gain > to.gain) {
            to.gain = gain;
            to.before = i;
          }
        }
      }
    }
    double most = -1;
    size_t last = kReach;
    for (size_t i = 0; i < kPlaces; ++i) {
      const Step& from = steps_[(k - 1) * kPlaces + i];
      const double gain = from.gain < 0 ? -1 : from.gain + points_.Gain(from.place, n);
      if (gain > most) {
        most = gain;
        last = i;
      }
    }
    bool moved = false;
    for (size_t c = k - 1; c > 0; --c) {
      const Step& at = steps_[c * kPlaces + last];
      moved = moved || at.place != bounds_[c];
      bounds_[c] = at.place;
      last = at.before;
    }
    return moved && most > std::exchange(best_, most);
  }

  const Points& points_;
  std::vector<size_t>& bounds_;
  std::vector<Step> steps_;
  double best_ = -1;
};

// Sorts by the bit patterns, made to order like the values, in three passes of eleven bits.
void SortFloats(std::vector<float>& values) {
  constexpr size_t kFew = 512;
  if (values.size() < kFew) {
    std::ranges::sort(values);
    return;
  }
  constexpr uint32_t kSign = 1U << 31U;
  constexpr std::array<uint32_t, 3> kShifts = {0, 11, 22};
  constexpr uint32_t kDigits = 1U << 11U;
  std::array<std::vector<uint32_t>, kShifts.size()> starts;
  starts.fill(std::vector<uint32_t>(kDigits));
  std::vector<uint32_t> keys(values.size());
  std::vector<uint32_t> sorted(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const auto bits = std::bit_cast<uint32_t>(values[i]);
    keys[i] = (bits & kSign) != 0 ? ~bits : bits | kSign;
    for (size_t pass = 0; pass < kShifts.size(); ++pass) ++starts[pass][keys[i] >> kShifts[pass] & (kDigits - 1)];
  }
  for (size_t pass = 0; pass < kShifts.size(); ++pass) {
    uint32_t start = 0;
    for (uint32_t& count : starts[pass]) start += std::exchange(count, start);
    for (const uint32_t key : keys) sorted[starts[pass][key >> kShifts[pass] & (kDigits - 1)]++] = key;
    std::swap(keys, sorted);
  }
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = std::bit_cast<float>((keys[i] & kSign) != 0 ? keys[i] & ~kSign : ~keys[i]);
  }
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
  Points exact(values.size(), values[values.size() / 2]);
  for (size_t i = 0; i < values.size(); ++i) exact.Add(values[i], counts[i]);
  std::vector<size_t> bounds;
  if (values.size() <= ExactPoints(k)) {
    bounds = Optimal(exact, k).Cuts();
  } else {
    bounds = BinnedCuts(values, exact, k);
    Refiner(exact, bounds).Run(2 * values.size() / ExactPoints(k));
  }
  std::vector<float> centers;
  for (size_t c = 0; c + 1 < bounds.size(); ++c) {
    centers.push_back(static_cast<float>(exact.Mean(bounds[c], bounds[c + 1])));
  }
  return centers;
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
