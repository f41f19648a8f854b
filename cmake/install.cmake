# The target `fsdp`: what a program of its own needs of this repository, as one static library; and its
# installation as a CMake package. With `cmake --install build/default --prefix P`, or ./fsdp install P:
#   P/lib/libfsdp.a             the modules and the reference solution that `root` is linked to
#   P/include/fsdp/             their headers, to be included as here: <fully_shard.h>, <nn/module.h>
#   P/lib/cmake/fsdp/           find_package(fsdp), which gives the target fsdp::fsdp

set(root fsdp_cuda fsdp_state reference_task7)
if(TARGET fsdp_library)
  list(APPEND root fsdp_library)
endif()

# All that the root is linked to, directly or not.
set(below)
while(root)
  list(POP_FRONT root one)
  if(TARGET ${one} AND NOT one IN_LIST below)
    list(APPEND below ${one})
    get_target_property(bases ${one} INTERFACE_LINK_LIBRARIES)
    if(bases)
      list(APPEND root ${bases})
    endif()
  endif()
endwhile()

add_library(fsdp STATIC)
add_library(fsdp::fsdp ALIAS fsdp)  # as in an installed package
set_target_properties(fsdp PROPERTIES LINKER_LANGUAGE CXX)
if(NOT PROJECT_IS_TOP_LEVEL)
  set_target_properties(fsdp PROPERTIES EXCLUDE_FROM_ALL ON)
endif()
add_dependencies(everything fsdp)
target_compile_features(fsdp PUBLIC cxx_std_20)
target_include_directories(fsdp INTERFACE $<INSTALL_INTERFACE:include/fsdp>)
target_link_libraries(fsdp PUBLIC LibTorch::LibTorch Threads::Threads nlohmann_json::nlohmann_json
                      PRIVATE OpenSSL::Crypto)

# A module's headers keep their folder; those of the tasks and of library/ have names of their own.
set(folders ${PROJECT_SOURCE_DIR}/library)
foreach(library ${below})
  get_target_property(type ${library} TYPE)
  if(library STREQUAL "fsdp_contracts")
    get_target_property(own ${library} INTERFACE_INCLUDE_DIRECTORIES)
    list(APPEND folders ${own})
  endif()
  if(NOT type STREQUAL STATIC_LIBRARY)
    continue()
  endif()
  target_sources(fsdp PRIVATE $<TARGET_OBJECTS:${library}>)
  string(REGEX REPLACE "^fsdp_" "" module ${library})
  file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/common/${module}/*.h
       ${PROJECT_SOURCE_DIR}/trainer/${module}/*.h)
  install(FILES ${headers} DESTINATION include/fsdp/${module})
  get_target_property(own ${library} INTERFACE_INCLUDE_DIRECTORIES)
  if(own)
    list(APPEND folders ${own})
  endif()
endforeach()
list(REMOVE_DUPLICATES folders)
target_include_directories(fsdp INTERFACE
                           "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/common;${folders}>")
list(TRANSFORM folders APPEND /*.h)
file(GLOB headers CONFIGURE_DEPENDS ${folders})
install(FILES ${headers} DESTINATION include/fsdp)

set(package lib/cmake/fsdp)
install(TARGETS fsdp EXPORT fsdp ARCHIVE DESTINATION lib)
install(EXPORT fsdp NAMESPACE fsdp:: FILE fsdpTargets.cmake DESTINATION ${package})
configure_file(cmake/fsdpConfig.cmake.in fsdpConfig.cmake @ONLY)
include(CMakePackageConfigHelpers)
write_basic_package_version_file(fsdpConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/fsdpConfig.cmake ${PROJECT_BINARY_DIR}/fsdpConfigVersion.cmake
              cmake/FindLibTorch.cmake cmake/locate_libtorch.cmake
        DESTINATION ${package})
