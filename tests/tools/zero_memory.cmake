# SPDX-License-Identifier: Apache-2.0
find_package(nlohmann_json REQUIRED)
find_package(pugixml REQUIRED)
tutti_test(zero_memory_formulas_test SOURCES zero_memory_formulas_test.cpp
           LINK tutti_zero_memory_parts)
tutti_test(zero_memory_advise_test SOURCES zero_memory_advise_test.cpp
           LINK tutti_zero_memory_parts)
tutti_test(zero_memory_test SOURCES zero_memory_test.cpp
           LINK tutti_zero_memory_parts nlohmann_json::nlohmann_json pugixml::pugixml)
target_compile_definitions(zero_memory_test PRIVATE ZERO_MEMORY="$<TARGET_FILE:zero_memory>")
add_dependencies(zero_memory_test zero_memory)
# To the byte what the sharded optimizer allocates.
tutti_test(zero_memory_engine_test SOURCES zero_memory_engine_test.cpp
           LINK tutti_zero_memory tutti_zero_parts)
