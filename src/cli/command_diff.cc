#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "format/package.h"
#include "passes/diff.h"

namespace milwright::cli {

int Diff(const DiffArguments& arguments) {
  const auto a = OpenModel(arguments.a);
  if (!a.ok()) return Fail(a.status());
  const auto b = OpenModel(arguments.b);
  if (!b.ok()) return Fail(b.status());
  const ModelDiff diff = DiffModels(*a, *b);
  if (arguments.json) {
    using Json = nlohmann::ordered_json;
    Json json = {{"a", arguments.a}, {"b", arguments.b}, {"entries", Json::array()}};
    for (const DiffEntry& entry : diff.entries) {
      json["entries"].push_back({{"kind", DiffKindName(entry.kind)}, {"path", entry.path}, {"changes", entry.changes}});
    }
    std::cout << json.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
  } else {
    std::cout << (diff.empty() ? "no difference\n" : DiffText(diff));
  }
  return diff.empty() ? kFine : kFindings;
}

}  // namespace milwright::cli
