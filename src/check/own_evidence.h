// A ledger of one's own: observations that users add for their packages, in files that `check --evidence` reads.
#ifndef MILWRIGHT_CHECK_OWN_EVIDENCE_H_
#define MILWRIGHT_CHECK_OWN_EVIDENCE_H_

#include <string>
#include <string_view>

#include "check/ledger.h"

namespace milwright {

/// Reads an outcome in words: ok, slow, wrong-numerics, fallback, fail-at-load or fail-at-predict, the failures with a
/// code if there is one ("fail-at-load:-14"). kUsage when it is none of them.
Result<Outcome> ReadOutcome(std::string_view text);

/// Adds `observation` at the end of the file at `path`, in the form of data/evidence/observations.json. The file is
/// made when it is missing; what stands in it stays as it is, fields that Milwright does not know included. It is
/// written beside and then renamed. kUsage: an empty id, or one that the file or the compiled-in ledger has already;
/// kUnreadable: the file is no ledger; kIo: the disk.
Status AppendObservation(const std::string& path, const Observation& observation);

/// `wanted`, or with "-2", "-3", ... behind it, so that neither the file at `path` (which may be missing) nor the
/// compiled-in ledger has that id.
Result<std::string> FreeObservationId(const std::string& path, const std::string& wanted);

}  // namespace milwright

#endif  // MILWRIGHT_CHECK_OWN_EVIDENCE_H_
