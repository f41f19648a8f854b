#include <memory/live_bytes.h>
#include <meta_init.h>
#include <nn/models.h>
#include <optim/shard_layout.h>
#include <torch/nn.h>

#include "handout.h"

namespace fsdp {
namespace {

namespace nn = torch::nn;

constexpr int64_t kState = 5'056;  // [bytes] size of the state of a random generator

int64_t bytes_of(const nn::Module& module) {
  int64_t bytes = 0;
  for (const at::Tensor& parameter : module.parameters())
    bytes += parameter.numel() * 4;
  return bytes;
}

// Records a construction. Returns four values: the bytes that the record keeps, the peak of live
// bytes during the construction, the bytes of the parameters, and a text that lists the recorded
// operations.
Values recorded(const std::function<std::shared_ptr<nn::Module>()>& construct) {
  return observed_on(1, [&](TestRank& rank) {
    const int64_t before = live_bytes::now().total;
    live_bytes::enter(Phase::init);
    std::shared_ptr<nn::Module> module;
    const DeferredInit init([&] { module = construct(); });
    rank.observe("states", live_bytes::now().total - before);
    rank.observe("peak", live_bytes::peak().total - before);
    rank.observe("parameters", bytes_of(*module));
    std::string operations;
    for (const std::string& operation : init.operations())
      operations += (operations.empty() ? "" : ", ") + operation;
    rank.observe("operations", operations);
  });
}

TEST(HandoutOfTask1,
     the_answer_to_prediction_1_of_task_1_has_the_bytes_of_a_recorded_linear_layer) {
  const Values run = recorded([] { return nn::Linear(1024, 1024).ptr(); });
  expect_said(1, run, "4 x (1024 x 1024 + 1024) = {parameters} bytes.");
  expect_said(1, run, "so 2 x 5,056 = {states} bytes remain");
  expect_said(1, run, "4,194,304 + 5,056 = {peak} bytes.");
}

TEST(HandoutOfTask1,
     the_answer_to_prediction_2_of_task_1_lists_the_recorded_operations_of_a_linear_layer) {
  expect_said(1, recorded([] { return nn::Linear(4, 3).ptr(); }), "`{operations}`");
}

TEST(HandoutOfTask1,
     the_answer_to_prediction_3_of_task_1_has_the_bytes_of_the_generator_states_of_eight_layers) {
  const Values run = recorded([] {
    auto layers = std::make_shared<nn::Module>();
    for (int i = 0; i < 8; ++i)
      layers->register_module("layer" + std::to_string(i), nn::Linear(128, 128));
    at::NoGradGuard no_grad;
    for (at::Tensor& parameter : layers->parameters())
      parameter.normal_();
    return layers;
  });
  expect_said(1, run, "8 x 4 x 5,056 = {states} bytes.");
  expect_said(1, run, "8 x 4 x (128 x 128 + 128) = {parameters} bytes");
  expect_said(1, {{"ratio", (4 * 1600 * 6400 + 50 * kState) / kState / 100 * 100}}, "1/{ratio}");
}

TEST(HandoutOfTask1,
     the_answer_to_prediction_4_of_task_1_has_the_elements_and_gigabytes_of_gpt2_xl) {
  const Values run = observed_on(1, [](TestRank& rank) {
    std::shared_ptr<Module> model;
    construct_on_meta([&] { model = make_model("gpt2-1558m"); });
    int64_t elements = 0, largest = 0;
    for (const NamedParameter& parameter : distinct_parameters(*model)) {
      elements += parameter.tensor.numel();
      largest = std::max(largest, parameter.tensor.numel());
    }
    const auto gigabytes = [](int64_t numel) {
      return rounded(4e-9 * static_cast<double>(numel), 1);
    };
    rank.observe("elements", elements);
    rank.observe("largest", largest);
    rank.observe("GB", gigabytes(elements));
    rank.observe("GB of eight", gigabytes(8 * elements));
    rank.observe("GB of states", gigabytes(8 * largest));
    rank.observe("GB in all", gigabytes(elements + 8 * largest));
  });
  expect_said(
      1, run,
      "GPT-2 XL has N = {elements} elements. The model takes {GB} GB, and {GB of eight} GB on "
      "eight ranks");
  expect_said(1, run, "8 x 4 x {largest} = {GB of states} GB");
  expect_said(1, run, "together {GB in all} GB, not {GB of eight}.");
}

TEST(HandoutOfTask1,
     the_handout_of_task_1_has_the_number_of_randomly_filled_tensors_of_the_model_small) {
  const Values run = observed_on(1, [](TestRank& rank) {
    std::shared_ptr<Module> model;
    const int64_t before = live_bytes::now().total;
    const DeferredInit init([&] { model = make_model("small"); });
    rank.observe("drawn", (live_bytes::now().total - before) / kState);
    int64_t elements = 0, largest = 0, buffers = 0;
    for (const at::Tensor& parameter : model->parameters()) {
      elements += parameter.numel();
      largest = std::max(largest, parameter.numel());
    }
    for (const at::Tensor& buffer : model->buffers())
      buffers += static_cast<int64_t>(buffer.nbytes());
    rank.observe("elements", elements);
    rank.observe("buffers", buffers);
    EXPECT_EQ(largest, 256 * 1024);
  });
  expect_said(
      1, run,
      "`small` has {elements} parameter elements. Its constructor fills {drawn} tensors with "
      "random numbers. The largest of these tensors has 256 x 1024 elements of 4 bytes. A "
      "buffer of {buffers} bytes");
}

}  // namespace
}  // namespace fsdp
