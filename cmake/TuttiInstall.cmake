# SPDX-License-Identifier: Apache-2.0
# The installed tree: headers, libtutti.so, the programs, and the files by which others find them
# (find_package(tutti) and pkg-config). All of it may be moved as a whole: every path inside is
# relative. Included last, so that the targets exist.
if(NOT TARGET tutti)
  message(STATUS "TuttiInstall: no target 'tutti', nothing to install")
  return()
endif()
include(CMakePackageConfigHelpers)

# Exports the C functions alone: without the list, every template of the standard library that the
# code instantiates would be a symbol of the library too.
set_target_properties(tutti PROPERTIES LINK_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/tutti.map)
target_link_options(tutti PRIVATE LINKER:--version-script=${CMAKE_CURRENT_LIST_DIR}/tutti.map)
if(NOT TARGET tutti::tutti)
  add_library(tutti::tutti ALIAS tutti)
  add_library(tutti::cpp ALIAS tutti_cpp)
  add_library(tutti::zero ALIAS tutti_zero)
endif()

set_target_properties(tutti_zero PROPERTIES INSTALL_RPATH "$ORIGIN")
install(TARGETS tutti tutti_cpp tutti_zero EXPORT tuttiTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/tutti DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# From a program's folder to the library's.
file(RELATIVE_PATH bin_to_lib ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
foreach(program all_gather_perf all_reduce_perf alltoall_perf alltoallv_perf broadcast_perf
        gather_perf hypercube_perf reduce_perf reduce_scatter_perf scatter_perf sendrecv_perf regret
        tutti-plan tutti-info tutti-sim tutti-tune tutti-validate zero_gpt zero_memory)
  if(TARGET ${program})
    set_target_properties(${program} PROPERTIES INSTALL_RPATH "$ORIGIN/${bin_to_lib}")
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()

# Runs the perf tools beside other libraries; its modules and the programs that it compiles.
if(TARGET all_reduce_perf)
  install(PROGRAMS ${PROJECT_SOURCE_DIR}/perf/tutti_perf.py DESTINATION ${CMAKE_INSTALL_BINDIR}
          RENAME tutti_perf)
  install(FILES ${PROJECT_SOURCE_DIR}/perf/compare_libraries.py
                ${PROJECT_SOURCE_DIR}/perf/compare_report.py ${PROJECT_SOURCE_DIR}/perf/hosts.py
                ${PROJECT_SOURCE_DIR}/perf/perf_page.py
          DESTINATION ${CMAKE_INSTALL_DATADIR}/tutti/perf)
  install(FILES ${PROJECT_SOURCE_DIR}/perf/compare_mpi/collectives.h
                ${PROJECT_SOURCE_DIR}/perf/compare_mpi/mpi_collective.c
                ${PROJECT_SOURCE_DIR}/perf/compare_mpi/gloo_collective.cpp
          DESTINATION ${CMAKE_INSTALL_DATADIR}/tutti/perf/compare_mpi)
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tutti)
install(EXPORT tuttiTargets NAMESPACE tutti:: DESTINATION ${package_dir})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/tuttiConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/package/tuttiConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/package/tuttiConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/package/tuttiConfig.cmake
              ${PROJECT_BINARY_DIR}/package/tuttiConfigVersion.cmake
        DESTINATION ${package_dir})

# From the folder of tutti.pc to the prefix.
file(RELATIVE_PATH TUTTI_PC_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" TUTTI_PC_PREFIX "${TUTTI_PC_PREFIX}")
configure_file(${CMAKE_CURRENT_LIST_DIR}/tutti.pc.in ${PROJECT_BINARY_DIR}/package/tutti.pc @ONLY)
configure_file(${CMAKE_CURRENT_LIST_DIR}/tutti-zero.pc.in
               ${PROJECT_BINARY_DIR}/package/tutti-zero.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/package/tutti.pc ${PROJECT_BINARY_DIR}/package/tutti-zero.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
