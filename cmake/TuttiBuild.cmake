# SPDX-License-Identifier: Apache-2.0
# Build-wide settings and the helpers that every leaf uses. Nothing here names a folder or a target
# of the project.

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
# The public headers, for programs that link no libtutti.so, and for what stands below it.
add_library(tutti_public INTERFACE)
target_include_directories(tutti_public INTERFACE ${PROJECT_SOURCE_DIR}/include)
target_compile_options(tutti_options INTERFACE
                       $<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:-Wall -Wextra -Wconversion -Wshadow
                         $<$<CXX_COMPILER_ID:Clang>:-Wno-sign-conversion>  # as gcc has it
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

# How tests are compiled: their compile time is a large part of CI's. With the checks of the address
# and undefined behaviour sanitizers, half of it is the optimizer's.
set(TUTTI_TEST_OPTIONS $<$<CONFIG:Release>:-O1>)
if(TUTTI_SANITIZE STREQUAL "address")
  list(APPEND TUTTI_TEST_OPTIONS -O0)
endif()

# The sanitizers' objects are large: lld links them in a fraction of the time of GNU ld.
if(TUTTI_SANITIZE)
  include(CheckLinkerFlag)
  check_linker_flag(CXX -fuse-ld=lld TUTTI_HAS_LLD)
  if(TUTTI_HAS_LLD)
    add_link_options(-fuse-ld=lld)
  endif()
endif()

# tutti_room(TARGET SCOPE [HEADERS files...]): gives a target the include root of its room, which is
# the folder below src/ (or below the top) that the calling CMakeLists.txt stands in. The root holds
# nothing but a link with the room's name, so an #include "room/header.hpp" compiles in targets that
# link one of the room, and nowhere else. HEADERS: a root of these headers alone.
function(tutti_room target scope)
  cmake_parse_arguments(arg "" "" "HEADERS" ${ARGN})
  file(RELATIVE_PATH room ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  string(REGEX REPLACE "^src/" "" room ${room})
  string(REGEX REPLACE "/.*" "" room ${room})
  string(REGEX REPLACE "^(${PROJECT_SOURCE_DIR}/(src/)?${room}).*" "\\1" folder
                       ${CMAKE_CURRENT_SOURCE_DIR})
  if(arg_HEADERS)
    set(root ${PROJECT_BINARY_DIR}/rooms/${target})
    file(REMOVE_RECURSE ${root})  # of an earlier list
    foreach(header ${arg_HEADERS})
      cmake_path(GET header PARENT_PATH parent)
      file(MAKE_DIRECTORY ${root}/${room}/${parent})
      file(CREATE_LINK ${folder}/${header} ${root}/${room}/${header} SYMBOLIC)
    endforeach()
  else()
    set(root ${PROJECT_BINARY_DIR}/rooms/${room})
    file(MAKE_DIRECTORY ${root})
    file(CREATE_LINK ${folder} ${root}/${room} SYMBOLIC)
  endif()
  target_include_directories(${target} ${scope} ${root})
endfunction()

# tutti_library(NAME SOURCES... LINK targets... [HEADERS files...] [OWN_FLAGS]): one static part of
# libtutti.so, with the include root of its room (HEADERS as for tutti_room). The
# headers of others that most sources include are compiled once, for tutti_base, and reused
# (precompiled_library.hpp). OWN_FLAGS: the target's own compile options forbid that.
function(tutti_library name)
  cmake_parse_arguments(arg "OWN_FLAGS" "" "SOURCES;LINK;HEADERS" ${ARGN})
  add_library(${name} STATIC ${arg_SOURCES})
  tutti_room(${name} PUBLIC HEADERS ${arg_HEADERS})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_link_libraries(${name} PUBLIC tutti_options ${arg_LINK})
  if(name STREQUAL "tutti_base")
    target_precompile_headers(${name} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/precompiled_library.hpp)
  elseif(NOT arg_OWN_FLAGS)
    target_link_libraries(${name} PRIVATE fmt::fmt)  # defines what the headers were compiled with
    target_precompile_headers(${name} REUSE_FROM tutti_base)
  endif()
endfunction()

# tutti_run_once(SOURCES...): code that runs once in a program's life and is long in the compiler,
# as everything around CLI11 and JSON: -O1, which takes half the time. Without precompiled headers,
# which were compiled with another -O.
function(tutti_run_once)
  set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_OPTIONS -O1)
  set_property(SOURCE ${ARGN} PROPERTY SKIP_PRECOMPILE_HEADERS ON)
endfunction()

# tutti_program(NAME SOURCES... LINK targets...): an executable in build/bin.
function(tutti_program name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE tutti_options tutti_public ${arg_LINK})
  tutti_room(${name} PRIVATE)
endfunction()

# tutti_test(NAME SOURCES... LINK targets... [TIMEOUT s] [LABELS l...] [SHARDS n] [OPTIMIZED]
#            [OWN_FLAGS] [UNLISTED] [ONE_THREAD]):
# GoogleTest cases, one ctest test each case, found when ctest runs. The target gpu_tests builds
# those with the label gpu.
# SHARDS makes n ctest tests of all cases: for pure functions, where a process for each case would
# take longer than the case. Tests that fork, set variables or wait stay one process a case.
# GoogleTest's own report then lies in tests/cases/TEST.xml, where tools/judge_tests.py counts.
# OPTIMIZED: the test's own code computes for long; others are compiled with -O1 in Release, as the
# compiler's time is longer than theirs. OWN_FLAGS as for tutti_library.
# UNLISTED only builds the program: another test runs it (tests/machine).
# ONE_THREAD: none of the cases starts a thread, so the thread sanitizer would only take its time.
function(tutti_test name)
  cmake_parse_arguments(arg "OPTIMIZED;OWN_FLAGS;UNLISTED;ONE_THREAD" "TIMEOUT;SHARDS"
                        "SOURCES;LINK;LABELS" ${ARGN})
  if(arg_ONE_THREAD AND TUTTI_SANITIZE STREQUAL "thread")
    return()
  endif()
  if(arg_ONE_THREAD AND NOT TUTTI_SANITIZE)
    list(APPEND arg_SOURCES ${PROJECT_SOURCE_DIR}/tests/one_thread.cpp)
  endif()
  if(arg_SHARDS AND NOT arg_TIMEOUT)
    set(arg_TIMEOUT 600)
  elseif(NOT arg_TIMEOUT)
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
  target_link_libraries(${name} PRIVATE tutti_options tutti_public ${arg_LINK} GTest::gtest_main
                                        GTest::gmock fmt::fmt)
  # Tests may include everything.
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src)
  if(NOT arg_OPTIMIZED)
    target_compile_options(${name} PRIVATE ${TUTTI_TEST_OPTIONS})
  endif()
  # GCC 12 crashes where headers were precompiled with another -O than their user.
  if(NOT arg_OWN_FLAGS AND NOT arg_OPTIMIZED)
    target_precompile_headers(${name} REUSE_FROM tutti_test_headers)
  endif()
  if("gpu" IN_LIST arg_LABELS)
    add_dependencies(gpu_tests ${name})
    set_property(GLOBAL APPEND PROPERTY TUTTI_GPU_TESTS ${name})
  endif()
  if(arg_UNLISTED)
    return()
  endif()
  set(properties TIMEOUT ${arg_TIMEOUT} LABELS ${label} ENVIRONMENT "TUTTI_IFNAME=lo"
                 ENVIRONMENT_MODIFICATION "TUTTI_PROFILE=set:off")
  if(NOT arg_SHARDS)
    gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 NO_PRETTY_VALUES
                         TEST_PREFIX ${name}. PROPERTIES ${properties})
    return()
  endif()
  foreach(shard RANGE 1 ${arg_SHARDS})
    set(test ${name})
    if(arg_SHARDS GREATER 1)
      string(APPEND test ".${shard}_of_${arg_SHARDS}")
    endif()
    math(EXPR index "${shard} - 1")
    add_test(NAME ${test}
             COMMAND ${name} --gtest_brief=1
                     --gtest_output=xml:${PROJECT_BINARY_DIR}/tests/cases/${test}.xml)
    set_tests_properties(${test} PROPERTIES ${properties})
    set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT GTEST_TOTAL_SHARDS=${arg_SHARDS}
                                              GTEST_SHARD_INDEX=${index})
  endforeach()
endfunction()
