#include "check/placement/segmenter.h"

#include <algorithm>
#include <limits>
#include <set>

namespace milwright {
namespace {

// Sums that differ by less are equal: the figures have at most nine digits behind the point.
constexpr double kEqualUs = 1e-6;

constexpr std::string_view kAne = "ane";

// The cheapest way to have the operations so far placed, with the last one on some backend.
struct Path {
  double us = std::numeric_limits<double>::infinity();
  size_t changes = 0;
  size_t previous = 0;  ///< backend of the operation before
  bool tied = false;
};

// Puts `candidate` in the place of `best` when it is better; remembers when they cost the same.
void Improve(Path* best, Path candidate) {
  const double difference = candidate.us - best->us;
  if (difference > kEqualUs) return;
  const bool equal = difference >= -kEqualUs;  // never so for the first candidate: it is compared with infinity
  if (equal && candidate.changes >= best->changes) {
    best->tied = true;
    return;
  }
  candidate.tied = candidate.tied || equal;
  *best = candidate;
}

bool HasBackend(const BackendTimes& times) {
  return std::ranges::any_of(times, [](const auto& time) { return time.has_value(); });
}

// One row of the shortest path: `operation` on each backend, after each backend of the row before.
std::vector<Path> Extend(const std::vector<Path>& before, const BackendTimes& operation, const BackendCosts& costs) {
  std::vector<Path> row(operation.size());
  for (size_t to = 0; to < operation.size(); ++to) {
    if (!operation[to].has_value()) continue;
    if (before.empty()) {
      row[to].us = costs.launch_us[to] + *operation[to];
      continue;
    }
    for (size_t from = 0; from < before.size(); ++from) {
      if (before[from].us == std::numeric_limits<double>::infinity()) continue;
      const bool changes = from != to;
      const double change_us = changes ? costs.transition_us[from][to] + costs.launch_us[to] : 0;
      Improve(&row[to], {before[from].us + change_us + *operation[to], before[from].changes + (changes ? 1 : 0), from,
                         before[from].tied});
    }
  }
  return row;
}

// Gives operations without a backend that of their neighbour.
void FillGaps(std::vector<std::optional<size_t>>* backends) {
  const auto first = std::ranges::find_if(*backends, [](const auto& backend) { return backend.has_value(); });
  if (first == backends->end()) return;
  std::optional<size_t> last = *first;
  for (std::optional<size_t>& backend : *backends) {
    if (!backend.has_value()) backend = last;
    last = backend;
  }
}

}  // namespace

const BackendCosts& CpuAndAneCosts() {
  static const BackendCosts costs = {
      {"cpu", "ane"}, {0, kLaunchAneUs}, {{0, kChangeBackendUs}, {kChangeBackendUs, 0}}, {0, kOutputOnAneUs}};
  return costs;
}

Segmentation Segment(std::span<const BackendTimes> operations, const BackendCosts& costs) {
  Segmentation result;
  result.backends.resize(operations.size());
  std::vector<size_t> placed;  // the operations that some backend takes
  std::vector<std::vector<Path>> rows;
  for (size_t i = 0; i < operations.size(); ++i) {
    if (!HasBackend(operations[i])) continue;
    rows.push_back(Extend(rows.empty() ? std::vector<Path>() : rows.back(), operations[i], costs));
    placed.push_back(i);
  }
  if (rows.empty()) return result;

  Path end;
  for (size_t backend = 0; backend < rows.back().size(); ++backend) {
    Path path = rows.back()[backend];
    if (path.us == std::numeric_limits<double>::infinity()) continue;
    path.us += costs.output_us[backend];
    path.previous = backend;
    Improve(&end, path);
  }
  result.total_us = end.us;
  result.tied = end.tied;
  size_t backend = end.previous;
  for (size_t i = rows.size(); i-- > 0;) {
    result.backends[placed[i]] = backend;
    backend = rows[i][backend].previous;
  }
  FillGaps(&result.backends);
  return result;
}

AnalyticsSegmentation Segment(const AnalyticsFunction& function) {
  constexpr double kUsPerMs = 1000;
  // In the two published files bnns and classic_cpu tie once, and classic_cpu is chosen; ANE last: it has to be
  // cheaper.
  std::set<std::string> named;
  for (const auto& [backend, ms] : function.launch_ms) named.insert(backend);
  for (const AnalyticsOperation& op : function.operations) {
    for (const auto& [backend, ms] : op.estimated_runtime_ms) named.insert(backend);
  }
  BackendCosts costs;
  costs.names.assign(named.rbegin(), named.rend());
  const auto first = [&](auto is) { std::stable_partition(costs.names.begin(), costs.names.end(), is); };
  first([](const std::string& name) { return name == "classic_cpu"; });
  first([](const std::string& name) { return name != kAne; });

  const auto transition = [&function](const std::string& from, const std::string& to) {
    const auto found = function.transition_ms.find({from, to});
    return found == function.transition_ms.end() ? 0 : found->second * kUsPerMs;
  };
  for (const std::string& from : costs.names) {
    const auto launch = function.launch_ms.find(from);
    costs.launch_us.push_back(launch == function.launch_ms.end() ? 0 : launch->second * kUsPerMs);
    // The host takes the output on the CPU: from the ANE that is one more change.
    costs.output_us.push_back(from == kAne ? transition(from, "classic_cpu") : 0);
    std::vector<double>& row = costs.transition_us.emplace_back();
    for (const std::string& to : costs.names) row.push_back(from == to ? 0 : transition(from, to));
  }

  std::vector<BackendTimes> operations;
  for (const AnalyticsOperation& op : function.operations) {
    BackendTimes& times = operations.emplace_back(costs.names.size());
    for (size_t i = 0; i < costs.names.size(); ++i) {
      const auto found = op.estimated_runtime_ms.find(costs.names[i]);
      if (found != op.estimated_runtime_ms.end()) times[i] = found->second * kUsPerMs;
    }
  }
  const Segmentation segmentation = Segment(operations, costs);
  AnalyticsSegmentation result{{}, segmentation.total_us, segmentation.tied};
  for (const std::optional<size_t>& backend : segmentation.backends) {
    result.backends.push_back(backend.has_value() ? costs.names[*backend] : std::string());
  }
  return result;
}

}  // namespace milwright
