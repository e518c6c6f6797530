// What tests share: paths of test data, and checks of Status and Result.
#ifndef MILWRIGHT_TESTS_SUPPORT_TEST_UTIL_H_
#define MILWRIGHT_TESTS_SUPPORT_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "milwright/status.h"

namespace milwright::testing {

inline const Status& StatusOf(const Status& status) { return status; }
template <typename T>
const Status& StatusOf(const Result<T>& result) {
  return result.status();
}

#define EXPECT_OK(expr)                                                                         \
  do {                                                                                          \
    const auto& mw_test_value = (expr);                                                         \
    EXPECT_TRUE(mw_test_value.ok()) << ::milwright::testing::StatusOf(mw_test_value).message(); \
  } while (false)
#define ASSERT_OK(expr)                                                                         \
  do {                                                                                          \
    const auto& mw_test_value = (expr);                                                         \
    ASSERT_TRUE(mw_test_value.ok()) << ::milwright::testing::StatusOf(mw_test_value).message(); \
  } while (false)

/// Whether this is the build of a sanitizer, which is slow and keeps memory of its own.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

/// tests/data
inline std::filesystem::path DataDir() { return MILWRIGHT_TEST_DATA; }
/// The big fixtures beside the checkout; tests that need them skip when they are not there.
inline std::filesystem::path SharedDir() { return MILWRIGHT_SHARED_DIR; }

/// Every folder or file below `root` with extension `extension` (".mlpackage"), sorted; empty when `root` is missing.
inline std::vector<std::filesystem::path> FindAll(const std::filesystem::path& root, const std::string& extension) {
  std::vector<std::filesystem::path> found;
  std::error_code error;
  auto it = std::filesystem::recursive_directory_iterator(root, error);
  for (; !error && it != std::filesystem::recursive_directory_iterator(); it.increment(error)) {
    if (it->path().extension() == extension) {
      found.push_back(it->path());
      it.disable_recursion_pending();
    }
  }
  std::ranges::sort(found);
  return found;
}

}  // namespace milwright::testing

#endif  // MILWRIGHT_TESTS_SUPPORT_TEST_UTIL_H_
