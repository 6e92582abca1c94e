# SPDX-License-Identifier: Apache-2.0
# CUDA: whether and how device code is compiled. After it TUTTI_WITH_CUDA says whether there is any,
# and tutti_cuda_library() makes a part of the library out of .cu files.
#
# AUTO means ON where nvcc 12.3 or newer is found. The sanitizers know no device code and see the
# host's form of the same sources, so there AUTO means OFF.

set(TUTTI_CUDA AUTO CACHE STRING "Device code: AUTO (where nvcc is found), ON or OFF")
set_property(CACHE TUTTI_CUDA PROPERTY STRINGS AUTO ON OFF)
if(NOT TUTTI_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "TUTTI_CUDA is '${TUTTI_CUDA}'; use AUTO, ON or OFF")
endif()
if(TUTTI_CUDA STREQUAL "ON" AND TUTTI_SANITIZE)
  message(FATAL_ERROR "TUTTI_CUDA=ON with TUTTI_SANITIZE=${TUTTI_SANITIZE}: device code cannot be "
                      "compiled with sanitizers; leave one of them out")
endif()
set(TUTTI_DEVICE_THREADS "" CACHE STRING "Threads of a device block; empty: the project's choice")

set(TUTTI_WITH_CUDA OFF)
if(TUTTI_CUDA STREQUAL "ON" OR (TUTTI_CUDA STREQUAL "AUTO" AND NOT TUTTI_SANITIZE))
  find_program(TUTTI_NVCC nvcc HINTS ENV CUDACXX ENV CUDA_PATH ENV CUDA_HOME
               PATHS /usr/local/cuda PATH_SUFFIXES bin)
  set(nvcc_version 0)
  if(TUTTI_NVCC)
    execute_process(COMMAND ${TUTTI_NVCC} --version OUTPUT_VARIABLE nvcc_text ERROR_QUIET)
    if(nvcc_text MATCHES "release ([0-9.]+)")
      set(nvcc_version ${CMAKE_MATCH_1})
    endif()
  endif()
  if(nvcc_version VERSION_GREATER_EQUAL 12.3)
    set(TUTTI_WITH_CUDA ON)
  elseif(TUTTI_CUDA STREQUAL "ON")
    message(FATAL_ERROR "TUTTI_CUDA=ON needs nvcc 12.3 or newer, found "
                        "'${TUTTI_NVCC}' ${nvcc_version}; set CUDACXX or use TUTTI_CUDA=AUTO")
  endif()
endif()

if(TUTTI_WITH_CUDA)
  # Machine code for A100, H100/H200 and B200 and those that run the same code; PTX for newer ones.
  set(architectures "80-real;90-real;100")
  if(nvcc_version VERSION_LESS 12.8)
    set(architectures "80-real;90")  # it does not know B200, which runs the PTX
  endif()
  # The release preset passes an empty list, which discards what tools/quickstart has set for this
  # machine alone.
  if(NOT TUTTI_CUDA_ARCHITECTURES)
    set(TUTTI_CUDA_ARCHITECTURES ${architectures} CACHE STRING "As CMAKE_CUDA_ARCHITECTURES" FORCE)
  endif()
  set(CMAKE_CUDA_COMPILER ${TUTTI_NVCC} CACHE FILEPATH "nvcc")
  set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER} CACHE FILEPATH "nvcc's host compiler")
  set(CMAKE_CUDA_ARCHITECTURES ${TUTTI_CUDA_ARCHITECTURES})
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  # Machine code is four times as large uncompressed; the driver unpacks it when it loads a module.
  set(TUTTI_CUDA_COMPRESS -Xfatbin=-compress-all)
  if(nvcc_version VERSION_GREATER_EQUAL 12.8)
    set(TUTTI_CUDA_COMPRESS --compress-mode=size)
  endif()
  message(STATUS "CUDA ${nvcc_version}: device code for ${TUTTI_CUDA_ARCHITECTURES}")
else()
  message(STATUS "CUDA: no device code (TUTTI_CUDA=${TUTTI_CUDA})")
endif()

# tutti_cuda_library(NAME SOURCES... LINK targets...): a static part of libtutti.so that holds
# device code. The CUDA runtime is linked in statically: it looks for the driver when it is first
# called, so programs start where there is neither driver nor toolkit, whatever their versions. What
# ptxas says of each kernel lies in <object>.resources.
function(tutti_cuda_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK" ${ARGN})
  add_library(${name} STATIC ${arg_SOURCES})
  set(launcher ${PROJECT_SOURCE_DIR}/cmake/keep_resources.sh)
  if(CCACHE_PROGRAM)
    list(APPEND launcher ${CCACHE_PROGRAM})
  endif()
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON CUDA_RUNTIME_LIBRARY None
                        CUDA_COMPILER_LAUNCHER "${launcher}")
  target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:${TUTTI_CUDA_COMPRESS}>)
  target_link_libraries(${name} PUBLIC tutti_options ${arg_LINK} CUDA::cudart_static)
  tutti_room(${name} PUBLIC)
endfunction()
