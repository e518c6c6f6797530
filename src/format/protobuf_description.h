// The model's description, between protobuf and the IR. Only for src/format/protobuf_*.
#ifndef MILWRIGHT_FORMAT_PROTOBUF_DESCRIPTION_H_
#define MILWRIGHT_FORMAT_PROTOBUF_DESCRIPTION_H_

#include "mil/model.h"
#include "milwright/status.h"
#include "model.pb.h"

namespace milwright {

/// Errors are kInvalidProgram and name the feature.
Result<ModelDescription> ReadDescription(const CoreML::Specification::ModelDescription& proto);
void WriteDescription(const ModelDescription& description, CoreML::Specification::ModelDescription* proto);

}  // namespace milwright

#endif  // MILWRIGHT_FORMAT_PROTOBUF_DESCRIPTION_H_
