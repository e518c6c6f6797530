#include "tokenizer/stop_strings.h"

#include <gtest/gtest.h>

#include <random>

namespace milwright {
namespace {

StopStrings MakeStops(const std::vector<std::string>& strings) {
  Result<StopStrings> stops = StopStrings::Create(strings);
  EXPECT_TRUE(stops.ok()) << stops.status().message();
  return *std::move(stops);
}

TEST(StopStringsTest, HoldsBackWhatMayBeAStop) {
  StopStrings stops = MakeStops({"</s>", "\n\n"});
  EXPECT_EQ(stops.Push("Hello <"), "Hello ");
  EXPECT_EQ(stops.Push("b>\n"), "<b>");
  EXPECT_EQ(stops.Push("x</"), "\nx");
  EXPECT_EQ(stops.Push("s"), "");
  EXPECT_FALSE(stops.stopped());
  EXPECT_EQ(stops.Push("> more"), "");
  EXPECT_EQ(stops.stopped(), 0U);
  EXPECT_EQ(stops.Push("ignored"), "");
  EXPECT_EQ(stops.Finish(), "");
}

TEST(StopStringsTest, FinishGivesTheRest) {
  StopStrings stops = MakeStops({"<end>"});
  EXPECT_EQ(stops.Push("a<en"), "a");
  EXPECT_EQ(stops.Finish(), "<en");
  EXPECT_FALSE(stops.stopped());
}

TEST(StopStringsTest, TheFirstToBeCompleteEndsTheText) {
  StopStrings stops = MakeStops({"abcd", "bc", "c"});
  EXPECT_EQ(stops.Push("xabcd"), "xa");  // "bc" and "c" end together, "abcd" later
  EXPECT_EQ(stops.stopped(), 1U);
}

TEST(StopStringsTest, WithoutStringsEverythingPasses) {
  StopStrings stops = MakeStops({});
  EXPECT_EQ(stops.Push("anything"), "anything");
}

TEST(StopStringsTest, RefusesEmptyAndHugeStrings) {
  EXPECT_FALSE(StopStrings::Create({"a", ""}).ok());
  EXPECT_FALSE(StopStrings::Create({std::string(100'000, 'x')}).ok());
}

/// The text before the stop string that is complete first, by looking at every end and every string.
std::string CutNaively(const std::string& text, const std::vector<std::string>& strings) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : strings) {
      if (std::string_view(text).substr(0, end).ends_with(stop)) longest = std::max(longest, stop.size());
    }
    if (longest > 0) return text.substr(0, end - longest);
  }
  return text;
}

TEST(StopStringsTest, EqualsTheDefinitionHoweverTheTextIsCut) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const auto random_text = [&](size_t length) {
    std::string text;
    for (size_t i = 0; i < length; ++i) text += static_cast<char>('a' + random() % 3);
    return text;
  };
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::string> strings(random() % 4);
    for (std::string& stop : strings) stop = random_text(1 + random() % 5);
    const std::string text = random_text(random() % 30);
    StopStrings stops = MakeStops(strings);
    std::string out;
    for (size_t position = 0; position < text.size();) {
      const size_t length = 1 + random() % 4;
      out += stops.Push(std::string_view(text).substr(position, length));
      position += length;
    }
    out += stops.Finish();
    ASSERT_EQ(out, CutNaively(text, strings)) << text << " " << ::testing::PrintToString(strings);
  }
}

}  // namespace
}  // namespace milwright
