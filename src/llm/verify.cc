#include "llm/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "format/npy.h"
#include "format/safetensors.h"

namespace milwright {
namespace {

Status Unreadable(const std::string& path, std::string_view what) {
  return {ErrorCode::kUnreadable, fmt::format("{}: {}", path, what)};
}

// The arrays of a golden file that matter here.
Result<std::map<std::string, Tensor>> ReadArrays(const std::string& path) {
  if (path.ends_with(".npz")) return ReadNpz(path);
  MW_ASSIGN_OR_RETURN(const Safetensors file, Safetensors::Open(path));
  std::map<std::string, Tensor> arrays;
  for (const char* name : {"input_ids", "gen_ids", "full_logits", "logits"}) {
    if (!file.Contains(name)) continue;
    MW_ASSIGN_OR_RETURN(Tensor tensor, file.Load(name));
    arrays.emplace(name, std::move(tensor));
  }
  return arrays;
}

int64_t ArgMax(std::span<const float> row) { return std::ranges::max_element(row) - row.begin(); }

std::vector<int64_t> BestK(std::span<const float> row, int64_t k) {
  std::vector<int64_t> ids(row.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto middle = ids.begin() + std::min<std::ptrdiff_t>(k, static_cast<std::ptrdiff_t>(ids.size()));
  std::partial_sort(ids.begin(), middle, ids.end(), [row](int64_t a, int64_t b) {
    const float x = row[static_cast<size_t>(a)];
    const float y = row[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  });
  ids.erase(middle, ids.end());
  return ids;
}

// log(sum(exp(row))), in double.
double LogSumExp(std::span<const float> row) {
  const double high = *std::ranges::max_element(row);
  double sum = 0;
  for (const float x : row) sum += std::exp(static_cast<double>(x) - high);
  return high + std::log(sum);
}

LogitRow CompareRow(std::span<const float> actual, std::span<const float> reference, int64_t k) {
  LogitRow row;
  const bool finite = std::ranges::none_of(actual, [](float x) { return std::isnan(x); });
  const double log_a = LogSumExp(actual);
  const double log_r = LogSumExp(reference);
  double dot = 0;
  double norm_a = 0;
  double norm_r = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double a = actual[i];
    const double r = reference[i];
    const double error = std::abs(a - r);
    row.max_error = std::max(row.max_error, error);
    row.mean_error += error / static_cast<double>(reference.size());
    dot += a * r;
    norm_a += a * a;
    norm_r += r * r;
    row.kl += std::exp(r - log_r) * ((r - log_r) - (a - log_a));
  }
  row.cosine = norm_a > 0 && norm_r > 0 ? dot / std::sqrt(norm_a * norm_r) : (norm_a == norm_r ? 1 : 0);
  const std::vector<int64_t> best = BestK(reference, std::max<int64_t>(k, 2));
  row.reference_top = best[0];
  row.margin = best.size() > 1 ? reference[static_cast<size_t>(best[0])] - reference[static_cast<size_t>(best[1])] : 0;
  row.actual_top = finite ? ArgMax(actual) : -1;
  if (!finite) {
    row.max_error = row.mean_error = row.kl = std::numeric_limits<double>::infinity();
    row.cosine = 0;
    return row;
  }
  const std::vector<int64_t> mine = BestK(actual, k);
  for (int64_t i = 0; i < k && i < static_cast<int64_t>(best.size()); ++i) {
    row.top_k_shared += std::ranges::count(mine, best[static_cast<size_t>(i)]);
  }
  return row;
}

}  // namespace

Result<GoldenLogits> ReadGoldenLogits(const std::string& path) {
  MW_ASSIGN_OR_RETURN(const auto arrays, ReadArrays(path));
  const auto find = [&arrays](const char* name) -> const Tensor* {
    const auto it = arrays.find(name);
    return it != arrays.end() ? &it->second : nullptr;
  };
  const Tensor* ids = find("input_ids");
  const Tensor* generated = find("gen_ids");
  const Tensor* full = find("full_logits");
  const Tensor* logits = full != nullptr ? full : find("logits");
  if (ids == nullptr || logits == nullptr) return Unreadable(path, "holds no input_ids with full_logits or logits");
  GoldenLogits golden;
  golden.tokens = ids->ToInts();
  if (full != nullptr && generated != nullptr)
    std::ranges::copy(generated->ToInts(), std::back_inserter(golden.tokens));
  const int64_t rows = logits->rank() >= 2 ? logits->size() / std::max<int64_t>(logits->shape().back(), 1) : 0;
  if (rows == 0 || rows != static_cast<int64_t>(golden.tokens.size())) {
    return Unreadable(path, fmt::format("has {} tokens, but {} rows of logits", golden.tokens.size(), rows));
  }
  golden.vocabulary = logits->shape().back();
  golden.logits = logits->ToFloats();
  return golden;
}

Result<GoldenLogits> RunLogits(Pipeline& pipeline, std::span<const int64_t> tokens, int64_t max_length) {
  MW_RETURN_IF_ERROR(pipeline.Reset());
  MW_ASSIGN_OR_RETURN(StepResult result, pipeline.Prefill(tokens, max_length));
  if (result.logit_rows != static_cast<int64_t>(tokens.size())) {
    return Status(
        ErrorCode::kPrecondition,
        fmt::format("the build gives logits for {} of {} tokens; verify needs them for every token: build with "
                    "--head logits, and run step by step where a function gives the last row only",
                    result.logit_rows, tokens.size()));
  }
  GoldenLogits logits;
  logits.tokens.assign(tokens.begin(), tokens.end());
  logits.vocabulary = static_cast<int64_t>(result.logits.size()) / std::max<int64_t>(result.logit_rows, 1);
  logits.logits = std::move(result.logits);
  return logits;
}

Result<LogitComparison> CompareLogits(const GoldenLogits& actual, const GoldenLogits& reference, double allowed_error,
                                      int64_t k) {
  if (actual.tokens != reference.tokens || actual.vocabulary != reference.vocabulary) {
    return Status(ErrorCode::kUsage,
                  fmt::format("{} tokens over a vocabulary of {} cannot be compared with {} over {}",
                              actual.tokens.size(), actual.vocabulary, reference.tokens.size(), reference.vocabulary));
  }
  LogitComparison result;
  result.k = k;
  const auto width = static_cast<size_t>(reference.vocabulary);
  for (size_t i = 0; i < reference.tokens.size(); ++i) {
    const LogitRow row = CompareRow(std::span(actual.logits).subspan(i * width, width),
                                    std::span(reference.logits).subspan(i * width, width), k);
    const auto count = static_cast<double>(reference.tokens.size());
    result.max_error = std::max(result.max_error, row.max_error);
    result.mean_error += row.mean_error / count;
    result.min_cosine = std::min(result.min_cosine, row.cosine);
    result.mean_kl += row.kl / count;
    result.max_kl = std::max(result.max_kl, row.kl);
    result.top_k_agreement +=
        static_cast<double>(row.top_k_shared) / static_cast<double>(std::min<int64_t>(k, reference.vocabulary)) / count;
    const bool equal = row.actual_top == row.reference_top;
    result.top_1_equal += equal ? 1 : 0;
    result.top_1_wrong += !equal && row.margin > 2 * allowed_error ? 1 : 0;
    result.rows.push_back(row);
  }
  return result;
}

double Perplexity::value() const { return std::exp(loss); }

Result<Perplexity> MeasurePerplexity(Pipeline& pipeline, const std::vector<std::vector<int64_t>>& sequences) {
  Perplexity result;
  double total = 0;
  for (const std::vector<int64_t>& sequence : sequences) {
    if (sequence.size() < 2) continue;
    MW_ASSIGN_OR_RETURN(const GoldenLogits logits, RunLogits(pipeline, std::span(sequence).first(sequence.size() - 1)));
    const auto width = static_cast<size_t>(logits.vocabulary);
    for (size_t i = 0; i + 1 < sequence.size(); ++i) {
      const auto row = std::span(logits.logits).subspan(i * width, width);
      const int64_t target = sequence[i + 1];
      if (target < 0 || target >= logits.vocabulary) {
        return Status(ErrorCode::kUsage,
                      fmt::format("token {} is outside the vocabulary of {}", target, logits.vocabulary));
      }
      total += LogSumExp(row) - row[static_cast<size_t>(target)];
      ++result.predictions;
    }
  }
  if (result.predictions == 0) return Status(ErrorCode::kUsage, "no sequence has two tokens");
  result.loss = total / static_cast<double>(result.predictions);
  return result;
}

Result<std::vector<std::vector<int64_t>>> ReadTokenSequences(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Unreadable(path, "cannot be opened");
  const nlohmann::json document = nlohmann::json::parse(file, nullptr, false);
  const auto is_ids = [](const nlohmann::json& array) {
    return array.is_array() &&
           std::ranges::all_of(array, [](const nlohmann::json& id) { return id.is_number_integer(); });
  };
  if (is_ids(document)) return std::vector<std::vector<int64_t>>{document.get<std::vector<int64_t>>()};
  if (!document.is_array() || !std::ranges::all_of(document, is_ids)) {
    return Unreadable(path, "is no JSON array of token ids, nor of such arrays");
  }
  return document.get<std::vector<std::vector<int64_t>>>();
}

}  // namespace milwright
