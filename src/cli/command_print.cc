#include <iostream>

#include "cli/commands.h"
#include "format/package.h"
#include "text/printer.h"

namespace milwright::cli {

int Print(const PrintArguments& arguments) {
  const auto model = OpenModel(arguments.path);
  if (!model.ok()) return Fail(model.status());
  if (!arguments.function.empty() && model->program.FindFunction(arguments.function) == nullptr) {
    std::string known;
    for (const auto& function : model->program.functions()) known += (known.empty() ? "" : ", ") + function->name;
    return Fail(
        Status(ErrorCode::kUsage, "there is no function '" + arguments.function + "'; the package has: " + known));
  }
  PrintOptions options;
  options.function = arguments.function;
  options.elide_weights = !arguments.full;
  std::cout << PrintProgram(model->program, options);
  return kFine;
}

}  // namespace milwright::cli
