// Rotary position embedding: frequencies of every scaling type, tables, and three-dimensional positions.
#ifndef MILWRIGHT_LLM_ROPE_H_
#define MILWRIGHT_LLM_ROPE_H_

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "llm/config_reader.h"
#include "llm/model_plan.h"

namespace milwright {

/// Where the parameters of a table stand. Published configs say `rope_theta` + `rope_scaling`; transformers 5 writes
/// `rope_parameters`, per layer kind in some families.
struct RopeRequest {
  std::string_view name;                          ///< RopeTable::name
  std::string_view kind;                          ///< sub-object of rope_parameters ("full_attention"); empty: none
  std::string_view theta_key = "rope_theta";      ///< old spelling
  std::string_view scaling_key = "rope_scaling";  ///< old spelling; empty: never scaled
  int64_t head_size = 0;
  int64_t context_length = 0;  ///< of the build: longrope takes one list of factors by it
  int64_t max_positions = 0;
};

/// Reads one table. Types: default, linear, llama3, longrope, proportional (families.md, sections 0 and 9); others are
/// errors. Errors go to `config`.
RopeTable ReadRope(ConfigReader& config, const RopeRequest& request);

/// Angles in double, cosine and sine rounded to float: `position` in the three dimensions of M-RoPE (equal for text).
/// Each gets rotary_size() values: the halves are equal.
void RopeRow(const RopeTable& table, const std::array<int64_t, 3>& position, std::vector<float>& cosine,
             std::vector<float>& sine);

/// Which of the three positions frequency `i` uses: 0 temporal, 1 height, 2 width (families.md, section 5).
int MropeAxis(const RopeTable& table, size_t i);

}  // namespace milwright

#endif  // MILWRIGHT_LLM_ROPE_H_
