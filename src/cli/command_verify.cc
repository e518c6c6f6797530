#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/commands.h"
#include "cli/engine_options.h"
#include "cli/terminal.h"
#include "llm/verify.h"
#include "tokenizer/tokenizer.h"

namespace milwright::cli {
namespace {

using Json = nlohmann::ordered_json;

// A threshold that was asked for, and whether it holds.
struct Gate {
  std::string text;
  bool holds;
};

class Report {
 public:
  explicit Report(const VerifyArguments& arguments) : arguments_(arguments) {}

  void Add(std::string_view name, double value, std::string_view unit = "") {
    rows_.push_back({std::string(name), fmt::format("{:.6g}{}", value, unit)});
    json_[std::string(name)] = std::isfinite(value) ? Json(value) : Json(fmt::format("{}", value));
  }
  void Require(std::string_view name, double value, double limit, bool at_most) {
    if (limit < 0) return;
    const bool holds = at_most ? value <= limit : value >= limit;
    gates_.push_back(
        {fmt::format("{} {:.6g} must be {} {:.6g}", name, value, at_most ? "at most" : "at least", limit), holds});
  }
  void AddRows(const LogitComparison& comparison) {
    json_["rows"] = Json::array();
    for (const LogitRow& row : comparison.rows) {
      json_["rows"].push_back({{"max_error", row.max_error},
                               {"cosine", row.cosine},
                               {"kl", row.kl},
                               {"margin", row.margin},
                               {"reference_top", row.reference_top},
                               {"top", row.actual_top}});
    }
    if (!arguments_.per_step || arguments_.json) return;
    std::vector<std::vector<std::string>> table = {{"step", "max error", "cosine", "KL", "margin", "top", "expected"}};
    for (size_t i = 0; i < comparison.rows.size(); ++i) {
      const LogitRow& row = comparison.rows[i];
      table.push_back({std::to_string(i), fmt::format("{:.3g}", row.max_error), fmt::format("{:.6f}", row.cosine),
                       fmt::format("{:.3g}", row.kl), fmt::format("{:.3g}", row.margin), std::to_string(row.actual_top),
                       std::to_string(row.reference_top)});
    }
    std::cout << Table(table);
  }

  int Print() {
    bool passed = true;
    for (const Gate& gate : gates_) passed = passed && gate.holds;
    json_["passed"] = passed;
    if (arguments_.json) {
      for (const Gate& gate : gates_) json_["gates"].push_back({{"gate", gate.text}, {"holds", gate.holds}});
      std::cout << json_.dump(2) << "\n";
    } else {
      std::cout << Table(rows_);
      for (const Gate& gate : gates_) {
        std::cout << (gate.holds ? Styled("ok: ", Style::kGreen) : Styled("over: ", Style::kRed)) << gate.text << "\n";
      }
    }
    return passed ? kFine : kFindings;
  }

