// What the tests of the tokenizer layer share.
#ifndef MILWRIGHT_TESTS_TOKENIZER_SUPPORT_H_
#define MILWRIGHT_TESTS_TOKENIZER_SUPPORT_H_

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace milwright {

/// tests/data/tokenizer.
std::filesystem::path TokenizerData();

/// The content of the file; a test failure and "" if it cannot be read.
std::string ReadText(const std::filesystem::path& path);

/// The parsed file; a test failure and null if it cannot be read.
nlohmann::ordered_json ReadOrderedJson(const std::filesystem::path& path);
nlohmann::json ReadJson(const std::filesystem::path& path);

/// What a StreamDecoder gives for `ids`, put together; fails the test if a part is not whole characters.
std::string Stream(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, bool skip_special_tokens);

/// A tokenizer from JSON; fails the test if it does not load.
Tokenizer MakeTokenizer(const nlohmann::json& json);

}  // namespace milwright

#endif  // MILWRIGHT_TESTS_TOKENIZER_SUPPORT_H_
