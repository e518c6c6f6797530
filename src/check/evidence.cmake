# The evidence ledger, compiled in: data/evidence/*.json become string literals of a generated source.
#
# Run as a script (cmake -P) this file writes that source; included from src/CMakeLists.txt it adds it to the layer.
if(CMAKE_SCRIPT_MODE_FILE)
  set(source "// Generated from data/evidence by src/check/evidence.cmake.\n#include \"check/ledger.h\"\n\nnamespace milwright {\n")
  foreach(name observations hypotheses)
    file(READ ${FOLDER}/${name}.json text)
    string(LENGTH "${text}" length)
    string(SUBSTRING "${name}" 0 1 initial)
    string(TOUPPER "${initial}" initial)
    string(SUBSTRING "${name}" 1 -1 rest)
    string(APPEND source "\nstd::string_view ${initial}${rest}Json() {\n  return\n")
    set(begin 0)
    while(begin LESS length)  # compilers limit the length of one literal; adjacent ones are joined
      string(SUBSTRING "${text}" ${begin} 8000 chunk)
      string(APPEND source "R\"json(${chunk})json\"\n")
      math(EXPR begin "${begin} + 8000")
    endwhile()
    string(APPEND source ";\n}\n")
  endforeach()
  string(APPEND source "\n}  // namespace milwright\n")
  file(WRITE ${OUTPUT} "${source}")
  return()
endif()

set(evidence_source ${CMAKE_CURRENT_BINARY_DIR}/evidence_data.cc)
set(evidence_folder ${CMAKE_SOURCE_DIR}/data/evidence)
add_custom_command(
  OUTPUT ${evidence_source}
  COMMAND ${CMAKE_COMMAND} -DFOLDER=${evidence_folder} -DOUTPUT=${evidence_source} -P ${CMAKE_CURRENT_LIST_FILE}
  DEPENDS ${CMAKE_CURRENT_LIST_FILE} ${evidence_folder}/observations.json ${evidence_folder}/hypotheses.json)
target_sources(milwright_check PRIVATE ${evidence_source})
