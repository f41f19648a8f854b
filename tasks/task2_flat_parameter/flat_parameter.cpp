#include <base/todo.h>
#include <flat_parameter.h>
#include <memory/poison.h>
#include <memory/reclassify.h>
#include <memory/storage.h>
#include <meta_init.h>

#include <algorithm>
#include <stdexcept>

namespace fsdp {

FlatParameter::FlatParameter(std::string unit, std::vector<NamedParameter> parameters,
                             std::shared_ptr<Communicator> comm, const Materialize& materialize) {
  todo("FlatParameter::FlatParameter", "2.2");
}

bool FlatParameter::trainable() const {
  todo("FlatParameter::trainable", "2.2");
}

void FlatParameter::unshard_async() {
  todo("FlatParameter::unshard_async", "2.3");
}

void FlatParameter::unshard() {
  todo("FlatParameter::unshard", "2.3");
}

void FlatParameter::reshard() {
  todo("FlatParameter::reshard", "2.4");
}

void FlatParameter::collect_gradient(size_t index) {
  todo("FlatParameter::collect_gradient", "2.5");
}

bool FlatParameter::has_gradient() const {
  todo("FlatParameter::has_gradient", "2.5");
}

void FlatParameter::reduce_gradient() {
  todo("FlatParameter::reduce_gradient", "2.5");
}

void FlatParameter::wait_for_reduction() {
  todo("FlatParameter::wait_for_reduction", "2.5");
}

void FlatParameter::abandon_gradient() {
  todo("FlatParameter::abandon_gradient", "2.5");
}

}  // namespace fsdp
