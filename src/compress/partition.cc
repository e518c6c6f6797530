#include "compress/partition.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

namespace milwright::compress {
namespace {

// The best split into any number of runs at a price for each.
class PricedSplit {
 public:
  explicit PricedSplit(std::span<const Sums> places) : nodes_(places.size()), queue_(places.size()) {
    for (size_t i = 0; i < places.size(); ++i) nodes_[i] = {places[i].weight, places[i].values, 0, 0, 0};
    nodes_[0].best = -places[0].squares;
  }

  // Visits places in order. `queue_` holds the places a last run may start at, each with the first place from which on
  // it is better than those before it; where two change places once, as with concave Monge costs, that is a queue.
  void Solve(double price) {
    const size_t last = nodes_.size() - 1;
    size_t head = 0;
    size_t tail = 0;
    queue_[0] = {0, 1};
    for (size_t place = 1;; ++place) {
      while (head < tail && queue_[head + 1].first <= place) ++head;
      Node& node = nodes_[place];
      const Node& from = nodes_[queue_[head].start];
      node.best = BestFrom(from, node) + price;
      node.from = queue_[head].start;
      node.runs = from.runs + 1;
      if (place == last) return;
      for (;; --tail) {
        const Node& other = nodes_[queue_[tail].start];
        const size_t low = std::max<size_t>(queue_[tail].first, place + 1);
        if (!Better(node, other, nodes_[low])) {
          const size_t first = FirstBetter(node, other, low);
          if (first <= last) queue_[++tail] = {static_cast<uint32_t>(place), static_cast<uint32_t>(first)};
          break;
        }
        if (tail == head) {
          queue_[head] = {static_cast<uint32_t>(place), static_cast<uint32_t>(place + 1)};
          break;
        }
      }
    }
  }

  [[nodiscard]] size_t runs() const { return nodes_.back().runs; }

  [[nodiscard]] std::vector<uint32_t> Bounds() const {
    std::vector<uint32_t> bounds(runs() + 1);
    auto place = static_cast<uint32_t>(nodes_.size() - 1);
    for (size_t run = bounds.size(); run-- > 0; place = nodes_[place].from) bounds[run] = place;
    return bounds;
  }

 private:
  struct Node {
    double weight;
    double values;
    double best;  ///< of the points before the place: least cost with prices, less the sum of squares
    uint32_t from;
    uint32_t runs;
  };
  struct Start {
    uint32_t start;
    uint32_t first;
  };

  static double BestFrom(const Node& begin, const Node& end) {
    const double sum = end.values - begin.values;
    return begin.best - sum * sum / (end.weight - begin.weight);
  }
  static bool Better(const Node& one, const Node& other, const Node& end) {
    return BestFrom(one, end) < BestFrom(other, end);
  }

  // The first place after `low` to which a last run from `one` is better than one from `other`, which is better at
  // `low`; beyond the last when there is none. Mostly it is near.
  [[nodiscard]] size_t FirstBetter(const Node& one, const Node& other, size_t low) const {
    size_t high = low + 1;
    for (size_t step = 1; high < nodes_.size() && !Better(one, other, nodes_[high]); step *= 2) {
      low = high;
      high = low + 2 * step;
    }
    high = std::min(high, nodes_.size());
    while (high - low > 1) {
      const size_t middle = (low + high) / 2;
      (Better(one, other, nodes_[middle]) ? high : low) = middle;
    }
    return high;
  }

  std::vector<Node> nodes_;
  std::vector<Start> queue_;
};

// Finds the price for k runs between that of a split into fewer and that of one into more.
class PriceSearch {
 public:
  PriceSearch(std::span<const Sums> places, size_t k) : places_(places), k_(k), solver_(places) {}

  // The split into one run, the best whatever the price from some price on.
  [[nodiscard]] Partition Whole() const {
    Partition whole{{0, static_cast<uint32_t>(places_.size() - 1)}, 0, std::numeric_limits<double>::infinity()};
    whole.cost = CostOf(whole.bounds);
    return whole;
  }

  // The split into as many runs as there can be, the best for nothing.
  [[nodiscard]] Partition Pieces() const {
    Partition pieces{std::vector<uint32_t>(places_.size()), 0, 0};
    std::iota(pieces.bounds.begin(), pieces.bounds.end(), 0U);
    pieces.cost = CostOf(pieces.bounds);
    return pieces;
  }

