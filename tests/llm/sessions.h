// Sessions over folders built for tests, and greedy decoding against golden ids.
#ifndef MILWRIGHT_TESTS_LLM_SESSIONS_H_
#define MILWRIGHT_TESTS_LLM_SESSIONS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "golden.h"
#include "llm/session.h"

namespace milwright::testing {

inline nlohmann::json ReadJson(const std::string& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file, nullptr, false);
}

inline std::unique_ptr<Session> OpenSession(const std::string& folder, const EngineLoader& loader = ReferenceEngine()) {
  auto pipeline = Pipeline::Open(folder, loader);
  EXPECT_TRUE(pipeline.ok()) << pipeline.status().message();
  return pipeline.ok() ? std::make_unique<Session>(*std::move(pipeline)) : nullptr;
}

inline std::vector<float> LastRow(const StepResult& step) {
  const size_t width = step.logits.size() / static_cast<size_t>(step.logit_rows);
  return {step.logits.end() - static_cast<std::ptrdiff_t>(width), step.logits.end()};
}

inline int64_t ArgMax(const std::vector<float>& row) { return std::max_element(row.begin(), row.end()) - row.begin(); }

/// Greedy ids while each step's golden margin is at least `margin`; how many were compared, or -1 at a difference.
inline int64_t CompareGreedy(Session& session, const std::vector<int64_t>& prompt, const std::vector<int64_t>& wanted,
                             const std::vector<double>& margins, double margin) {
  auto step = session.SetPrompt(prompt);
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!step.ok()) return -1;
    if (margins[i] < margin) return static_cast<int64_t>(i);
    if (ArgMax(LastRow(*step)) != wanted[i]) return -1;
    step = session.Append(wanted[i]);
  }
  return static_cast<int64_t>(wanted.size());
}

}  // namespace milwright::testing

#endif  // MILWRIGHT_TESTS_LLM_SESSIONS_H_
