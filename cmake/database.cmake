# compile_commands.json, which editors and clang-tidy read, lists only files that are compiled one
# by one. So for each target with a unity build, this file defines a second target with the same
# files, which are then listed one by one. The second target is never built.
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
