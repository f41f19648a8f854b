#include <base/todo.h>
#include <c10/util/ScopeExit.h>
#include <meta_init.h>
#include <nn/construction.h>
#include <torch/library.h>

#include <algorithm>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace fsdp {

struct Tape {};

void construct_on_meta(const std::function<void()>& construct) {
  todo("construct_on_meta", "1.1");
}

DeferredInit::DeferredInit(const std::function<void()>& construct) {
  todo("DeferredInit::DeferredInit", "1.1");
}

DeferredInit::~DeferredInit() = default;

void DeferredInit::materialize_module(torch::nn::Module& module) const {
  todo("DeferredInit::materialize_module", "1.2");
}

void assign_data(const at::Tensor& variable, const at::Tensor& data) {
  todo("assign_data", "1.2");
}

at::Tensor DeferredInit::materialize_tensor(const at::Tensor& tensor) const {
  todo("DeferredInit::materialize_tensor", "1.3");
}

std::vector<std::string> DeferredInit::operations() const {
  todo("DeferredInit::operations", "1.1");
}

}  // namespace fsdp
