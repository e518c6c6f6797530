# What makes a full build faster: precompiled standard headers and unity builds (several .cc in one translation unit).
#
# Precompiled headers are for g++ only: its builds are the ones people wait for. One owner compiles them for the layers and one for the test
# programs; every other target with the same flags uses its owner's. clang's build has neither, which shows that every file stands alone.
option(MILWRIGHT_UNITY "Compile several .cc in one translation unit" ON)
set(MILWRIGHT_UNITY_BATCH 8 CACHE STRING "How many .cc make one translation unit; 0: all of a layer")
set(MILWRIGHT_PRECOMPILED_LAYER <algorithm> <array> <cstdint> <cstring> <functional> <map> <memory> <optional> <set> <span>
    <string> <string_view> <unordered_map> <utility> <vector> <fmt/format.h>)
set(MILWRIGHT_PRECOMPILED_TEST ${MILWRIGHT_PRECOMPILED_LAYER} <filesystem> <fstream> <random> <gmock/gmock.h> <gtest/gtest.h>)

# Makes `target` a unity build, with the precompiled headers of `kind` (LAYER or TEST). The first target of a kind becomes their owner.
function(milwright_build_fast target kind)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${MILWRIGHT_UNITY} UNITY_BUILD_BATCH_SIZE ${MILWRIGHT_UNITY_BATCH})
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    return()
  endif()
  if(MILWRIGHT_UNITY)
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)  # takes what is included in a .cc for a header
  endif()
  if(kind STREQUAL "TEST" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(${target} PRIVATE -Wno-array-bounds)  # false positives where std::string is joined or moved, once its header is precompiled
  endif()
  get_property(owner GLOBAL PROPERTY MILWRIGHT_PRECOMPILED_OWNER_${kind})
  if(owner)
    target_precompile_headers(${target} REUSE_FROM ${owner})
  else()
    target_precompile_headers(${target} PRIVATE ${MILWRIGHT_PRECOMPILED_${kind}})
    set_property(GLOBAL PROPERTY MILWRIGHT_PRECOMPILED_OWNER_${kind} ${target})
  endif()
  target_compile_options(${target} PRIVATE -fpch-preprocess)  # ccache needs it
endfunction()
