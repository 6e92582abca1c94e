# SPDX-License-Identifier: Apache-2.0
if(TARGET tutti-info)
  find_package(nlohmann_json REQUIRED)
  tutti_test(tutti_info_test SOURCES tutti_info_test.cpp
             LINK tutti_algorithms tutti_model tutti_base nlohmann_json::nlohmann_json)
  tutti_test(tutti_info_ranks_test SOURCES tutti_info_ranks_test.cpp
             LINK tutti tutti_base nlohmann_json::nlohmann_json)
  tutti_test(tutti_info_flight_test SOURCES tutti_info_flight_test.cpp
             LINK tutti tutti_base nlohmann_json::nlohmann_json)
  find_package(pugixml REQUIRED)
  tutti_test(tutti_info_topo_test SOURCES tutti_info_topo_test.cpp
             LINK tutti_topology nlohmann_json::nlohmann_json pugixml::pugixml)
  target_compile_definitions(tutti_info_topo_test
    PRIVATE TUTTI_FIXTURES="${PROJECT_SOURCE_DIR}/tests/fixtures/topology/")
  foreach(test tutti_info_test tutti_info_ranks_test tutti_info_flight_test tutti_info_topo_test)
    target_compile_definitions(${test} PRIVATE TUTTI_INFO="$<TARGET_FILE:tutti-info>")
    add_dependencies(${test} tutti-info)
  endforeach()
  tutti_test(tutti_info_ways_test
    SOURCES tutti_info_ways_test.cpp ${PROJECT_SOURCE_DIR}/tools/tutti-info/ways.cpp
    LINK tutti_comm tutti_control tutti_transports)
  tutti_test(stall_test
    SOURCES stall_test.cpp ${PROJECT_SOURCE_DIR}/tools/tutti-info/stall.cpp
            ${PROJECT_SOURCE_DIR}/tools/tutti-info/jobs.cpp
            ${PROJECT_SOURCE_DIR}/tools/tutti-info/ranks.cpp
    LINK tutti_comm nlohmann_json::nlohmann_json)
endif()
