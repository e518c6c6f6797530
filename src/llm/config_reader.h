// Reading config.json so that nothing in it goes unnoticed: every key is read, or declared irrelevant, or an error.
#ifndef MILWRIGHT_LLM_CONFIG_READER_H_
#define MILWRIGHT_LLM_CONFIG_READER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "milwright/status.h"

namespace milwright {

/// One JSON object of a config with a record of the keys that were asked for. A key whose value is null counts as
/// absent. The first error is kept, in the root for all sections, and returned by Finish(); until then getters return
/// harmless values, so a chain of calls needs one check at its end.
class ConfigReader {
 public:
  /// Reads a JSON file of at most 16 MB. kUnreadable: missing, malformed, or no object.
  static Result<std::unique_ptr<ConfigReader>> Open(const std::string& path);
  ~ConfigReader();
  ConfigReader(const ConfigReader&) = delete;
  ConfigReader& operator=(const ConfigReader&) = delete;

  /// Whether `key` is present and not null. Does not count as reading it.
  [[nodiscard]] bool Has(std::string_view key) const;

  /// A size or count: an integer from 1 to 2^24. The first form is an error when the key is absent.
  int64_t Size(std::string_view key);
  int64_t SizeOr(std::string_view key, int64_t fallback);
  /// As SizeOr, but 0 is allowed.
  int64_t CountOr(std::string_view key, int64_t fallback);
  /// A finite number.
  double Number(std::string_view key);
  double NumberOr(std::string_view key, double fallback);
  bool BoolOr(std::string_view key, bool fallback);
  std::string StringOr(std::string_view key, std::string_view fallback);
  std::vector<double> Numbers(std::string_view key);
  std::vector<int64_t> Integers(std::string_view key);
  std::vector<std::string> Strings(std::string_view key);
  /// One integer or a list of them; empty when absent.
  std::vector<int64_t> IntegerOrList(std::string_view key);

  /// The object under `key`; an empty one when it is absent. Stays owned by this reader.
  ConfigReader& Section(std::string_view key);

  /// Declares keys that do not matter to the forward pass.
  void Ignore(std::span<const std::string_view> keys);
  /// Errors unless the key is absent, null or false / equals one of `allowed` (as text: "1", "true", "silu").
  void RequireOff(std::string_view key);
  void RequireOneOf(std::string_view key, std::span<const std::string_view> allowed);

  /// Records an error about `key` of this object.
  void Fail(std::string_view key, std::string_view what);
  /// The first error so far.
  [[nodiscard]] const Status& status() const;
  /// The first error, or the error that names every key that nobody read (sections included).
  Status Finish();

 private:
  ConfigReader(std::shared_ptr<const nlohmann::json> document, const nlohmann::json* object, std::string path,
               ConfigReader* root);
  const nlohmann::json* Find(std::string_view key);
  void CollectUnread(std::vector<std::string>& unread) const;
  std::string Place(std::string_view key) const;

  std::shared_ptr<const nlohmann::json> document_;
  const nlohmann::json* object_;
  std::string path_;    ///< of the file
  std::string prefix_;  ///< "text_config." and so on
  ConfigReader* root_;
  Status status_;  ///< of the root
  std::set<std::string, std::less<>> read_;
  std::map<std::string, std::unique_ptr<ConfigReader>, std::less<>> sections_;
};

}  // namespace milwright

#endif  // MILWRIGHT_LLM_CONFIG_READER_H_
