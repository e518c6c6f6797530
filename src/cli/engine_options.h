// The options that choose how packages are run, shared by all verbs that run them.
#ifndef MILWRIGHT_CLI_ENGINE_OPTIONS_H_
#define MILWRIGHT_CLI_ENGINE_OPTIONS_H_

#include "cli/commands.h"
#include "llm/pipeline.h"
#include "milwright/engine.h"

namespace milwright::cli {

/// Of arguments that the parser has checked.
EngineOptions ReadEngineOptions(const EngineArguments& arguments);

/// The reference interpreter or the engine, as asked.
EngineLoader ReadEngineLoader(const EngineArguments& arguments);

}  // namespace milwright::cli

#endif  // MILWRIGHT_CLI_ENGINE_OPTIONS_H_
