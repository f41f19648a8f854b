#include <base/todo.h>
#include <flat_parameter.h>
#include <memory/poison.h>
#include <memory/reclassify.h>
#include <memory/storage.h>
#include <meta_init.h>

#include <algorithm>
#include <stdexcept>

namespace fsdp {

class FlatParameterImpl final : public FlatParameter {
 public:
  FlatParameterImpl(std::string unit, std::vector<NamedParameter> parameters,
                    std::shared_ptr<Communicator> comm, const Materialize& materialize);

  bool trainable() const override;
  void unshard_async() override;
  void unshard() override;
  void reshard() override;
  void mark_gradient_ready(size_t index) override;
  bool has_gradient() const override;
  void reduce_gradient() override;
  void wait_for_reduction() override;
  void discard_unreduced_gradients() override;

 private:
  // Add what you need.
};

FlatParameterImpl::FlatParameterImpl(std::string unit, std::vector<NamedParameter> parameters,
                                     std::shared_ptr<Communicator> comm,
                                     const Materialize& materialize) {
  todo("make_flat_parameter", "2.2");
}

bool FlatParameterImpl::trainable() const {
  todo("FlatParameter::trainable", "2.2");
}

void FlatParameterImpl::unshard_async() {
  todo("FlatParameter::unshard_async", "2.3");
}

void FlatParameterImpl::unshard() {
  todo("FlatParameter::unshard", "2.3");
}

void FlatParameterImpl::reshard() {
  todo("FlatParameter::reshard", "2.4");
}

void FlatParameterImpl::mark_gradient_ready(size_t index) {
  todo("FlatParameter::mark_gradient_ready", "2.5");
}

bool FlatParameterImpl::has_gradient() const {
  todo("FlatParameter::has_gradient", "2.5");
}

void FlatParameterImpl::reduce_gradient() {
  todo("FlatParameter::reduce_gradient", "2.5");
}

void FlatParameterImpl::wait_for_reduction() {
  todo("FlatParameter::wait_for_reduction", "2.5");
}

void FlatParameterImpl::discard_unreduced_gradients() {
  todo("FlatParameter::discard_unreduced_gradients", "2.5");
}

std::shared_ptr<FlatParameter> make_flat_parameter(std::string unit,
                                                   std::vector<NamedParameter> parameters,
                                                   std::shared_ptr<Communicator> comm,
                                                   const FlatParameter::Materialize& materialize) {
  return std::make_shared<FlatParameterImpl>(std::move(unit), std::move(parameters),
                                             std::move(comm), materialize);
}

}  // namespace fsdp
