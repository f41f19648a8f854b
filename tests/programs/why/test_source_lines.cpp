#include <gtest/gtest.h>
#include <why/source_lines.h>

namespace fsdp {
namespace {

TEST(SourceLines, a_name_loses_its_namespaces_and_its_arguments) {
  EXPECT_EQ(short_name("fsdp::(anonymous namespace)::Hooks::reduce(fsdp::Unit&) const"),
            "Hooks::reduce");
}

TEST(SourceLines, a_lambda_is_named_after_the_function_that_contains_it) {
  const std::string named = "Hooks::add, in a lambda";
  EXPECT_EQ(short_name("fsdp::Hooks::add(fsdp::Module&)::$_0::operator()(int) const"), named);
  EXPECT_EQ(short_name("fsdp::Hooks::add(fsdp::Module&)::{lambda(int)#1}::operator()(int) const"),
            named);
}

TEST(SourceLines, a_lambda_that_a_std_function_calls_is_named_like_other_lambdas) {
  EXPECT_EQ(short_name("std::_Function_handler<at::Tensor (fsdp::Module&, at::Tensor const&), "
                       "fsdp::Hooks::add(fsdp::Module&, std::shared_ptr<int>)::$_0>::_M_invoke("
                       "std::_Any_data const&, fsdp::Module&, at::Tensor const&)"),
            "Hooks::add, in a lambda");
}

TEST(SourceLines, the_name_of_a_templates_function_loses_its_return_type) {
  EXPECT_EQ(short_name("void fsdp::Optimizer::visit<int>(int const&)"), "Optimizer::visit");
}

}  // namespace
}  // namespace fsdp
