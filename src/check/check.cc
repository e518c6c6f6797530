#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "check/rule.h"

namespace milwright {

namespace {

constexpr std::array<std::string_view, 4> kSeverities = {"off", "note", "warning", "error"};
constexpr std::array<std::string_view, 5> kConfidences = {"specification", "reproduced", "several reports",
                                                          "one report", "inference"};

Severity SeverityFor(const Rule& rule, const CheckOptions& options) {
  if (const auto it = options.overrides.find(rule.id); it != options.overrides.end()) return it->second;
  for (const auto& [prefix, severity] : rule.target_severities) {
    if (options.target.starts_with(prefix)) return severity;
  }
  return rule.severity;
}

}  // namespace

std::string_view SeverityName(Severity severity) { return kSeverities[static_cast<size_t>(severity)]; }

std::optional<Severity> SeverityFromName(std::string_view name) {
  const auto* it = std::ranges::find(kSeverities, name);
  return it != kSeverities.end() ? std::optional(static_cast<Severity>(it - kSeverities.begin())) : std::nullopt;
}

std::string_view ConfidenceName(Confidence confidence) { return kConfidences[static_cast<size_t>(confidence)]; }

ProgramFacts::ProgramFacts(const ModelSpec& model) : model(&model) {
  for (const auto& function : model.program.functions()) functions.emplace(function->name, AnalyzeStates(*function));
}

Finding& Reporter::Report(Location location, std::string message) {
  findings_.push_back({std::string(rule_.id), severity_, std::move(location), std::move(message), {}, {}});
  return findings_.back();
}

void Reporter::ProposeFix(Finding& finding, std::string_view passes, std::initializer_list<std::string> options) const {
  const auto fix = std::ranges::find(rule_.fixes, passes, &RuleFix::passes);
  if (fix == rule_.fixes.end()) return;
  std::string text;
  const auto* option = options.begin();
  while (!passes.empty()) {
    const size_t comma = std::min(passes.find(','), passes.size());
    text += fmt::format("{}{}", text.empty() ? "" : ",", passes.substr(0, comma));
    if (option != options.end()) text += "=" + *option++;
    passes.remove_prefix(std::min(comma + 1, passes.size()));
  }
  finding.fix = FixIt{std::move(text), fix->safe};
}

void ProposeInputOutput(const Reporter& reporter, Finding& finding, const StateFacts& state) {
  const std::string& name = state.state->name;
  const bool by_slot = std::ranges::any_of(state.writes, [](const StateWrite& write) {
    return write.slot_op != nullptr || write.form == UpdateForm::kStaticSlot;
  });
  const int64_t slots = by_slot && state.state->type.rank() > 0 ? state.state->type.shape().front() : 1;
  if (slots < 2) {
    reporter.ProposeFix(finding, kStateToIo.passes, {"states:" + name});
    return;
  }
  std::vector<std::string> names;
  for (int64_t slot = 0; slot < slots; ++slot) names.push_back(fmt::format("{}_{}", name, slot));
  const std::string joined = fmt::format("{}", fmt::join(names, "+"));
  reporter.ProposeFix(finding, kSplitStateToIo.passes,
                      {fmt::format("state:{};into:slot;names:{}", name, joined), "states:" + joined});
}

std::span<const Rule> AllRules() {
  static const std::vector<Rule> rules = [] {
    std::vector<Rule> all;
    for (const auto family :
         {FormatRules, StateRules, UpdateRules, ShapeRules, WeightRules, NumericsRules, PlacementRules}) {
      std::ranges::move(family(), std::back_inserter(all));
    }
    std::ranges::sort(all, {}, &Rule::id);
    return all;
  }();
  return rules;
}

const Rule* FindRule(std::string_view id_or_slug) {
  for (const Rule& rule : AllRules()) {
    if (rule.id == id_or_slug || rule.slug == id_or_slug) return &rule;
  }
  return nullptr;
}

std::string RulePage(const Rule& rule) {
  std::string page = fmt::format("# {} {}\n\n{}\n\n{}\n\n", rule.id, rule.slug, rule.summary, rule.explanation);
  page += fmt::format("- severity: {}\n", SeverityName(rule.severity));
  for (const auto& [target, severity] : rule.target_severities) {
    page += fmt::format("- severity for {}: {}\n", target, SeverityName(severity));
  }
  page += fmt::format("- confidence: {}\n", ConfidenceName(rule.confidence));
  const auto list = [&page](std::string_view title, const std::vector<std::string_view>& entries) {
    if (entries.empty()) return;
    page += fmt::format("- {}: {}\n", title, fmt::join(entries, ", "));
  };
  list("evidence for", rule.evidence_for);
  list("evidence against", rule.evidence_against);
  for (const RuleFix& fix : rule.fixes) {
    page += fmt::format("- fix: `{}`{}\n", fix.passes, fix.safe ? ", applied by `milwright check --fix`" : "");
  }
  if (!rule.known_as.empty()) page += fmt::format("- also known as: {}\n", rule.known_as);
  return page;
}

std::vector<Finding> CheckModel(const ModelSpec& model, const CheckOptions& options) {
  const ProgramFacts facts(model);
  std::vector<Finding> findings;
  for (const Rule& rule : AllRules()) {
    const Severity severity = SeverityFor(rule, options);
    if (severity == Severity::kOff) continue;
    Reporter reporter(rule, severity, findings);
    rule.check(facts, reporter);
  }
  std::ranges::stable_sort(findings, std::greater<>(), &Finding::severity);
  return findings;
}

}  // namespace milwright
