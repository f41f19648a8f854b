// Prints the order in which the hooks of three modules and of their parameters run.
#include <nn/gradient_hook.h>
#include <nn/module.h>

#include <iostream>

struct Scale : fsdp::Module {
  torch::Tensor forward(torch::Tensor x) override { return x * weight; }
  torch::Tensor weight = register_parameter("weight", torch::ones({2}));
};

struct Root : fsdp::Module {
  torch::Tensor forward(torch::Tensor x) override { return (*b)((*a)(x)); }
  std::shared_ptr<Scale> a = register_module("a", std::make_shared<Scale>());
  std::shared_ptr<Scale> b = register_module("b", std::make_shared<Scale>());
};

static void print_hooks(fsdp::Module& module, const std::string& name) {
  auto print = [name](const char* hook) { std::cout << "  " << name << ':' << hook; };
  auto forward = [print](const char* hook) {
    return [print, hook](fsdp::Module&, const at::Tensor&) { return print(hook), at::Tensor(); };
  };
  module.register_forward_pre_hook(forward("pre"));
  module.register_forward_hook(forward("post"));
  module.register_full_backward_pre_hook([print](fsdp::Module&) { print("pre"); });
  module.register_full_backward_hook([print](fsdp::Module&) { print("post"); });
  for (const at::Tensor& parameter : module.parameters(/*recurse=*/false))
    fsdp::register_post_accumulate_grad_hook(parameter, [print] { print("weight"); });
}

int main() {
  Root root;
  print_hooks(root, "root");
  print_hooks(*root.a, "a");
  print_hooks(*root.b, "b");
  for (const bool requires_grad : {true, false}) {
    std::cout << "an input that " << (requires_grad ? "requires" : "needs no") << " gradient:\n";
    std::cout << "forward: ";
    const at::Tensor output = root(torch::ones({2}).requires_grad_(requires_grad));
    std::cout << "\nbackward:";
    output.sum().backward();
    std::cout << '\n';
  }
}
