# Build-wide settings and the three helpers that every leaf uses. Nothing here names a folder or a
# target of the project.

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()

set(TUTTI_SANITIZE "" CACHE STRING "address (with undefined) or thread")
option(TUTTI_WERROR "Warnings are errors" OFF)

add_library(tutti_options INTERFACE)
target_compile_features(tutti_options INTERFACE cxx_std_20)
target_include_directories(tutti_options INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}
                           ${PROJECT_SOURCE_DIR}/include)
target_compile_options(tutti_options INTERFACE
                       $<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:-Wall -Wextra -Wconversion -Wshadow
                         $<$<BOOL:${TUTTI_WERROR}>:-Werror> -fvisibility=hidden>
                       $<$<COMPILE_LANGUAGE:CXX>:-fvisibility-inlines-hidden>
                       # CMake 3.25 knows no C++20 of nvcc 13. Contraction would change bits.
                       $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20 --fmad=false -Xptxas=-v
                         -Xcompiler=-fvisibility=hidden,-Wall
                         $<$<BOOL:${TUTTI_WERROR}>:-Werror=all-warnings>>)
if(TUTTI_SANITIZE STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined
                      -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(TUTTI_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
  add_link_options(-fsanitize=thread)
elseif(TUTTI_SANITIZE)
  message(FATAL_ERROR "TUTTI_SANITIZE is '${TUTTI_SANITIZE}'; use address or thread")
endif()

# tutti_library(NAME SOURCES... LINK targets...): one static part of libtutti.so.
function(tutti_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK" ${ARGN})
  add_library(${name} STATIC ${arg_SOURCES})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_link_libraries(${name} PUBLIC tutti_options ${arg_LINK})
endfunction()

# tutti_program(NAME SOURCES... LINK targets...): an executable in build/bin.
function(tutti_program name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE tutti_options ${arg_LINK})
endfunction()

# tutti_test(NAME SOURCES... LINK targets... [TIMEOUT s] [LABELS l...] [RELEASE_ONLY] [UNLISTED]):
# GoogleTest cases, one ctest test each case, found when ctest runs. The target gpu_tests builds
# those with the label gpu. RELEASE_ONLY leaves the program out of the sanitizer builds: for tests
# that would only take long there, not for tests that fail there. UNLISTED only builds the program:
# another test runs it (tests/machine).
function(tutti_test name)
  cmake_parse_arguments(arg "RELEASE_ONLY;UNLISTED" "TIMEOUT" "SOURCES;LINK;LABELS" ${ARGN})
  if(arg_RELEASE_ONLY AND TUTTI_SANITIZE)
    return()
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  if(NOT arg_LABELS)
    set(arg_LABELS base)  # an empty one would take the property after it for a label
  endif()
  # gtest_discover_tests would take the second of a list for the name of a property. ctest -L looks
  # for a pattern, so it finds each word of this.
  list(JOIN arg_LABELS "-" label)
  add_executable(${name} ${arg_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  target_link_libraries(${name} PRIVATE tutti_options ${arg_LINK} GTest::gtest_main GTest::gmock)
  if("gpu" IN_LIST arg_LABELS)
    add_dependencies(gpu_tests ${name})
  endif()
  if(arg_UNLISTED)
    return()
  endif()
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 NO_PRETTY_VALUES
                       TEST_PREFIX ${name}.
                       PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS ${label}
                                  ENVIRONMENT "TUTTI_IFNAME=lo"
                                  ENVIRONMENT_MODIFICATION "TUTTI_PROFILE=set:off")
endfunction()
