# SPDX-License-Identifier: Apache-2.0
tutti_test(tutti_sim_test SOURCES tutti_sim_test.cpp LINK tutti_sim_parts)
target_compile_definitions(tutti_sim_test PRIVATE TUTTI_SIM="$<TARGET_FILE:tutti-sim>"
                           TUTTI_FIXTURES="${PROJECT_SOURCE_DIR}/tests/fixtures")
add_dependencies(tutti_sim_test tutti-sim)
