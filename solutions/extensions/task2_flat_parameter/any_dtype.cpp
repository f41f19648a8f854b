#include <any_dtype.h>
#include <flat_parameter_impl.h>

namespace fsdp {

std::shared_ptr<FlatParameter> make_flat_parameter_of_any_dtype(
    std::string unit, std::vector<NamedParameter> parameters, std::shared_ptr<Communicator> comm,
    const FlatParameter::Materialize& materialize) {
  check_floating("unit " + unit, parameters);
  check_dtype(unit, parameters, dtype_of(parameters));
  return std::make_shared<FlatParameterImpl>(std::move(unit), std::move(parameters),
                                             std::move(comm), materialize);
}

}  // namespace fsdp
