#include "cli/engine_options.h"

namespace milwright::cli {

EngineOptions ReadEngineOptions(const EngineArguments& arguments) {
  EngineOptions options;
  options.threads = arguments.threads;
  options.kernels = arguments.kernels;
  options.numerics = arguments.engine == "strict" ? Numerics::kStrict : Numerics::kFast;
  if (arguments.weights == "map") {
    options.weights = WeightPlacement::kMap;
  } else if (arguments.weights == "copy") {
    options.weights = WeightPlacement::kCopy;
  }
  return options;
}

EngineLoader ReadEngineLoader(const EngineArguments& arguments) {
  if (arguments.engine == "reference") return ReferenceEngine();
  return FastEngine(ReadEngineOptions(arguments));
}

}  // namespace milwright::cli
