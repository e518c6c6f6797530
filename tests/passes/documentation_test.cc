// docs/passes.md is what the table of passes says.
#include "passes/documentation.h"

#include <gtest/gtest.h>

#include "support/files.h"

namespace milwright {
namespace {

TEST(PassesPage, IsTheFileInDocs) {
  const std::string path = std::string(MILWRIGHT_SOURCE_DIR) + "/docs/passes.md";
  EXPECT_EQ(testing::ReadAll(path), PassesPage())
      << path << " is not up to date; write it anew with: milwright rewrite --list-passes > docs/passes.md";
}

}  // namespace
}  // namespace milwright
