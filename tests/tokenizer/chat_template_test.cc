#include "tokenizer/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "support/files.h"

namespace milwright {
namespace {

using ::testing::HasSubstr;

/// A folder that goes with the test.
class Folder {
 public:
  Folder() : path_(folder_.Path()) { std::filesystem::create_directories(path_ / "additional_chat_templates"); }
  void Write(const std::string& name, std::string_view text) const { std::ofstream(path_ / name) << text; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  testing::TemporaryFolder folder_;
  std::filesystem::path path_;
};

ChatRequest OneMessage() {
  ChatRequest request;
  request.messages = {{{"role", "user"}, {"content", "hi"}}};
  return request;
}

std::string Rendered(const ChatTemplate& chat, const ChatRequest& request) {
  const Result<std::string> text = chat.Render(request);
  EXPECT_TRUE(text.ok()) << text.status().message();
  return text.ok() ? *text : "";
}

TEST(ChatTemplateTest, TakesTheTemplateOfTheConfigAndItsTokens) {
  const Folder folder;
  folder.Write("tokenizer_config.json",
               R"({"chat_template": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ pad_token }}",
                   "bos_token": "<s>", "eos_token": {"content": "</s>"}, "pad_token": null})");
  const auto chat = ChatTemplate::Load(folder.path());
  ASSERT_TRUE(chat.ok()) << chat.status().message();
  EXPECT_EQ(Rendered(*chat, OneMessage()), "<s>hi</s>");
}

TEST(ChatTemplateTest, TheFileBesideTheConfigWins) {
  const Folder folder;
  folder.Write("tokenizer_config.json", R"({"chat_template": "config"})");
  folder.Write("chat_template.jinja", "file {{ messages | length }}\n");
  const auto chat = ChatTemplate::Load(folder.path());
  ASSERT_TRUE(chat.ok()) << chat.status().message();
  EXPECT_EQ(Rendered(*chat, OneMessage()), "file 1");
}

TEST(ChatTemplateTest, ChoosesAmongNamedTemplates) {
  const Folder folder;
  folder.Write("tokenizer_config.json",
               R"({"chat_template": [{"name": "default", "template": "plain"},
                                     {"name": "tool_use", "template": "tools {{ tools | length }}"}]})");
  folder.Write("additional_chat_templates/rag.jinja", "rag {{ documents[0] }}");
  const auto chat = ChatTemplate::Load(folder.path());
  ASSERT_TRUE(chat.ok()) << chat.status().message();
  ChatRequest request = OneMessage();
  EXPECT_EQ(Rendered(*chat, request), "plain");
  request.tools = {{{"type", "function"}}};
  EXPECT_EQ(Rendered(*chat, request), "tools 1");
  request.template_name = "rag";
  request.extra = {{"documents", {"d"}}};
  EXPECT_EQ(Rendered(*chat, request), "rag d");
  request.template_name = "none";
  EXPECT_THAT(chat->Render(request).status().message(), HasSubstr("there are: default, rag, tool_use"));
}

TEST(ChatTemplateTest, ErrorsNameTheFileOfTheTemplate) {
  const Folder folder;
  EXPECT_THAT(ChatTemplate::Load(folder.path()).status().message(), HasSubstr("has no chat template"));
  folder.Write("chat_template.jinja", "\n{% if %}");
  EXPECT_THAT(ChatTemplate::Load(folder.path()).status().message(), HasSubstr("chat_template.jinja: line 2"));
  folder.Write("chat_template.jinja", "ok");
  folder.Write("tokenizer_config.json", R"({"chat_template": 5})");
  EXPECT_THAT(ChatTemplate::Load(folder.path()).status().message(), HasSubstr("chat_template must be a string"));
  folder.Write("tokenizer_config.json", R"({"chat_template": [{"name": "x"}]})");
  EXPECT_THAT(ChatTemplate::Load(folder.path()).status().message(), HasSubstr("chat_template[0] has no \"template\""));
}

TEST(ChatTemplateTest, RequestsMustBeSane) {
  const auto chat = ChatTemplate::FromSource("{{ messages[0].content }}{{ add_generation_prompt }}", "", "");
  ASSERT_TRUE(chat.ok());
  ChatRequest request = OneMessage();
  request.add_generation_prompt = false;
  EXPECT_EQ(Rendered(*chat, request), "hiFalse");
  request.messages = "text";
  EXPECT_EQ(chat->Render(request).status().code(), ErrorCode::kUsage);
  request = OneMessage();
  request.extra = 1;
  EXPECT_EQ(chat->Render(request).status().code(), ErrorCode::kUsage);
}

}  // namespace
}  // namespace milwright
