// One set of opened packages for all sessions of a server.
#ifndef MILWRIGHT_SERVE_SHARED_ENGINE_H_
#define MILWRIGHT_SERVE_SHARED_ENGINE_H_

#include "llm/pipeline.h"

namespace milwright {

/// A loader whose engines share the packages that `loader` opens: each path is opened once and kept. Predictions on one
/// package take turns in the order in which they were asked for, so that answers in the making advance call by call
/// side by side, whether the engine behind may be used by several threads or not. Copies of the loader share packages.
EngineLoader ShareEngines(EngineLoader loader);

}  // namespace milwright

#endif  // MILWRIGHT_SERVE_SHARED_ENGINE_H_
