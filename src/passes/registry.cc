// The table of passes. docs/passes.md is made from it.
#include <algorithm>

#include "passes/entries.h"

namespace milwright {

std::span<const Pass> AllPasses() {
  static const std::vector<Pass> passes = [] {
    std::vector<Pass> table = {
        Pass{.name = "canonicalize-inplace-pattern",
             .summary =
                 "Put read, update and write of a state next to each other where nothing lies between that touches it.",
             .inverse = "",
             .run = CanonicalizeInplacePattern},
        Pass{.name = "prefer-state-in-downstream",
             .summary = "Let what runs behind a write read the state instead of keeping the written value.",
             .inverse = "",
             .run = PreferStateInDownstream},
        Pass{.name = "remove-noop-state-update",
             .summary = "Remove writes that put back what was read, with no other write between.",
             .inverse = "",
             .run = RemoveNoopStateUpdate},
        Pass{.name = "drop-output-alias",
             .summary = "Give every output that is the very value written to a state a value of its own.",
             .inverse = "",
             .run = DropOutputAlias},
        Pass{.name = "dead-code-elimination",
             .summary = "Remove operations whose results nobody uses and that have no effect.",
             .inverse = "",
             .run = DeadCodeElimination},
        Pass{.name = "common-subexpression-elimination",
             .summary =
                 "Compute equal pure expressions once; reads of a state are merged only when no write lies between.",
             .inverse = "",
             .run = CommonSubexpressionElimination},
        Pass{.name = "constant-folding",
             .summary = "Compute expressions of constants now, where the result takes up to 4096 bytes or no more than "
                        "its operands.",
             .inverse = "",
             .run = ConstantFolding},
        Pass{.name = "rename",
             .summary = "Rename inputs, outputs and states, in all functions.",
             .inverse = "rename",
             .exactness = Exactness::kInterface,
             .options = {{"*", "NEW", "the key is the old name", true}},
             .run = Rename},
        Pass{.name = "set-opset",
             .summary = "Move all functions to another opset; compressed weights change form with it.",
             .inverse = "set-opset",
             .options = {{"opset", "iOS15|iOS16|iOS17|iOS18|iOS26", "the opset", true}},
             .run = SetOpset},
        Pass{.name = "extract-function",
             .summary = "Keep one function of a package, as its main.",
             .inverse = "merge-functions",
             .exactness = Exactness::kInterface,
             .options = {{"function", "NAME", "the function to keep", true}},
             .run = ExtractFunction},
        Pass{.name = "merge-functions",
             .summary = "Add the functions of another package; equal weights and equal states are shared.",
             .inverse = "extract-function",
             .exactness = Exactness::kInterface,
             .options = {{"with", "PATH", "the other package", true},
                         {"this", "NAME", "new name of this package's only function"},
                         {"as", "NAME", "new name of the other's only function"},
                         {"default", "NAME", "the default function (the first, if not given)"}},
             .run = MergeFunctions},
    };
    std::ranges::sort(table, {}, &Pass::name);
    return table;
  }();
  return passes;
}

}  // namespace milwright
