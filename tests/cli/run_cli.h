// Runs the command line as a person does.
#ifndef MILWRIGHT_TESTS_CLI_RUN_CLI_H_
#define MILWRIGHT_TESTS_CLI_RUN_CLI_H_

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

#include "support/test_util.h"

namespace milwright::testing {

struct Output {
  std::string text;  ///< stdout and stderr
  int code = -1;
};

inline Output Milwright(const std::string& arguments) {
  Output output;
  FILE* pipe = popen((std::string(MILWRIGHT_BINARY) + " " + arguments + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return output;
  std::array<char, 4096> buffer{};
  size_t count = 0;
  while ((count = fread(buffer.data(), 1, buffer.size(), pipe)) > 0) output.text.append(buffer.data(), count);
  const int status = pclose(pipe);
  output.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return output;
}

/// A package of tests/data/packages.
inline std::string Package(const std::string& name) {
  return (DataDir() / "packages" / (name + ".mlpackage")).string();
}

}  // namespace milwright::testing

#endif  // MILWRIGHT_TESTS_CLI_RUN_CLI_H_
