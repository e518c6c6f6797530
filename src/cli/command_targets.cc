#include <iostream>
#include <nlohmann/json.hpp>

#include "check/targets.h"
#include "cli/commands.h"
#include "cli/terminal.h"

namespace milwright::cli {

int Targets(const TargetsArguments& arguments) {
  std::vector<std::vector<std::string>> rows;
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const Target& target : AllTargets()) {
    rows.push_back({std::string(target.name), std::string(target.summary), std::string(target.rests_on)});
    json.push_back({{"name", target.name}, {"summary", target.summary}, {"rests_on", target.rests_on}});
  }
  std::cout << (arguments.json ? json.dump(2) + "\n" : Table(rows, 0));
  return kFine;
}

}  // namespace milwright::cli
