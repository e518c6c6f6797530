// Every component and option against expected values of the reference implementations. tests/oracles makes them, and
// scripts/oracles makes them afresh and compares; "versions" in the files tells of what.
#include <gtest/gtest.h>

#include "support.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace milwright {
namespace {

TEST(OracleTest, TokenizersEncodeDecodeAndStreamAsTheReference) {
  const nlohmann::json data = ReadJson(TokenizerData() / "oracle" / "tokenizers.json");
  const auto texts = data["texts"].get<std::vector<std::string>>();
  for (const auto& [name, expected] : data["tokenizers"].items()) {
    SCOPED_TRACE(name);
    const Tokenizer tokenizer = MakeTokenizer(expected["tokenizer"]);
    for (size_t i = 0; i < expected["ids"].size(); ++i) {
      SCOPED_TRACE(::testing::PrintToString(texts[i]));
      const auto ids = expected["ids"][i].get<std::vector<int32_t>>();
      const std::string index = std::to_string(i);
      const auto encoded = tokenizer.Encode(texts[i], /*add_special_tokens=*/false);
      ASSERT_TRUE(encoded.ok()) << encoded.status().message();
      EXPECT_EQ(*encoded, ids);
      const auto with_special = tokenizer.Encode(texts[i], /*add_special_tokens=*/true);
      ASSERT_TRUE(with_special.ok()) << with_special.status().message();
      EXPECT_EQ(*with_special, expected["with_special"].value(index, ids));
      const std::string decoded = expected["decoded"][i];
      EXPECT_EQ(Stream(tokenizer, ids, /*skip_special_tokens=*/false), decoded);
      const auto skipped = tokenizer.Decode(*with_special, /*skip_special_tokens=*/true);
      ASSERT_TRUE(skipped.ok()) << skipped.status().message();
      EXPECT_EQ(*skipped, expected["skipped"].value(index, decoded));
    }
  }
}

TEST(OracleTest, ChatTemplatesRenderAsTheReference) {
  const nlohmann::ordered_json data = ReadOrderedJson(TokenizerData() / "oracle" / "chats.json");
  int refused = 0;
  for (const auto& expected : data["renderings"]) {
    SCOPED_TRACE(expected["template"].dump() + " " + expected["chat"].dump() + " " + expected["variables"].dump());
    const std::filesystem::path file = TokenizerData() / "chat" / (expected["template"].get<std::string>() + ".jinja");
    const auto chat = ChatTemplate::FromSource(ReadText(file), "<s>", "</s>");
    ASSERT_TRUE(chat.ok()) << chat.status().message();
    ChatRequest request;
    request.messages = data["chats"][expected["chat"].get<std::string>()];
    request.extra = expected["variables"];
    request.now = std::tm{};
    request.now->tm_year = 124;
    request.now->tm_mon = 6;
    request.now->tm_mday = 26;
    const Result<std::string> text = chat->Render(request);
    if (expected.contains("text")) {
      ASSERT_TRUE(text.ok()) << text.status().message();
      EXPECT_EQ(*text, expected["text"].get<std::string>());
    } else {
      ++refused;
      ASSERT_FALSE(text.ok());
      EXPECT_EQ(text.status().code(), ErrorCode::kUsage);
      EXPECT_NE(text.status().message().find(expected["error"].get<std::string>()), std::string::npos)
          << text.status().message();
    }
  }
  EXPECT_EQ(refused, 22);
}

TEST(OracleTest, GoldenChatsRenderAndEncodeAsTheReference) {
  const auto chat = ChatTemplate::Load(TokenizerData());
  ASSERT_TRUE(chat.ok()) << chat.status().message();
  const auto tokenizer = Tokenizer::Load(TokenizerData());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  const nlohmann::ordered_json golden = ReadOrderedJson(TokenizerData() / "golden_chat.json");
  ASSERT_EQ(golden["cases"].size(), 6U);
  for (const auto& expected : golden["cases"]) {
    ChatRequest request;
    request.messages = expected["messages"];
    request.add_generation_prompt = expected["add_generation_prompt"];
    const Result<std::string> text = chat->Render(request);
    ASSERT_TRUE(text.ok()) << text.status().message();
    EXPECT_EQ(*text, expected["text"].get<std::string>());
    const auto ids = tokenizer->Encode(*text, /*add_special_tokens=*/false);
    ASSERT_TRUE(ids.ok()) << ids.status().message();
    EXPECT_EQ(*ids, expected["ids"].get<std::vector<int32_t>>());
  }
}

}  // namespace
}  // namespace milwright
