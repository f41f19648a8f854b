# compile_commands.json, for editors and clang-tidy, names only files that are compiled by
# themselves. So each library or program whose files are compiled together has a twin that is never
# built.
get_property(targets DIRECTORY PROPERTY BUILDSYSTEM_TARGETS)
foreach(target ${targets})
  get_target_property(together ${target} UNITY_BUILD)
  if(together)
    get_target_property(sources ${target} SOURCES)
    list(FILTER sources INCLUDE REGEX "\\.cpp$")
    add_library(${target}_twin OBJECT EXCLUDE_FROM_ALL ${sources})
    foreach(property LINK_LIBRARIES INCLUDE_DIRECTORIES)
      get_property(value TARGET ${target} PROPERTY ${property})
      set_property(TARGET ${target}_twin PROPERTY ${property} "${value}")
    endforeach()
  endif()
endforeach()
