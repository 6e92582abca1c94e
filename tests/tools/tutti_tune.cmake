# SPDX-License-Identifier: Apache-2.0
tutti_test(tutti_tune_test
  SOURCES tutti_tune_test.cpp ${PROJECT_SOURCE_DIR}/tools/tutti-tune/fit_costs.cpp
          ${PROJECT_SOURCE_DIR}/tools/tutti-tune/plans.cpp
  LINK tutti_comm tutti_lab LABELS tools)
target_include_directories(tutti_tune_test PRIVATE ${PROJECT_SOURCE_DIR}/tools)
target_compile_definitions(tutti_tune_test
  PRIVATE TUTTI_TUNE="$<TARGET_FILE:tutti-tune>"
          ALL_REDUCE_PERF="$<TARGET_FILE:all_reduce_perf>")
add_dependencies(tutti_tune_test tutti-tune all_reduce_perf)

tutti_test(tutti_validate_test SOURCES tutti_validate_test.cpp LINK tutti_model LABELS tools)
target_compile_definitions(tutti_validate_test
  PRIVATE TUTTI_VALIDATE="$<TARGET_FILE:tutti-validate>" TUTTI_SIM="$<TARGET_FILE:tutti-sim>"
          SCATTER_PERF="$<TARGET_FILE:scatter_perf>")
add_dependencies(tutti_validate_test tutti-validate tutti-sim scatter_perf)
