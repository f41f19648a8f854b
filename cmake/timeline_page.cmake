# Makes a source file that contains the page of the HTML timeline as a string, and sets
# timeline_page_source to its path. The style and the scripts are inserted into the page.
set(folder ${PROJECT_SOURCE_DIR}/common/trace/page)
file(READ ${folder}/timeline.html timeline_page)
file(READ ${folder}/timeline.css part)
string(REPLACE "<link rel=\"stylesheet\" href=\"timeline.css\">" "<style>\n${part}</style>"
       timeline_page "${timeline_page}")
foreach(script data drawing moving)
  file(READ ${folder}/${script}.js part)
  string(REPLACE "<script src=\"${script}.js\"></script>" "<script>\n${part}</script>"
         timeline_page "${timeline_page}")
endforeach()

set(timeline_page_source ${PROJECT_BINARY_DIR}/timeline_page.cpp)
configure_file(${folder}/timeline_page.cpp.in ${timeline_page_source} @ONLY)
file(GLOB parts ${folder}/*)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${parts})