  // For more than one run, and fewer than there can be.
  Partition Run(double price) {
    bool on_line = false;
    while (true) {
      Partition found = Solve(price);
      const size_t runs = Runs(found);
      if (runs == k_) return found;
      if (on_line && (runs >= Runs(*many_) || runs <= Runs(*few_))) return Join(price);
      std::optional<Partition>& end = runs > k_ ? many_ : few_;
      // Where a try comes no nearer, one at the line's price does, or there is no nearer one.
      const bool no_nearer = end && (runs > k_ ? runs >= Runs(*end) : runs <= Runs(*end));
      if (!no_nearer || runs == Runs(*end)) end = std::move(found);
      on_line = no_nearer && few_ && many_;
      price = on_line ? LinePrice() : NextPrice(price);
    }
  }

 private:
  static size_t Runs(const Partition& partition) { return partition.bounds.size() - 1; }

  [[nodiscard]] double CostOf(std::span<const uint32_t> bounds) const {
    double cost = 0;
    for (size_t i = 0; i + 1 < bounds.size(); ++i) cost += RunCost(places_[bounds[i]], places_[bounds[i + 1]]);
    return cost;
  }

  Partition Solve(double price) {
    solver_.Solve(price);
    Partition found{solver_.Bounds(), 0, price};
    found.cost = CostOf(found.bounds);
    return found;
  }

  // By the law that costs go with a power of the number of runs: -2 in a smooth density (Panter and Dite 1951), or that
  // of the two splits at hand.
  double NextPrice(double price) {
    const auto k = static_cast<double>(k_);
    if (!many_ && price == 0) many_ = Pieces();
    if (!few_ || !many_) {
      const Partition& end = few_ ? *few_ : *many_;
      const double runs = static_cast<double>(Runs(end)) / k;
      const double change = 2 * end.cost * runs * runs / k / price;
      // By the law, prices 3 / k apart give different numbers of runs: no smaller steps than a third of that.
      const double step = few_ ? std::min(1 - 1 / k, change) : std::max(1 + 1 / k, change);
      return price * std::pow(step, std::exchange(reach_, 2 * reach_));
    }
    if (many_->cost > 0 && few_->cost > many_->cost) {
      const auto few = static_cast<double>(Runs(*few_));
      const double power = std::log(few_->cost / many_->cost) / std::log(static_cast<double>(Runs(*many_)) / few);
      const double next = power / k * few_->cost * std::pow(few / k, power);
      if (next > many_->price && next < few_->price) return next;
    }
    return LinePrice();
  }

  // The price that makes both ends equal. Costs are convex: what is best for it lies between them or is as good.
  double LinePrice() {
    return std::max(0.0, few_->cost - many_->cost) / static_cast<double>(Runs(*many_) - Runs(*few_));
  }

  // A run a of the larger split that lies in a run b of the smaller one, with as many runs before it that following
  // `many_` up to a and `few_` after b makes k. There is one: counted so, the larger split starts no earlier than the
  // smaller one and ends earlier.
  [[nodiscard]] Partition Join(double price) const {
    const std::vector<uint32_t>& few = few_->bounds;
    const std::vector<uint32_t>& many = many_->bounds;
    const size_t more = k_ - Runs(*few_);
    size_t run = 0;
    while (many[run + 1 + more] >= few[run + 1]) ++run;
    Partition joined{{many.begin(), many.begin() + static_cast<std::ptrdiff_t>(run + more + 1)}, 0, price};
    joined.bounds.insert(joined.bounds.end(), few.begin() + static_cast<std::ptrdiff_t>(run + 1), few.end());
    joined.cost = CostOf(joined.bounds);
    return joined;
  }

  const std::span<const Sums> places_;
  const size_t k_;
  PricedSplit solver_;
  std::optional<Partition> few_;   ///< best split into fewer than k runs, the nearest so far
  std::optional<Partition> many_;  ///< and into more
  double reach_ = 1;
};

}  // namespace

double RunCost(const Sums& begin, const Sums& end) {
  const double sum = end.values - begin.values;
  return std::max(0.0, end.squares - begin.squares - sum * sum / (end.weight - begin.weight));
}

Partition BestPartition(std::span<const Sums> places, size_t k, double price) {
  PriceSearch search(places, k);
  if (k == 1) return search.Whole();
  if (k + 1 == places.size()) return search.Pieces();
  return search.Run(price);
}

}  // namespace milwright::compress
