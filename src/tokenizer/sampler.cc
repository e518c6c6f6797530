#include "tokenizer/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_set>

namespace milwright {
namespace {

/// A token that may be chosen, with its probability up to a common factor.
struct WeightedToken {
  double weight;
  int32_t id;

  /// Less probable, or as probable with a higher id.
  bool operator<(const WeightedToken& other) const {
    return weight != other.weight ? weight < other.weight : id > other.id;
  }
};

Status OutOfRange(std::string_view name, double value, std::string_view range) {
  return {ErrorCode::kUsage, fmt::format("{} is {}, but must be {}", name, value, range)};
}

}  // namespace

Result<Sampler> Sampler::Create(const SamplingOptions& options) {
  const auto within = [](double value, double low, double high) { return value >= low && value <= high; };
  if (!within(options.temperature, 0, 1e6)) return OutOfRange("temperature", options.temperature, "0 or more");
  if (options.top_k < 0) return OutOfRange("top_k", options.top_k, "0 or more");
  if (!(options.top_p > 0 && options.top_p <= 1)) return OutOfRange("top_p", options.top_p, "above 0 and at most 1");
  if (!within(options.min_p, 0, 1)) return OutOfRange("min_p", options.min_p, "from 0 to 1");
  if (!within(options.repetition_penalty, 1e-6, 1e6)) {
    return OutOfRange("repetition_penalty", options.repetition_penalty, "above 0");
  }
  return Sampler(options);
}

void Sampler::Penalize(std::span<const int32_t> ids) {
  if (options_.repetition_penalty == 1) return;
  const auto penalty = static_cast<float>(options_.repetition_penalty);
  const std::unordered_set<int32_t> seen(ids.begin(), ids.end());
  for (const int32_t id : seen) {
    if (id < 0 || static_cast<size_t>(id) >= logits_.size()) continue;
    float& logit = logits_[static_cast<size_t>(id)];
    logit = logit > 0 ? logit / penalty : logit * penalty;
  }
}

Result<int32_t> Sampler::Sample(std::span<const float> logits, std::span<const int32_t> ids) {
  logits_.assign(logits.begin(), logits.end());
  for (const LogitsProcessor& processor : processors_) MW_RETURN_IF_ERROR(processor(ids, logits_));
  Penalize(ids);
  size_t best = 0;
  for (size_t i = 0; i < logits_.size(); ++i) {
    if (std::isnan(logits_[i]) || logits_[i] == INFINITY) {
      return Status(ErrorCode::kRuntime, fmt::format("the logit of token {} is {}", i, logits_[i]));
    }
    if (logits_[i] > logits_[best]) best = i;
  }
  if (logits_.empty() || logits_[best] == -INFINITY) return Status(ErrorCode::kRuntime, "no token has a finite logit");
  if (options_.temperature == 0) return static_cast<int32_t>(best);
  return SampleFiltered(logits_[best]);
}

int32_t Sampler::SampleFiltered(float highest) {
  std::vector<WeightedToken> heap;
  heap.reserve(logits_.size());
  for (size_t i = 0; i < logits_.size(); ++i) {
    // Relative to the most probable token, whose weight is 1: what min_p compares with.
    const double weight = std::exp((double{logits_[i]} - highest) / options_.temperature);
    if (weight > 0) heap.push_back({weight, static_cast<int32_t>(i)});
  }
  if (options_.top_k > 0 && static_cast<size_t>(options_.top_k) < heap.size()) {
    const auto limit = static_cast<size_t>(options_.top_k);
    std::nth_element(heap.begin(), heap.begin() + static_cast<ptrdiff_t>(limit), heap.end(),
                     [](const WeightedToken& a, const WeightedToken& b) { return b < a; });
    heap.resize(limit);
  }
  // In the order of ids, so that the sum does not depend on how the library selects.
  std::sort(heap.begin(), heap.end(), [](const WeightedToken& a, const WeightedToken& b) { return a.id < b.id; });
  double total = 0;
  for (const WeightedToken& candidate : heap) total += candidate.weight;
  // Takes candidates from the most probable on, until top_p is reached or min_p is not.
  std::make_heap(heap.begin(), heap.end());
  std::vector<WeightedToken> kept;
  double kept_total = 0;
  auto end = heap.end();
  while (end != heap.begin() && (kept.empty() || options_.top_p == 1 || kept_total < options_.top_p * total)) {
    std::pop_heap(heap.begin(), end);
    --end;
    if (end->weight < options_.min_p) break;
    kept.push_back(*end);
    kept_total += end->weight;
  }
  double position = random_.NextUnit() * kept_total;
  for (const WeightedToken& candidate : kept) {
    position -= candidate.weight;
    if (position < 0) return candidate.id;
  }
  return kept.back().id;
}

}  // namespace milwright
