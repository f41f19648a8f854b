#pragma once

#include <cstdlib>
#include <map>
#include <string>

namespace fsdp {

using Variables = std::map<std::string, std::string>;

// While this object lives, the environment has `variables`, and torchrun's variables are unset
// unless they are among them. A variable with an empty value is unset. The destructor restores the
// former values.
class SetVariables {
 public:
  explicit SetVariables(Variables variables) {
    for (const char* name :
         {"RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
          "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"})
      variables.emplace(name, "");
    for (const auto& [name, value] : variables) {
      const char* former = std::getenv(name.c_str());
      former_[name] = former != nullptr ? former : "";
      set(name, value);
    }
  }
  ~SetVariables() {
    for (const auto& [name, value] : former_)
      set(name, value);
  }
  SetVariables(const SetVariables&) = delete;
  SetVariables& operator=(const SetVariables&) = delete;

 private:
  static void set(const std::string& name, const std::string& value) {
    value.empty() ? unsetenv(name.c_str()) : setenv(name.c_str(), value.c_str(), 1);
  }
  Variables former_;
};

}  // namespace fsdp
