// Sizes that the parts of one build must agree on.
#ifndef MILWRIGHT_LLM_AGREED_SIZES_H_
#define MILWRIGHT_LLM_AGREED_SIZES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "milwright/status.h"

namespace milwright {

/// Remembers each size with the place where it was first seen; a place that says otherwise is an error that names both.
class AgreedSizes {
 public:
  /// `name`: "context length"; `place`: "chunk_0.mlpackage (input 'causal_mask')".
  void Bind(std::string_view name, int64_t value, const std::string& place);
  [[nodiscard]] std::optional<int64_t> Find(std::string_view name) const;
  /// The first disagreement (kUnreadable), or ok.
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  struct Entry {
    int64_t value;
    std::string place;
  };
  std::map<std::string, Entry, std::less<>> entries_;
  Status status_;
};

}  // namespace milwright

#endif  // MILWRIGHT_LLM_AGREED_SIZES_H_
