#include <options/choices.h>

namespace fsdp {

void add_on_off(CLI::App& app, const std::string& name, bool& value, const std::string& help) {
  const std::vector<std::pair<std::string, bool>> words{{"on", true}, {"off", false}};
  add_choice(app, name, value, words, help + " (default " + (value ? "on" : "off") + ")");
}

}  // namespace fsdp
