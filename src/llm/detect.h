// Folders that Milwright did not build: which contract their packages follow, and how to run them.
#ifndef MILWRIGHT_LLM_DETECT_H_
#define MILWRIGHT_LLM_DETECT_H_

#include <string>

#include "llm/manifest.h"
#include "mil/model.h"
#include "milwright/status.h"

namespace milwright {

/// The manifest of `folder`: its milwright.json, or what DetectManifest finds where there is none.
Result<Manifest> OpenManifest(const std::string& folder);

/// Finds the known contract (contract_tables.cc) whose names and ranks all packages (.mlpackage, .mlmodelc) directly in
/// `folder` have, orders them by the number in their names, and takes what the host has to know beside them from
/// config.json (the checkpoint's, in `folder` or hf_model/; needed for rotary inputs), model_config.json, meta.yaml and
/// the sidecars. Stages' layers are not told by packages: they stay 0.
///
/// kUnreadable: no packages; a package that fits no contract, with the feature that does not; parts that are not of one
/// build (context length, sizes, functions, chunk numbers), both sides named with their values.
Result<Manifest> DetectManifest(const std::string& folder);

/// Whether a package is the one that the manifest speaks of: every input, output, cache and state of `function` with
/// the same type. kUnreadable names both sides.
Status CheckPackage(const ManifestFunction& function, const ModelSpec& spec);

}  // namespace milwright

#endif  // MILWRIGHT_LLM_DETECT_H_
