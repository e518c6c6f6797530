// Passes: small, named rewrites of a model. Each states its precondition and refuses, naming the op that blocks it.
//
// Adding a pass: write its function in src/passes/<name>.cc and add one entry to the table in src/passes/registry.cc.
#ifndef MILWRIGHT_PASSES_PASS_H_
#define MILWRIGHT_PASSES_PASS_H_

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mil/model.h"
#include "milwright/status.h"

namespace milwright {

/// The options of one use of a pass: "key:value" pairs, lists joined by '+'.
class PassArguments {
 public:
  PassArguments() = default;
  explicit PassArguments(std::map<std::string, std::string, std::less<>> values) : values_(std::move(values)) {}

  [[nodiscard]] bool Has(std::string_view key) const { return values_.contains(key); }
  [[nodiscard]] std::string String(std::string_view key, std::string_view fallback = {}) const;
  /// kUsage when present but no integer.
  [[nodiscard]] Result<int64_t> Int(std::string_view key, int64_t fallback) const;
  [[nodiscard]] std::vector<std::string> List(std::string_view key) const;
  [[nodiscard]] const std::map<std::string, std::string, std::less<>>& values() const { return values_; }

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

/// What a pass may tell: one line for each thing done or assumed; kept in the package's metadata where they bind the
/// host (`assumptions`).
struct PassReport {
  std::vector<std::string> notes;
  std::vector<std::string> assumptions;
};

/// How outputs compare before and after a pass, from equal states and inputs.
enum class Exactness : uint8_t {
  kBitExact,   ///< no arithmetic changes
  kReordered,  ///< sums run in another order: within 1e-3
  kInterface,  ///< inputs, outputs or states change, so the host changes too; values are bit exact under the mapping
};

struct PassOption {
  std::string_view key;
  std::string_view value;  ///< its form: "NAME+NAME...", "N", "whole|slice"
  std::string_view about;
  bool required = false;
};

struct Pass {
  std::string_view name;     ///< kebab-case
  std::string_view summary;  ///< one line
  std::string_view inverse;  ///< the pass that undoes it, or ""
  Exactness exactness = Exactness::kBitExact;
  std::vector<PassOption> options = {};
  /// Rewrites `model` in place. On error whatever it did is thrown away by the manager. kPrecondition: refused, the
  /// message names the op; kUsage: bad options.
  Status (*run)(ModelSpec& model, const PassArguments& arguments, PassReport& report) = nullptr;
};

/// Every pass of one model, sorted by name.
std::span<const Pass> AllPasses();
const Pass* FindPass(std::string_view name);

/// One use of a pass.
struct PassUse {
  const Pass* pass = nullptr;
  PassArguments arguments;
};
/// Reads "name,name=key:value;key:value,...". Unknown passes and option keys are kUsage, with the nearest known name.
Result<std::vector<PassUse>> ParsePasses(std::string_view text);

struct PassManagerOptions {
  bool verify_each = false;  ///< verify after every pass (always done in debug builds)
  /// Called after a pass that changed something, with the program before and after.
  std::function<void(const Pass&, const Program& before, const Program& after)> on_changed;
};

struct PassResult {
  std::string name;
  bool changed = false;  ///< by the fingerprint of the program and its description, not by what the pass says
  double seconds = 0;
  PassReport report;
};

/// Runs the passes in order. When one fails, `model` is as it was before that pass and the error names the pass.
Result<std::vector<PassResult>> RunPasses(ModelSpec& model, const std::vector<PassUse>& passes,
                                          const PassManagerOptions& options = {});

}  // namespace milwright

#endif  // MILWRIGHT_PASSES_PASS_H_
