// split-chunks: one decoder as several packages, each with some of the layers and only their states.
#ifndef MILWRIGHT_PASSES_SPLIT_CHUNKS_H_
#define MILWRIGHT_PASSES_SPLIT_CHUNKS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "format/package.h"
#include "mil/model.h"
#include "passes/pass.h"

namespace milwright {

/// How a model is split: exactly one of `count`, `layers` and `max_bytes` is set.
struct ChunkOptions {
  int64_t count = 0;            ///< chunks of as equal a number of layers as may be
  std::vector<int64_t> layers;  ///< the number of layers in each chunk
  int64_t max_bytes = 0;        ///< as many layers a chunk as their stored weights allow
  bool embedding = false;       ///< the token embedding leaves the first chunk: hosts look rows up in a side file
};

/// A model in chunks. Chunk i gives "hidden_out", which is "hidden_in" of chunk i + 1; other inputs go to every chunk
/// that has them, and every output comes from one chunk.
struct ChunkedModel {
  std::vector<ModelSpec> chunks;
  std::optional<Tensor> embedding;  ///< the table [vocabulary, hidden], when it was taken out
};

/// Reads count:N, layers:N+N.., bytes:N and embedding:true.
Result<ChunkOptions> ParseChunkOptions(const PassArguments& arguments);

/// Splits `model`. Every function is cut at the same layers. A state whose slots belong to several chunks is taken
/// apart by slot, so that each chunk declares a state of that name with its own slots only. kPrecondition: the layers
/// cannot be told apart or are too few, a layer is larger than the budget, chunks would have to share a state.
Result<ChunkedModel> SplitChunks(const ModelSpec& model, const ChunkOptions& options, PassReport& report);

/// Writes chunk_1of3.mlpackage, chunk_2of3.mlpackage, ... and, if there is one, embed_weight.bin (the table in fp16,
/// row by row) into `folder`.
Status WriteChunks(const ChunkedModel& model, const std::string& folder, const WriteOptions& options = {});

}  // namespace milwright

#endif  // MILWRIGHT_PASSES_SPLIT_CHUNKS_H_
