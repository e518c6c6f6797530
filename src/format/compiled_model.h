// The two text files of a compiled model folder (X.mlmodelc): model.mil and metadata.json.
#ifndef MILWRIGHT_FORMAT_COMPILED_MODEL_H_
#define MILWRIGHT_FORMAT_COMPILED_MODEL_H_

#include <string>
#include <string_view>

#include "format/protobuf_reader.h"
#include "mil/model.h"
#include "milwright/status.h"

namespace milwright {

/// Builds a model from the text of model.mil (named `file_name` in messages) and that of metadata.json, which may be
/// empty. The description comes from the functions; where metadata.json speaks of a feature (data type, shape,
/// flexibility, short description) or of the model (metadata, specification version), it has the last word. Image
/// features are described as the arrays they are in the program.
Result<ModelSpec> ReadCompiledModel(std::string_view program_text, const std::string& file_name,
                                    const std::string& metadata_text, const BlobLoader& load_blob);

}  // namespace milwright

#endif  // MILWRIGHT_FORMAT_COMPILED_MODEL_H_
