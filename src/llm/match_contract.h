// Holding a package's features against a contract's tables.
#ifndef MILWRIGHT_LLM_MATCH_CONTRACT_H_
#define MILWRIGHT_LLM_MATCH_CONTRACT_H_

#include <string>
#include <vector>

#include "llm/agreed_sizes.h"
#include "llm/contract.h"
#include "llm/manifest.h"
#include "mil/model.h"

namespace milwright {

/// A package file with what its description says.
struct PackageFile {
  std::string name;  ///< file name below the folder
  ModelDescription description;
};

/// A package as a contract's form has it.
struct MatchedPackage {
  PackageRole role = PackageRole::kBody;
  std::vector<ManifestFunction> functions;
};

/// Matches every function of `package` with `form`, by names (dots count as underscores: MIL has none) and ranks, and
/// binds the sizes that its shapes tell to `sizes`. kUnreadable names the first feature that the form does not have.
Result<MatchedPackage> MatchPackage(const Contract& contract, const ContractForm& form, const PackageFile& package,
                                    AgreedSizes& sizes);

}  // namespace milwright

#endif  // MILWRIGHT_LLM_MATCH_CONTRACT_H_
