// Shows which tensors share memory, and the three things that "the same tensor" can mean: the same
// TensorImpl, the same StorageImpl, or the same data_ptr.
#include <torch/torch.h>

#include <iostream>

int main() {
  auto show = [](const char* name, const at::Tensor& t) {
    std::cout << name << ": sizes " << t.sizes() << ", strides " << t.strides() << ", offset "
              << t.storage_offset() << ", storage of " << t.storage().nbytes() << " bytes\n";
  };
  at::Tensor flat = torch::arange(12, torch::kFloat);
  at::Tensor weight = flat.narrow(0, 0, 8).view({2, 4});
  at::Tensor bias = flat.narrow(0, 8, 3);
  show("flat      ", flat);
  show("weight    ", weight);
  show("weight.t()", weight.t());
  show("bias      ", bias);
  std::cout << "bias begins " << bias.data_ptr<float>() - flat.data_ptr<float>()
            << " floats after flat\n";
  bias.fill_(-1);
  std::cout << "flat after bias.fill_(-1):\n" << flat.view({1, 12}) << '\n';

  auto compare = [](const char* names, const at::Tensor& a, const at::Tensor& b) {
    auto same = [](bool yes) { return yes ? "same" : "different"; };
    std::cout << names << ": TensorImpl " << same(a.is_same(b)) << ", StorageImpl "
              << same(a.storage().is_alias_of(b.storage())) << ", data_ptr "
              << same(a.const_data_ptr() == b.const_data_ptr()) << '\n';
  };
  at::Tensor handle;
  handle = weight;
  compare("weight, handle         ", weight, handle);
  compare("weight, weight.t()     ", weight, weight.t());
  compare("weight, weight.detach()", weight, weight.detach());
  compare("weight, flat           ", weight, flat);
  compare("weight, bias           ", weight, bias);
  compare("weight, weight.clone() ", weight, weight.clone());

  weight.set_data(torch::zeros({2, 4}));
  std::cout << "after weight.set_data(zeros):\n";
  compare("weight, handle         ", weight, handle);
  compare("weight, flat           ", weight, flat);
}
