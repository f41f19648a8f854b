# The programs of appendix/: the target appendix_NAME is built from one file and the libraries that
# students get. The target appendix_programs builds all of these programs.

add_custom_target(appendix_programs)
file(GLOB appendix_sources CONFIGURE_DEPENDS appendix/*.cpp)
foreach(source ${appendix_sources})
  cmake_path(GET source STEM name)
  add_executable(appendix_${name} EXCLUDE_FROM_ALL ${source})
  target_link_libraries(appendix_${name} PRIVATE fsdp_given fsdp_ranks)
  target_precompile_headers(appendix_${name} REUSE_FROM fsdp_memory)
  add_dependencies(appendix_programs appendix_${name})
endforeach()
