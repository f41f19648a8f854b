// Defines group_of() of update_rule.h. It has a file of its own because docs/step.html, the web
// page that predicts a step, compiles this function without LibTorch and so without
// update_rule.cpp.
#include <optim/update_rule.h>

#include <regex>
#include <stdexcept>

namespace fsdp {

size_t group_of(const std::string& parameter, const std::vector<ParameterGroup>& groups) {
  for (size_t i = 0; i < groups.size(); ++i) {
    if (groups[i].pattern.empty()) return i;
    try {
      if (std::regex_search(parameter, std::regex(groups[i].pattern))) return i;
    } catch (const std::regex_error& error) {
      throw std::invalid_argument("parameter group pattern '" + groups[i].pattern +
                                  "' is not a regular expression: " + error.what());
    }
  }
  throw std::invalid_argument("parameter '" + parameter +
                              "' is in no parameter group; end the list with an empty pattern");
}

}  // namespace fsdp
