#include "support.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>

#include "tokenizer/unicode.h"

namespace milwright {

std::filesystem::path TokenizerData() { return std::filesystem::path(MILWRIGHT_TEST_DATA) / "tokenizer"; }

std::string ReadText(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

nlohmann::ordered_json ReadOrderedJson(const std::filesystem::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  return nlohmann::ordered_json::parse(file);
}

nlohmann::json ReadJson(const std::filesystem::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  return nlohmann::json::parse(file);
}

std::string Stream(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, bool skip_special_tokens) {
  StreamDecoder decoder(tokenizer, skip_special_tokens);
  std::string text;
  const auto take = [&](const Result<std::string>& part) {
    EXPECT_TRUE(part.ok()) << part.status().message();
    EXPECT_FALSE(FindInvalidUtf8(*part)) << ::testing::PrintToString(*part);
    text += *part;
  };
  for (const int32_t id : ids) take(decoder.Push(id));
  take(decoder.Finish());
  return text;
}

Tokenizer MakeTokenizer(const nlohmann::json& json) {
  Result<Tokenizer> tokenizer = Tokenizer::FromJson(json.dump(), "tokenizer.json");
  if (!tokenizer.ok()) {
    std::cerr << tokenizer.status().message() << '\n';
    std::abort();
  }
  return *std::move(tokenizer);
}

}  // namespace milwright
