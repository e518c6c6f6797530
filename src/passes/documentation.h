// The page of passes, made from their table: docs/passes.md and `milwright rewrite --list-passes`.
#ifndef MILWRIGHT_PASSES_DOCUMENTATION_H_
#define MILWRIGHT_PASSES_DOCUMENTATION_H_

#include <string>

namespace milwright {

/// Markdown: how passes are named and given options, and for each what it does, its options, its inverse and how exact
/// it is.
std::string PassesPage();

}  // namespace milwright

#endif  // MILWRIGHT_PASSES_DOCUMENTATION_H_
