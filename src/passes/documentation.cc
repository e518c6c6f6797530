#include "passes/documentation.h"

#include <fmt/format.h>

#include "passes/pass.h"

namespace milwright {
namespace {

constexpr std::string_view kIntroduction =
    R"(# Passes

`milwright rewrite IN -o OUT --pass NAME,NAME=KEY:VALUE;KEY:VALUE` runs passes in the order given. Lists in a value are
joined by `+`. A pass that cannot do its work refuses, names the operation that blocks it, and changes nothing.
`--verify-equal` runs the package before and after on the same inputs and writes only what is equal.

This page is made from the table in `src/passes/registry.cc` (`milwright rewrite --list-passes`).
)";

std::string_view ExactnessText(Exactness exactness) {
  switch (exactness) {
    case Exactness::kBitExact:
      return "Results are the same, bit for bit.";
    case Exactness::kReordered:
      return "Sums run in another order: results agree within 1e-3.";
    case Exactness::kInterface:
      return "What hosts see changes; values are the same, bit for bit.";
  }
  return "";
}

}  // namespace

std::string PassesPage() {
  std::string page(kIntroduction);
  for (const Pass& pass : AllPasses()) {
    page += fmt::format("\n## {}\n\n{} {}", pass.name, pass.summary, ExactnessText(pass.exactness));
    if (!pass.inverse.empty()) page += fmt::format(" Inverse: `{}`.", pass.inverse);
    page += "\n";
    if (pass.options.empty()) continue;
    page += "\n| option | value | meaning |\n|---|---|---|\n";
    for (const PassOption& option : pass.options) {
      std::string value;
      for (const char c : option.value) value += c == '|' ? std::string("\\|") : std::string(1, c);
      page += fmt::format("| {} | {} | {}{} |\n", option.key == "*" ? "OLD" : option.key, value, option.about,
                          option.required ? " (needed)" : "");
    }
  }
  return page;
}

}  // namespace milwright
