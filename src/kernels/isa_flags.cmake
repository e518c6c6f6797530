# Instruction sets beyond the baseline are enabled per folder; which folder's code runs is decided at run time
# (dispatch.h). Sources of another architecture compile to nothing.
#
# A function of a shared header that is not inlined would be emitted once per folder and merged by the linker, so that
# code for a newer instruction set could end up in the baseline path. The folders therefore only call functions of
# unnamed namespaces (simd/*-inl.h) and intrinsics.
#
# They are compiled with -O3: int8 matrix products ran at 172 and 188 G multiply-adds/s with it and at 110 and 114 with -O2
# (int8 and int4 in blocks of 32, one thread, separate runs on a shared machine).
set(kernel_flags $<$<CONFIG:Release>:-O3>)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(avx2_flags ${kernel_flags} -mavx2 -mfma -mf16c -mbmi -mbmi2 -mpopcnt)
  set(avx512_flags ${avx2_flags} -mavx512f -mavx512bw -mavx512vl -mavx512dq)
  file(GLOB avx2_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/kernels/avx2/*.cc)
  file(GLOB avx512_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/kernels/avx512/*.cc)
  set_source_files_properties(${avx2_sources} PROPERTIES COMPILE_OPTIONS "${avx2_flags}")
  # g++ 12 reports uninitialised values inside its own _mm512_* headers.
  foreach(warning maybe-uninitialized uninitialized)
    list(APPEND avx512_flags $<$<CXX_COMPILER_ID:GNU>:-Wno-${warning}>)
  endforeach()
  set_source_files_properties(${avx512_sources} PROPERTIES COMPILE_OPTIONS "${avx512_flags}")
  set_property(SOURCE ${CMAKE_CURRENT_SOURCE_DIR}/kernels/avx512/matvec_vnni.cc
                      ${CMAKE_CURRENT_SOURCE_DIR}/kernels/avx512/matmul_vnni.cc
               APPEND PROPERTY COMPILE_OPTIONS -mavx512vnni)
  set_property(SOURCE ${CMAKE_CURRENT_SOURCE_DIR}/kernels/avx512/matmul_amx.cc
               APPEND PROPERTY COMPILE_OPTIONS -mavx512bf16 -mamx-tile -mamx-bf16)
  set_property(SOURCE ${CMAKE_CURRENT_SOURCE_DIR}/kernels/avx512/matvec_vbmi.cc
               APPEND PROPERTY COMPILE_OPTIONS -mavx512vbmi)
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  file(GLOB neon_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/kernels/neon/*.cc)
  set_source_files_properties(${neon_sources} PROPERTIES COMPILE_OPTIONS "${kernel_flags}")
endif()
