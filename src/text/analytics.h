// Analytics: the segmenter's `analytics.mil`, which records for each operation of a compiled model which compute
// backends can run it, what each is estimated to take, and which was chosen (docs/mil-text.md, "analytics.mil").
#ifndef MILWRIGHT_TEXT_ANALYTICS_H_
#define MILWRIGHT_TEXT_ANALYTICS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "milwright/status.h"

namespace milwright {

/// A value bound to a parameter: a name, or a literal as it stands in the text.
struct AnalyticsArgument {
  std::string parameter;
  std::vector<std::string> values;
  bool operator==(const AnalyticsArgument&) const = default;
};

struct AnalyticsResult {
  std::string type;  ///< as written, e.g. "tensor<fp16, [1, 64]>" or a tensor_buffer with strides
  std::string name;
  bool operator==(const AnalyticsResult&) const = default;
};

/// One operation and what the segmenter says of it.
struct AnalyticsOperation {
  std::string type;
  std::string opset;  ///< of an op that carries one of its own ("ios17" in `cast<ios17>(...)`); else empty
  std::string name;   ///< attribute `name`; empty for operations the segmenter added
  std::optional<uint64_t> mil_id;
  std::vector<AnalyticsResult> results;
  std::vector<AnalyticsArgument> arguments;
  std::string selected_backend;
  std::vector<std::string> supported_backends;            ///< BackendSupport without its "unsupported" slots
  std::vector<std::string> backend_support;               ///< BackendSupport as written: one slot per backend
  std::map<std::string, double> estimated_runtime_ms;     ///< by backend
  std::map<std::string, std::string> validation_message;  ///< by backend: why it cannot run the operation
  std::map<std::string, std::string> other_attributes;    ///< any other attribute, as written
};

/// One function: the costs of starting a backend and of passing from one to another, and its operations in order
/// (those of nested blocks behind the operation that holds them).
struct AnalyticsFunction {
  std::string name;
  std::string opset;
  std::vector<AnalyticsResult> inputs;
  std::vector<std::string> outputs;
  std::map<std::string, double> launch_ms;                              ///< Launch_B_ms by backend B
  std::map<std::pair<std::string, std::string>, double> transition_ms;  ///< Src_A_Dest_B_ms by (A, B)
  std::map<std::string, std::string> other_attributes;
  std::vector<AnalyticsOperation> operations;
};

struct Analytics {
  std::string program_version;  ///< "1.3"
  std::map<std::string, std::string> build_info;
  std::vector<AnalyticsFunction> functions;

  [[nodiscard]] const AnalyticsFunction* Find(std::string_view function) const;
};

/// Reads `analytics.mil`. Lenient: unknown types and attributes are kept as text; only text that is no MIL at all, or
/// is cut short, is an error (kUnreadable, with line, column and caret as ParseProgram gives them).
Result<Analytics> ParseAnalytics(std::string_view text, std::string_view file_name = {});

}  // namespace milwright

#endif  // MILWRIGHT_TEXT_ANALYTICS_H_
