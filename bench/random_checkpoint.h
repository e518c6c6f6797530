// A checkpoint of Qwen3-0.6B's shape with random weights, for benchmarks.
#ifndef MILWRIGHT_BENCH_RANDOM_CHECKPOINT_H_
#define MILWRIGHT_BENCH_RANDOM_CHECKPOINT_H_

#include <string>

#include "milwright/status.h"

namespace milwright {

/// Writes config.json and model.safetensors (1.2 GB of bf16) into `folder`, which exists.
Status WriteRandomCheckpoint(const std::string& folder);

}  // namespace milwright

#endif  // MILWRIGHT_BENCH_RANDOM_CHECKPOINT_H_
