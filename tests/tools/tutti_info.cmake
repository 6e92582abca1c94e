if(TARGET tutti-info)
  find_package(nlohmann_json REQUIRED)
  tutti_test(tutti_info_test SOURCES tutti_info_test.cpp
             LINK tutti_algorithms tutti_base nlohmann_json::nlohmann_json)
  target_compile_definitions(tutti_info_test PRIVATE TUTTI_INFO="$<TARGET_FILE:tutti-info>")
  add_dependencies(tutti_info_test tutti-info)
endif()
