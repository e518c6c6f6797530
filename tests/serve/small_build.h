// A small built folder to serve: the trained example cut to its first layer, with a chat template.
#ifndef MILWRIGHT_TESTS_SERVE_SMALL_BUILD_H_
#define MILWRIGHT_TESTS_SERVE_SMALL_BUILD_H_

#include <string>

namespace milwright::testing {

/// Makes the folder once for the process; it is removed at exit. One function of one token: every token is computed by
/// the same call, so that answers do not depend on how much of their prompt was reused, to the last bit.
const std::string& SmallBuild();

}  // namespace milwright::testing

#endif  // MILWRIGHT_TESTS_SERVE_SMALL_BUILD_H_
