// Ends a stream of text at the first stop string, wherever the pieces of the stream are cut.
#ifndef MILWRIGHT_TOKENIZER_STOP_STRINGS_H_
#define MILWRIGHT_TOKENIZER_STOP_STRINGS_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "milwright/status.h"

namespace milwright {

/// An Aho-Corasick automaton: time linear in the text, whatever the stop strings.
class StopStrings {
 public:
  /// Fails for an empty string and for more than 8 KiB of stop strings.
  static Result<StopStrings> Create(const std::vector<std::string>& strings);

  /// Takes more text and returns what is certain to come before any stop string. The end of the text that may be the
  /// start of a stop string is held back; it starts at a whole character if the stop strings do. The stream ends at
  /// the stop string that is complete first (of several that end together, the longest); what follows is dropped.
  std::string Push(std::string_view text);

  /// Returns what is held back: there is no more text.
  std::string Finish();

  /// The index of the stop string that ended the stream.
  [[nodiscard]] std::optional<size_t> stopped() const { return stopped_; }

 private:
  struct State {
    std::array<int32_t, 256> next{};  ///< by byte
    size_t depth = 0;                 ///< how much of the text's end is the start of a stop string
    int32_t match = -1;               ///< the longest stop string that ends here
    size_t match_length = 0;
  };

  StopStrings() : states_(1) {}

  std::vector<State> states_;
  int32_t state_ = 0;
  std::string held_;
  std::optional<size_t> stopped_;
};

}  // namespace milwright

#endif  // MILWRIGHT_TOKENIZER_STOP_STRINGS_H_
