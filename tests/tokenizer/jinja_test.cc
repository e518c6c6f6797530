// The Jinja interpreter against Python's, and within its limits.
#include "tokenizer/jinja.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support.h"

namespace milwright {
namespace {

using ::testing::HasSubstr;

std::tm Day() {
  std::tm day{};
  day.tm_year = 124;
  day.tm_mon = 6;
  day.tm_mday = 26;
  return day;
}

Result<std::string> Render(std::string_view source, const JinjaTemplate::Variables& variables = {},
                           const JinjaLimits& limits = {}) {
  MW_ASSIGN_OR_RETURN(const JinjaTemplate parsed, JinjaTemplate::Parse(source, "template"));
  return parsed.Render(variables, Day(), limits);
}

std::string ErrorOf(std::string_view source, const JinjaLimits& limits = {}) {
  const Result<std::string> text = Render(source, {}, limits);
  EXPECT_FALSE(text.ok()) << source << " renders " << *text;
  return text.status().message();
}

TEST(JinjaTest, RendersAsPython) {
  const nlohmann::ordered_json data = ReadOrderedJson(TokenizerData() / "jinja_cases.json");
  JinjaTemplate::Variables variables;
  for (const auto& [name, value] : data["variables"].items()) variables.emplace_back(name, value);
  ASSERT_EQ(data["cases"].size(), 166U);
  for (const auto& entry : data["cases"]) {
    const std::string source = entry[0];
    SCOPED_TRACE(source);
    const Result<std::string> text = Render(source, variables);
    EXPECT_EQ(text.ok(), !entry[1].is_null()) << (text.ok() ? *text : text.status().message());
    if (!entry[1].is_null()) {
      EXPECT_EQ(text.ok() ? *text : "", entry[1].get<std::string>());
    }
  }
}

TEST(JinjaTest, ErrorsNameTemplateAndLine) {
  EXPECT_THAT(ErrorOf("a\nb\n{{ x.y }}"), HasSubstr("template: line 3: 'x' is undefined"));
  EXPECT_THAT(ErrorOf("a\n{% if x %}\n{% nope %}"), HasSubstr("template: line 3: the tag \"nope\" is not supported"));
  EXPECT_THAT(ErrorOf("\n\n{% macro m(x) %}\n{{ 1 + x }}{% endmacro %}\n\n{{ m('a') }}"), HasSubstr("line 4"));
  EXPECT_THAT(ErrorOf("\n{{ 'abc\n"), HasSubstr("line 2: a string has no end"));
  EXPECT_THAT(ErrorOf("\n{% for x in y %}\n"), HasSubstr("a block has no endfor"));
  const Result<std::string> refused = Render("\n{{ raise_exception('no tools') }}");
  EXPECT_EQ(refused.status().code(), ErrorCode::kUsage);
  EXPECT_EQ(refused.status().message(), "template: line 2: the template refuses the messages: no tools");
}

TEST(JinjaTest, RefusesWhatItDoesNotKnow) {
  for (const char* source :
       {"{% include 'x' %}", "{% extends 'x' %}", "{% import 'x' as y %}", "{% block b %}{% endblock %}", "{{ 0x10 }}",
        "{{ x | nope }}", "{{ x is nope }}", "{% break %}",
        "{% for x in [1] %}{% set y %}{% break %}{% endset %}{% endfor %}",
        "{% macro m() %}{% continue %}{% endmacro %}", "{{ f(a=1, 2) }}", "{% call 1 %}{% endcall %}", "{{ 1 is is }}",
        "{{ 99999999999999999999 }}", "{{ \"\\ud800\" }}", "{{ x[] }}", "{{ x[1:2:3:4] }}", "{{ }}", "{% set = 1 %}"}) {
    EXPECT_FALSE(Render(source).ok()) << source;
  }
  EXPECT_FALSE(Render("\xFF").ok());
}

TEST(JinjaTest, IntegersThatLeave64BitsAreErrors) {
  for (const char* source :
       {"{{ 9223372036854775807 + 1 }}", "{{ 9223372036854775807 * 2 }}", "{{ 2 ** 63 }}",
        "{{ -9223372036854775807 - 2 }}", "{{ (-9223372036854775807 - 1) // -1 }}",
        "{{ (-9223372036854775807 - 1) | abs }}", "{{ 1 // 0 }}", "{{ 1 % 0 }}", "{{ 0 ** -1 }}"}) {
    EXPECT_FALSE(Render(source).ok()) << source;
  }
  EXPECT_EQ(*Render("{{ (-9223372036854775807 - 1) % -1 }} {{ 2 ** 62 }}"), "0 4611686018427387904");
}

TEST(JinjaTest, EndsTemplatesThatDoNotEnd) {
  EXPECT_THAT(ErrorOf("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), HasSubstr("recurses too deep"));
  EXPECT_THAT(
      ErrorOf("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", {.steps = 200'000}),
      HasSubstr("too many steps"));
  EXPECT_THAT(ErrorOf("{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}"), HasSubstr("recurses too deep"));
  EXPECT_THAT(ErrorOf("{{ range(100001) }}"), HasSubstr("range is longer"));
}

TEST(JinjaTest, EndsTemplatesThatGrow) {
  const char* doubling =
      "{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}";
  EXPECT_THAT(ErrorOf(doubling), HasSubstr("too much text"));
  EXPECT_THAT(ErrorOf("{{ 'x' * 9999999999999 }}"), HasSubstr("too much text"));
  EXPECT_THAT(ErrorOf("{{ [1] * 9999999999999 }}"), HasSubstr("too much text"));
  EXPECT_THAT(ErrorOf("{{ ('a' * 1000000) | replace('a', 'b' * 1000000) }}"), HasSubstr("too much text"));
  EXPECT_THAT(ErrorOf("{{ 'x' | indent(9999999999999, true) }}"), HasSubstr("too much text"));
  EXPECT_THAT(ErrorOf("{{ '%999999999999d' | format(1) }}{{ '%999999999999d' | format(1) * 1000 }}"),
              HasSubstr("too much text"));
  // Small lists that name each other print as 2^40 elements.
  EXPECT_FALSE(Render("{% set ns = namespace(l=[1]) %}{% for i in range(40) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}"
                      "{{ ns.l | tojson }}")
                   .ok());
  EXPECT_THAT(ErrorOf("{% set ns = namespace(l=[]) %}{% for i in range(999) %}{% set ns.l = [ns.l] %}{% endfor %}"),
              HasSubstr("nest deeper than 100"));
}

TEST(JinjaTest, RefusesTreesThatAreTooDeep) {
  const auto repeat = [](const std::string& text, int count) {
    std::string out;
    for (int i = 0; i < count; ++i) out += text;
    return out;
  };
  constexpr int kMany = 100'000;
  EXPECT_FALSE(Render("{{ " + repeat("(", kMany) + "1" + repeat(")", kMany) + " }}").ok());
  EXPECT_FALSE(Render("{{ " + repeat("[", kMany) + " }}").ok());
  EXPECT_FALSE(Render("{{ 1" + repeat(" + 1", kMany) + " }}").ok());
  EXPECT_FALSE(Render("{{ x" + repeat(".y", kMany) + " }}").ok());
  EXPECT_FALSE(Render("{{ x" + repeat(" | trim", kMany) + " }}").ok());
  EXPECT_FALSE(Render("{{ " + repeat("not ", kMany) + "x }}").ok());
  EXPECT_FALSE(Render("{{ " + repeat("-", kMany) + "1 }}").ok());
  EXPECT_FALSE(Render("{{ 1" + repeat(" if 1 else 1", kMany) + " }}").ok());
  EXPECT_FALSE(Render(repeat("{% if 1 %}", kMany)).ok());
  EXPECT_FALSE(Render("{% set " + repeat("(", kMany) + "x" + repeat(")", kMany) + " = 1 %}").ok());
  EXPECT_TRUE(Render("{{ 1" + repeat(" + 1", 150) + " }}").ok());
  EXPECT_TRUE(Render("{% if 0 %}" + repeat("{% elif 0 %}", 10'000) + "{% endif %}").ok());
}

TEST(JinjaTest, FreesNamespacesThatHoldThemselves) {
  // Leak checkers would tell.
  EXPECT_EQ(*Render("{% set ns = namespace() %}{% set ns.me = ns %}{% set ns.all = [ns, {'x': ns}] %}{{ ns.me.me.all | "
                    "length }}"),
            "2");
  EXPECT_EQ(
      *Render("{% set ns = namespace() %}{% macro m() %}{{ ns.x }}{% endmacro %}{% set ns.m = m %}{{ ns.m() }}ok"),
      "ok");
  EXPECT_EQ(*Render("{% set ns = namespace() %}{% for x in [1] %}{% set ns.l = loop %}{% endfor %}{{ ns.l.index }}"),
            "1");
}

TEST(JinjaTest, VariablesMustBeSane) {
  nlohmann::ordered_json deep = 1;
  for (int i = 0; i < 200; ++i) deep = nlohmann::ordered_json::array({std::move(deep)});
  EXPECT_THAT(Render("{{ x }}", {{"x", deep}}).status().message(), HasSubstr("nested too deep"));
  EXPECT_FALSE(Render("{{ x }}", {{"x", 18446744073709551615U}}).ok());
  EXPECT_FALSE(Render("{{ x }}", {{"x", "\xFF"}}).ok());
  EXPECT_EQ(*Render("{{ x }}", {{"x", 9223372036854775807}}), "9223372036854775807");
}

TEST(JinjaTest, StrftimeNow) {
  EXPECT_EQ(*Render("{{ strftime_now('%d %b %Y') }}[{{ strftime_now('') }}]"), "26 Jul 2024[]");
  EXPECT_FALSE(Render("{{ strftime_now('%5000d') }}").ok());
}

}  // namespace
}  // namespace milwright