 private:
  const VerifyArguments& arguments_;
  std::vector<std::vector<std::string>> rows_;
  std::vector<Gate> gates_;
  Json json_ = Json::object();
};

Status CompareWith(const VerifyArguments& arguments, Pipeline& pipeline, Report& report) {
  GoldenLogits reference;
  if (!arguments.golden.empty()) {
    MW_ASSIGN_OR_RETURN(reference, ReadGoldenLogits(arguments.golden));
  } else {
    MW_ASSIGN_OR_RETURN(const auto other, Pipeline::Open(arguments.against, ReadEngineLoader(arguments.engine)));
    std::vector<std::vector<int64_t>> sequences = {{}};
    if (!arguments.tokens.empty()) {
      MW_ASSIGN_OR_RETURN(sequences, ReadTokenSequences(arguments.tokens));
    } else {
      // Any tokens do to compare two builds of one model: every seventh id, as many as half the context holds.
      for (int64_t i = 0; i < std::min<int64_t>(64, pipeline.manifest().context_length / 2); ++i) {
        sequences.front().push_back((i * 7 + 1) % pipeline.manifest().vocabulary);
      }
    }
    MW_ASSIGN_OR_RETURN(reference, RunLogits(*other, sequences.front()));
  }
  MW_ASSIGN_OR_RETURN(const GoldenLogits actual, RunLogits(pipeline, reference.tokens, arguments.step_by_step ? 1 : 0));
  const double allowed = arguments.atol >= 0 ? arguments.atol : 0;
  MW_ASSIGN_OR_RETURN(const LogitComparison comparison, CompareLogits(actual, reference, allowed, arguments.top_k));
  const auto rows = static_cast<double>(comparison.rows.size());
  report.AddRows(comparison);
  report.Add("positions", rows);
  report.Add("max error", comparison.max_error);
  report.Add("mean error", comparison.mean_error);
  report.Add("min cosine", comparison.min_cosine);
  report.Add("mean KL", comparison.mean_kl, " nats");
  report.Add("max KL", comparison.max_kl, " nats");
  report.Add("top-1 agreement", static_cast<double>(comparison.top_1_equal) / rows);
  report.Add(fmt::format("top-{} agreement", comparison.k), comparison.top_k_agreement);
  report.Require("max error", comparison.max_error, arguments.atol, true);
  if (arguments.atol >= 0) {
    report.Require("top-1 differing beyond twice the tolerance", static_cast<double>(comparison.top_1_wrong), 0, true);
  }
  report.Require("mean KL", comparison.mean_kl, arguments.max_kl, true);
  report.Require("min cosine", comparison.min_cosine, arguments.min_cosine, false);
  report.Require("top-1 agreement", static_cast<double>(comparison.top_1_equal) / rows, arguments.min_top_1, false);
  return Status::Ok();
}

Status Predict(const VerifyArguments& arguments, Pipeline& pipeline, Report& report) {
  std::vector<std::vector<int64_t>> sequences;
  if (!arguments.text.empty()) {
    std::ifstream file(arguments.text, std::ios::binary);
    if (!file) return {ErrorCode::kUnreadable, arguments.text + ": cannot be opened"};
    std::stringstream text;
    text << file.rdbuf();
    MW_ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::Load(arguments.path));
    MW_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, tokenizer.Encode(text.str(), false));
    // Windows as long as the context, each from a fresh start.
    const auto window = static_cast<size_t>(pipeline.manifest().context_length);
    for (size_t i = 0; i < ids.size(); i += window) {
      sequences.emplace_back(ids.begin() + static_cast<std::ptrdiff_t>(i),
                             ids.begin() + static_cast<std::ptrdiff_t>(std::min(i + window, ids.size())));
    }
  } else {
    MW_ASSIGN_OR_RETURN(sequences, ReadTokenSequences(arguments.tokens));
  }
  if (arguments.windows > 0 && sequences.size() > static_cast<size_t>(arguments.windows))
    sequences.resize(static_cast<size_t>(arguments.windows));
  MW_ASSIGN_OR_RETURN(const Perplexity perplexity, MeasurePerplexity(pipeline, sequences));
  report.Add("predictions", static_cast<double>(perplexity.predictions));
  report.Add("loss", perplexity.loss, " nats");
  report.Add("perplexity", perplexity.value());
  report.Require("perplexity", perplexity.value(), arguments.max_perplexity, true);
  return Status::Ok();
}

}  // namespace

int Verify(const VerifyArguments& arguments) {
  const bool compares = !arguments.golden.empty() || !arguments.against.empty();
  const bool predicts = !arguments.text.empty() || (!compares && !arguments.tokens.empty());
  if (!compares && !predicts) {
    return Fail(Status(ErrorCode::kUsage,
                       "say what to verify against: --golden FILE, --against DIR, --tokens FILE or --text FILE"));
  }
  const auto pipeline = Pipeline::Open(arguments.path, ReadEngineLoader(arguments.engine));
  if (!pipeline.ok()) return Fail(pipeline.status());
  Report report(arguments);
  if (compares) {
    if (const Status status = CompareWith(arguments, **pipeline, report); !status.ok()) return Fail(status);
  }
  if (predicts) {
    if (const Status status = Predict(arguments, **pipeline, report); !status.ok()) return Fail(status);
  }
  return report.Print();
}

}  // namespace milwright::cli
