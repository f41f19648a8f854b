#include <gtest/gtest.h>
#include <nn/generate.h>

#include <algorithm>
#include <cmath>

namespace fsdp {
namespace {

// A model that after token t gives `logit` to token t + 1, and 0 to each other token. After the
// last token of the vocabulary, token 0 follows.
class Successor : public Module {
 public:
  Successor(int64_t vocabulary, double logit) : vocabulary_(vocabulary), logit_(logit) {}

  torch::Tensor forward(torch::Tensor tokens) override {
    longest_ = std::max(longest_, tokens.size(1));
    return at::one_hot((tokens + 1) % vocabulary_, vocabulary_).to(at::kFloat) * logit_;
  }
  // Returns the length of the longest token sequence that forward() has received so far.
  int64_t longest() const { return longest_; }

 private:
  int64_t vocabulary_;
  double logit_;
  int64_t longest_{};
};

std::vector<int64_t> generated(Module& model, std::vector<int64_t> tokens, int64_t count,
                               const GenerateOptions& options) {
  std::vector<int64_t> result;
  generate(model, std::move(tokens), count, options,
           [&](int64_t token) { result.push_back(token); });
  return result;
}

using Tokens = std::vector<int64_t>;

TEST(Generate, generate_without_a_temperature_chooses_the_most_likely_token) {
  Successor model(5, 3.0);
  EXPECT_EQ(generated(model, {0, 3}, 4, {.context = 8, .ids = 5}), (Tokens{4, 0, 1, 2}));
  EXPECT_EQ(generated(model, {0, 3}, 0, {.context = 8, .ids = 5}), Tokens{});
}

TEST(Generate, generate_gives_the_model_no_more_tokens_than_its_context) {
  Successor model(5, 3.0);
  EXPECT_EQ(generated(model, {0, 0, 0, 1}, 5, {.context = 3, .ids = 5}), (Tokens{2, 3, 4, 0, 1}));
  EXPECT_EQ(model.longest(), 3);
  EXPECT_EQ(logits_of(model, {0, 0, 0, 1}, 3).sizes(), (at::IntArrayRef{3, 5}));
}

TEST(Generate, generate_stops_at_an_end_token_and_does_not_return_it) {
  Successor model(5, 3.0);
  const GenerateOptions options{.context = 8, .ids = 5, .end_tokens = {4, 2}};
  EXPECT_EQ(generated(model, {4}, 9, options), (Tokens{0, 1}));
  EXPECT_EQ(generated(model, {3}, 9, options), Tokens{});
  const auto count = [&](int64_t most) {
    return generate(model, {4}, most, options, [](int64_t) {});
  };
  EXPECT_EQ(count(9), 2);
  EXPECT_EQ(count(1), 1);
}

TEST(Generate, generate_never_chooses_an_id_that_stands_for_no_text) {
  Successor model(5, 3.0);
  const Tokens greedy = generated(model, {1}, 20, {.context = 8, .ids = 3});
  const Tokens drawn = generated(model, {1}, 200, {.context = 8, .ids = 3, .temperature = 10});
  for (const Tokens& tokens : {greedy, drawn})
    EXPECT_LT(*std::max_element(tokens.begin(), tokens.end()), 3);
}

TEST(Generate, generate_with_a_seed_is_repeatable_and_leaves_the_default_generator_unchanged) {
  Successor model(50, 1.0);
  const auto with_seed = [&](uint64_t seed) {
    return generated(model, {1}, 30, {.context = 8, .ids = 50, .temperature = 1, .seed = seed});
  };
  const Tokens first = with_seed(7);
  torch::manual_seed(1);
  const at::Tensor expected = torch::rand({3});
  torch::manual_seed(1);
  EXPECT_EQ(with_seed(7), first);
  EXPECT_TRUE(torch::rand({3}).equal(expected));
  EXPECT_NE(with_seed(8), first);
}

// The vocabulary has two tokens. The token that the model prefers has e^(logit / temperature) =
// 3^(1 / temperature) times the probability of the other one.
TEST(Generate, the_temperature_sets_the_probabilities_of_generated_tokens) {
  Successor model(2, std::log(3.0));
  const auto followers = [&](double temperature) {
    const Tokens tokens =
        generated(model, {0}, 2000, {.context = 1, .ids = 2, .temperature = temperature});
    int64_t count = tokens[0] == 1;
    for (size_t i = 1; i < tokens.size(); ++i)
      count += tokens[i] != tokens[i - 1];
    return static_cast<double>(count) / 2000;
  };
  // For 2000 tokens, the tolerance 0.03 is at least three standard deviations of the frequency.
  EXPECT_NEAR(followers(1.0), 3.0 / 4, 0.03);
  EXPECT_NEAR(followers(0.5), 9.0 / 10, 0.03);
  EXPECT_EQ(followers(1e-300), 1.0);
}

}  // namespace
}  // namespace fsdp
