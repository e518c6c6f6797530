#include "compress/streamed_kmeans.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "compress/elements.h"
#include "compress/kmeans.h"
#include "compress/ordered_bits.h"

namespace milwright::compress {
namespace {

constexpr uint32_t kLowBits = 16;
constexpr uint32_t kLows = 1U << kLowBits;
constexpr uint32_t kStems = 1U << (32 - kLowBits);  ///< values of the upper bits; their floats are equally far apart
constexpr size_t kMostBins = size_t{1} << 19;
constexpr int kMostPasses = 5;
constexpr int kCountingThreads = 4;
constexpr double kTolerance = 1e-3;
/// Parts are made finer than equally spread values need, since these are not.
constexpr double kMargin = 1.25;

// Values of the same upper bits, and of their lower bits.
struct Bin {
  uint32_t count = 0;
  uint16_t least = std::numeric_limits<uint16_t>::max();
  uint16_t most = 0;
  uint64_t sum = 0;

  void Add(uint32_t low) {
    ++count;
    sum += low;
    least = std::min(least, static_cast<uint16_t>(low));
    most = std::max(most, static_cast<uint16_t>(low));
  }
  void Add(const Bin& other) {
    count += other.count;
    sum += other.sum;
    least = std::min(least, other.least);
    most = std::max(most, other.most);
  }
};

// How finely each stem is divided, and where its bins begin.
struct Stem {
  uint32_t parts = 1;
  uint32_t begin = 0;
};

class Counter {
 public:
  Counter(kernels::ThreadPool& pool, size_t size, const ReadValues& read)
      : pool_(pool), size_(size), read_(read), stems_(kStems) {}

  // The clusters of the bins as they are divided now.
  std::vector<float> Run(int k) {
    double price = 0;
    for (int pass = 1;; ++pass) {
      Count();
      CollectPoints();
      const Clusters clusters = OptimalClusters(values_, weights_, k, price);
      price = clusters.price;
      const double limit =
          clusters.cost > 0 ? 2 * kTolerance / (1 + kTolerance) * clusters.cost / (highest_ - lowest_) : 0;
      if (pass == kMostPasses || !Divide(limit)) return clusters.centers;
    }
  }

 private:
  void Count() {
    bins_ = {};
    uint32_t bins = 0;
    for (Stem& stem : stems_) {
      stem.begin = bins;
      bins += stem.parts;
    }
    const size_t pieces = (size_ + kPiece - 1) / kPiece;
    CountPieces<std::vector<Bin>>(
        pool_, pieces,
        [&](size_t piece, std::vector<Bin>& own) {
          own.resize(bins);
          CountPiece(piece * kPiece, std::min((piece + 1) * kPiece, size_), own);
        },
        [&](std::vector<Bin>& own) {
          if (bins_.empty()) return bins_.swap(own);
          for (size_t i = 0; i < bins; ++i) bins_[i].Add(own[i]);
        },
        kCountingThreads);
  }

  void CountPiece(size_t begin, size_t end, std::vector<Bin>& bins) const {
    std::array<float, kBlock> values;
    for (size_t at = begin; at < end; at += kBlock) {
      const auto block = std::span(values).first(std::min(kBlock, end - at));
      read_(at, block);
      for (const float value : block) {
        const uint32_t key = OrderedBits(value + 0.0F);  // -0 is 0
        const Stem& stem = stems_[key >> kLowBits];
        const uint32_t low = key & (kLows - 1);
        bins[stem.begin + static_cast<uint32_t>(uint64_t{low} * stem.parts >> kLowBits)].Add(low);
      }
    }
  }

  static double First(uint32_t stem) { return FromOrderedBits(stem << kLowBits); }
  static double Step(uint32_t stem) { return FromOrderedBits(stem << kLowBits | 1U) - First(stem); }

  void CollectPoints() {
    values_.clear();
    weights_.clear();
    for (uint32_t s = 0; s < kStems; ++s) {
      const Stem& stem = stems_[s];
      for (uint32_t i = stem.begin; i < stem.begin + stem.parts; ++i) {
        const Bin& bin = bins_[i];
        if (bin.count == 0) continue;
        if (values_.empty()) lowest_ = First(s) + Step(s) * bin.least;
        highest_ = First(s) + Step(s) * bin.most;
        values_.push_back(First(s) + Step(s) * (static_cast<double>(bin.sum) / bin.count));
        weights_.push_back(bin.count);
      }
    }
  }

  // Divides the stems whose bins have a weight times width above `limit`; false if there are none, or no finer bins.
  bool Divide(double limit) {
    std::vector<double> wanted(kStems);
    double sum = 0;
    bool any = false;
    for (uint32_t s = 0; s < kStems; ++s) {
      const Stem& stem = stems_[s];
      double widest = 0;
      for (uint32_t i = stem.begin; i < stem.begin + stem.parts; ++i) {
        if (bins_[i].count > 0) widest = std::max(widest, bins_[i].count * Step(s) * (bins_[i].most - bins_[i].least));
      }
      any = any || widest > limit;
      const double finer = widest > limit ? kMargin * std::sqrt(widest / limit) : 1;  // both weight and width shrink
      wanted[s] = std::min<double>(kLows, std::ceil(stem.parts * finer));
      sum += wanted[s] - 1;
    }
    if (!any) return false;
    const double scale = std::min(1.0, static_cast<double>(kMostBins - kStems) / sum);
    bool finer = false;
    for (uint32_t s = 0; s < kStems; ++s) {
      const auto parts = static_cast<uint32_t>(1 + (wanted[s] - 1) * scale);
      finer = finer || parts > stems_[s].parts;
      stems_[s].parts = parts;
    }
    return finer;
  }

  kernels::ThreadPool& pool_;
  const size_t size_;
  const ReadValues& read_;
  std::vector<Stem> stems_;
  std::vector<Bin> bins_;
  std::vector<double> values_;  ///< of the bins that are not empty: mean and count
  std::vector<double> weights_;
  double lowest_ = 0;
  double highest_ = 0;
};

}  // namespace

std::vector<float> StreamedKMeans1d(kernels::ThreadPool& pool, size_t size, const ReadValues& read, int k) {
  return Counter(pool, size, read).Run(k);
}

}  // namespace milwright::compress
