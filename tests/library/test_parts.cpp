#include <full_tensor.h>
#include <this_ranks_part.h>
#include <torch/nn/utils/convert_parameters.h>

#include <common/expect_text.h>
#include <library/models.h>
#include <library/one_process.h>

#include <sstream>

// Tests which operators can run on this rank's part of a parameter or of its gradient.
namespace fsdp {
namespace {

using Tensors = std::vector<at::Tensor>;

// An operator under test. `call` runs it on `x`; an operator with two operands also uses `y`, which
// is of the same kind as `x`.
struct Operator {
  std::string name;
  std::function<at::Tensor(const at::Tensor& x, const at::Tensor& y)> call;
};

// Returns a copy of `x`. In-place operators write to this copy, so that they do not change `x`.
at::Tensor copy_of(const at::Tensor& x) {
  return x.detach().clone();
}

const std::vector<Operator> kElementwise{
    {"add", [](const auto& x, const auto& y) { return x + y; }},
    {"mul", [](const auto& x, const auto& y) { return x * y; }},
    {"a second operand", [](const auto& x, const auto& y) { return at::zeros(x.sizes()) - y; }},
    {"sub of a number", [](const auto& x, const auto&) { return x - 1; }},
    {"rsub", [](const auto& x, const auto&) { return 1 - x; }},
    {"div by a scalar tensor", [](const auto& x, const auto&) { return x / at::tensor(3.0F); }},
    {"multiply", [](const auto& x, const auto& y) { return at::multiply(x, y); }},
    {"square", [](const auto& x, const auto&) { return x.square(); }},
    {"pow", [](const auto& x, const auto&) { return x.pow(3); }},
    {"abs", [](const auto& x, const auto&) { return x.abs(); }},
    {"sqrt of abs", [](const auto& x, const auto&) { return x.abs().sqrt(); }},
    {"exp", [](const auto& x, const auto&) { return x.exp(); }},
    {"sign", [](const auto& x, const auto&) { return x.sign(); }},
    {"clamp", [](const auto& x, const auto&) { return x.clamp(-0.1, 0.1); }},
    {"maximum", [](const auto& x, const auto& y) { return at::maximum(x, y); }},
    {"max of two", [](const auto& x, const auto& y) { return x.max(y); }},
    {"where", [](const auto& x, const auto& y) { return at::where(x > y, x, y); }},
    {"where of a number", [](const auto& x, const auto&) { return at::where(x > 0, x, 0.0); }},
    {"lerp", [](const auto& x, const auto& y) { return x.lerp(y, 0.3); }},
    {"addcmul", [](const auto& x, const auto& y) { return x.addcmul(y, y, 2); }},
    {"nan_to_num", [](const auto& x, const auto&) { return x.nan_to_num(); }},
    {"isfinite", [](const auto& x, const auto&) { return x.isfinite(); }},
    {"isclose", [](const auto& x, const auto& y) { return x.isclose(y); }},
    {"masked_fill", [](const auto& x, const auto& y) { return x.masked_fill(y > 0, 2); }},
    {"in place", [](const auto& x, const auto& y) { return copy_of(x).add_(y).mul_(2).neg_(); }},
    {"addcdiv_", [](const auto& x, const auto& y) { return copy_of(x).addcdiv_(y, y.abs() + 1); }},
    {"clamp_", [](const auto& x, const auto&) { return copy_of(x).clamp_(-0.1, 0.1); }},
    {"fill_", [](const auto& x, const auto&) { return copy_of(x).fill_(3); }},
    {"eq_", [](const auto& x, const auto& y) { return copy_of(x).eq_(y); }},
    {"out",
     [](const auto& x, const auto& y) {
       at::Tensor out = at::empty(x.sizes());
       return at::mul_out(out, x, y);
     }},
    {"what is written to", [](const auto& x, const auto&) { return at::zeros(x.sizes()).add_(x); }},
    {"copy_", [](const auto& x, const auto&) { return at::zeros(x.sizes()).copy_(x); }},
    {"a piece that is written to",
     [](const auto& x, const auto&) {
       at::Tensor larger = at::zeros({x.numel() + 3});
       larger.narrow(0, 2, x.numel()).copy_(x.detach().flatten());
       return larger;
     }},
    {"zeros_like", [](const auto& x, const auto&) { return at::zeros_like(x); }},
    {"clone", [](const auto& x, const auto&) { return x.clone(); }},
    {"detach", [](const auto& x, const auto&) { return x.detach(); }},
    {"data", [](const auto& x, const auto&) { return x.data(); }},
    {"view_as", [](const auto& x, const auto& y) { return x.view_as(y); }},
    {"flatten", [](const auto& x, const auto&) { return x.flatten(); }},
    {"reshape", [](const auto& x, const auto&) { return x.reshape({-1}); }},
    {"contiguous", [](const auto& x, const auto&) { return x.contiguous(); }},
    {"to a dtype", [](const auto& x, const auto&) { return x.to(at::kDouble); }},
    {"cpu", [](const auto& x, const auto&) { return x.cpu(); }},
    {"foreach_add",
     [](const auto& x, const auto& y) {
       return at::_foreach_add({x, y}, 1.0)[1];
     }},
    {"foreach in place",
     [](const auto& x, const auto& y) {
       const Tensors all{copy_of(x), copy_of(y)};
       at::_foreach_mul_(all, 0.5);
       at::_foreach_addcmul_(all, {y, x}, {x, y});
       return all[1];
     }},
    {"cat",
     [](const auto& x, const auto& y) {
       return at::cat({x.flatten(), y.flatten()});
     }},
    {"a piece of cat", [](const auto& x, const auto& y) {
       const int64_t end = x.numel() + y.numel();
       return (at::cat({x.flatten(), y.flatten()}) * 2).slice(0, x.numel(), end).view_as(y);
     }}};

const std::vector<Operator> kReductions{
    {"aten::norm", [](const auto& x, const auto&) { return x.norm(); }},
    {"aten::norm", [](const auto& x, const auto&) { return x.norm(1); }},
    {"aten::linalg_vector_norm",
     [](const auto& x, const auto&) { return at::linalg_vector_norm(x); }},
    {"aten::sum", [](const auto& x, const auto&) { return x.sum(); }},
    {"aten::sum", [](const auto& x, const auto&) { return x.sum(-1); }},
    {"aten::mean", [](const auto& x, const auto&) { return x.mean(); }},
    {"aten::std", [](const auto& x, const auto&) { return x.std(); }},
    {"aten::var", [](const auto& x, const auto&) { return x.var(); }},
    {"aten::max", [](const auto& x, const auto&) { return x.max(); }},
    {"aten::max", [](const auto& x, const auto&) { return std::get<0>(x.max(0)); }},
    {"aten::amax", [](const auto& x, const auto&) { return x.amax(); }},
    {"aten::aminmax", [](const auto& x, const auto&) { return std::get<1>(x.aminmax()); }},
    {"aten::argmax", [](const auto& x, const auto&) { return x.argmax(); }},
    {"aten::prod", [](const auto& x, const auto&) { return x.prod(); }},
    {"aten::count_nonzero", [](const auto& x, const auto&) { return x.count_nonzero(); }},
    {"aten::median", [](const auto& x, const auto&) { return x.median(); }},
    {"aten::quantile", [](const auto& x, const auto&) { return x.quantile(0.5); }},
    {"aten::dot", [](const auto& x, const auto& y) { return at::dot(x.flatten(), y.flatten()); }},
    {"aten::all", [](const auto& x, const auto&) { return x.isfinite().all(); }},
    {"aten::any", [](const auto& x, const auto&) { return x.isnan().any(); }},
    {"aten::sum", [](const auto& x, const auto& y) { return (x * y).sum(); }},
    {"aten::sum", [](const auto& x, const auto&) { return x.square().sum(); }},
    {"aten::sum", [](const auto&, const auto& y) { return (at::ones(y.sizes()) * y).sum(); }},
    {"aten::norm", [](const auto& x, const auto&) { return x.data().norm(); }},
    {"aten::norm", [](const auto& x, const auto&) { return x.detach().to(at::kDouble).norm(); }},
    {"aten::norm",
     [](const auto& x, const auto& y) {
       return at::cat({x.flatten(), y.flatten()}).norm();
     }},
    {"aten::_foreach_norm",
     [](const auto& x, const auto& y) {
       return at::_foreach_norm({x, y})[0];
     }},
    {"aten::_foreach_max",
     [](const auto& x, const auto& y) {
       return at::_foreach_max({x, y})[0];
     }},
    {"aten::equal",
     [](const auto& x, const auto& y) { return at::scalar_tensor(at::equal(x, y) ? 1 : 0); }},
    {"aten::allclose",
     [](const auto& x, const auto& y) { return at::scalar_tensor(x.allclose(y) ? 1 : 0); }}};

const std::vector<Operator> kOfPositions{
    {"aten::select", [](const auto& x, const auto&) { return x[0]; }},
    {"aten::select",
     [](const auto& x, const auto&) {
       std::ostringstream() << x;
       return x;
     }},
    {"aten::slice", [](const auto& x, const auto&) { return x.slice(0, 0, 1); }},
    {"aten::alias",
     [](const auto& x, const auto&) {
       using torch::indexing::Slice;
       return x.index({Slice(0, 1 << 20), Slice()});
     }},
    {"aten::slice",
     [](const auto& x, const auto& y) {
       return at::cat({x.flatten(), y.flatten()}).slice(0, 0, 1);
     }},
    {"aten::index", [](const auto& x, const auto&) { return x.index({x > 0}); }},
    {"aten::masked_select", [](const auto& x, const auto&) { return x.masked_select(x > 0); }},
    {"aten::stack",
     [](const auto& x, const auto& y) {
       return at::stack({x, y});
     }},
    {"aten::expand",
     [](const auto& x, const auto&) {
       return x.flatten().expand({2, x.numel()});
     }},
    {"aten::cumsum", [](const auto& x, const auto&) { return x.cumsum(0); }},
    {"aten::sort", [](const auto& x, const auto&) { return std::get<0>(x.sort()); }},
    {"aten::topk", [](const auto& x, const auto&) { return std::get<0>(x.topk(1)); }},
    {"aten::flip", [](const auto& x, const auto&) { return x.flip(0); }},
    {"aten::softmax", [](const auto& x, const auto&) { return x.softmax(-1); }},
    {"aten::matmul", [](const auto& x, const auto& y) { return at::matmul(x, y.t()); }},
    {"aten::renorm", [](const auto& x, const auto&) { return x.renorm(2, 0, 1); }},
    {"aten::normal_", [](const auto& x, const auto&) { return copy_of(x).normal_(); }},
    {"aten::randn_like", [](const auto& x, const auto&) { return at::randn_like(x); }},
    {"aten::dropout", [](const auto& x, const auto&) { return at::dropout(x, 0.5, true); }}};

// Operands for the tests: two parameters, their gradients, and tensors that were computed from
// them. With three or four ranks, some ranks own no element of these parameters.
struct Parts {
  explicit Parts(TestRank& rank) : sharded(rank) {
    loss_of(*sharded.net, rank).backward();
    auto named = sharded.model.named_parameters();
    parameters = {named["b0.linear.weight"], named["b1.linear.weight"]};
  }
  struct Pair {
    std::string kind;
    at::Tensor x, y;
  };
  std::vector<Pair> pairs() const {
    const auto& [p, q] = std::pair(parameters[0], parameters[1]);
    return {{"parameter b0.linear.weight", p, q},
            {"the gradient of parameter b0.linear.weight", p.grad(), q.grad()},
            {"computed from parameter b0.linear.weight", p * 2, q * 2},
            {"computed from the gradient of parameter b0.linear.weight", p.grad().square() + 1,
             q.grad().clone()}};
  }
  ShardedNet sharded;
  Tensors parameters;
};

MULTI_RANK_SUITE(RankPart);

MULTI_RANK_TEST(RankPart, elementwise_operators_on_a_ranks_part_return_a_part) {
  run_ranks(world_size(), [](TestRank& rank) {
    const Parts parts(rank);
    const at::NoGradGuard no_grad;
    for (const auto& [kind, x, y] : parts.pairs())
      for (const Operator& op : kElementwise) {
        SCOPED_TRACE(op.name + " of " + kind);
        const at::Tensor expected = op.call(this_ranks_part(x), this_ranks_part(y));
        const at::Tensor result = op.call(x, y);
        EXPECT_TRUE(at::equal(this_ranks_part(result), expected));
        if (rank.world_size() == 1) continue;
        EXPECT_CONTAINS(error_of([&] { result.to(at::kFloat).cumsum(0); }), "this rank's part");
      }
  });
}

void expect_refusals(TestRank& rank, const std::vector<Operator>& ops,
                     const std::vector<std::string>& words) {
  const Parts parts(rank);
  const at::NoGradGuard no_grad;
  for (const auto& [kind, x, y] : parts.pairs())
    for (const Operator& op : ops) {
      // Skips a part of fewer than two elements, because select and slice may return it unchanged.
      if (x.numel() < 2) continue;
      SCOPED_TRACE(op.name + " of " + kind);
      const std::string error = error_of([&, x = x, y = y] { op.call(x, y); });
      EXPECT_TRUE(error.starts_with(op.name + " of ")) << error;
      for (const std::string& word : words)
        EXPECT_CONTAINS(error, word);
      EXPECT_CONTAINS(error, "parameter b");
      const bool is_gradient = kind.find("gradient") != std::string::npos;
      EXPECT_EQ(error.find("gradient of") != std::string::npos, is_gradient) << error;
    }
}

MULTI_RANK_SUITE_ON(RankPartOnSeveralRanks, 2, 3, 4);

MULTI_RANK_TEST(RankPart, a_reduction_of_a_ranks_part_returns_that_of_the_whole_tensor) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const Parts parts(rank);
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> results;
    for (const auto& [kind, x, y] : parts.pairs()) {
      const at::Tensor whole_x = full_tensor(x), whole_y = full_tensor(y);
      for (const Operator& op : kReductions) {
        SCOPED_TRACE(op.name + " of " + kind);
        const at::Tensor expected = op.call(whole_x, whole_y);
        const at::Tensor result = op.call(x, y);
        EXPECT_TRUE(at::equal(result, expected)) << result << expected;
        results.push_back(result.to(at::kDouble).flatten());
      }
    }
    rank.observe("results", at::cat(results));
  });
  expect_same_on_all_ranks(run, "results");
}

MULTI_RANK_TEST(RankPartOnSeveralRanks,
                operators_on_a_part_that_depend_on_positions_or_draw_random_numbers_throw) {
  run_ranks(world_size(), [](TestRank& rank) {
    expect_refusals(rank, kOfPositions, {"this rank's part", "this_ranks_part("});
  });
}

MULTI_RANK_TEST(RankPartOnSeveralRanks,
                errors_of_operators_on_a_part_name_the_functions_to_call_instead) {
  run_ranks(world_size(), [](TestRank& rank) {
    const Parts parts(rank);
    const at::Tensor& p = parts.parameters[0];
    for (const at::Tensor& part : {p, p.grad()})
      EXPECT_CONTAINS(error_of([&] { part.sort(); }), "full_tensor(tensor) gathers");
    EXPECT_CONTAINS(error_of([&] { at::linear(at::ones({2, 7}), p); }), "full_tensor(tensor)");
    EXPECT_CONTAINS(error_of([&] { p.detach().normal_(); }), "summon_full_params()");
    const at::NoGradGuard no_grad;
    const auto mask = error_of([&] { at::Tensor(p).mul_(at::ones({5})); });
    EXPECT_CONTAINS(mask, "and another operand has 5; give it tensors that are cut as the part is");
    EXPECT_CONTAINS(error_of([&] { at::ones({7, 7}).add_(p); }), "and another operand has 49");
  });
}

MULTI_RANK_TEST(RankPartOnSeveralRanks,
                an_operand_of_the_whole_tensors_sizes_is_cut_as_the_part_is) {
  run_ranks(world_size(), [](TestRank& rank) {
    const Parts parts(rank);
    const at::NoGradGuard no_grad;
    const at::Tensor& p = parts.parameters[0];
    const at::Tensor whole = full_tensor(p).clone(), row = at::arange(7.0), mask = whole > 0;
    const auto same = [](const at::Tensor& part, const at::Tensor& expected) {
      return at::equal(full_tensor(part), expected);
    };
    EXPECT_TRUE(same(p * whole, whole * whole));
    EXPECT_TRUE(same(row - p, row - whole));
    EXPECT_TRUE(same(p.masked_fill(mask, 3), whole.masked_fill(mask, 3)));
    const Tensors parts_of{p, p}, factors{row, row.view({7, 1})};
    EXPECT_TRUE(same(at::_foreach_mul(parts_of, factors)[1], whole * factors[1]));
    at::Tensor(p).copy_(whole + 1);
    EXPECT_TRUE(same(p, whole + 1));
  });
}

// A reduction over a part gathers the whole tensor first. If it gets a view of a part, and can't
// tell which elements of the parameter the view has, it must throw.
MULTI_RANK_TEST(RankPartOnSeveralRanks,
                reductions_of_transposed_or_reshaped_parts_are_right_or_throw) {
  run_ranks(world_size(), [](TestRank& rank) {
    const Parts parts(rank);
    const at::NoGradGuard no_grad;
    const at::Tensor p = parts.parameters[0], whole = full_tensor(p);
    const auto refused = [](const std::function<void()>& call) { return !error_of(call).empty(); };
    EXPECT_TRUE(refused([&] { p.squeeze().sum(0); }));
    EXPECT_TRUE(refused([&] { p.view({1, -1}).sum(1); }));
    EXPECT_TRUE(refused([&] { p.reshape({1, -1}).sum(1); }));
    EXPECT_TRUE(refused([&] { p.t().norm(); }));
    EXPECT_TRUE(refused([&] { p.sum_to_size({1, 1}); }));
    EXPECT_TRUE(refused([&] { at::cat({p, p}, 1).norm(); }));
    EXPECT_TRUE(refused([&] { at::where(p > 0); }));
    EXPECT_TRUE(refused([&] {
      at::Tensor out = at::zeros_like(p);
      at::sum_out(out, p, {0});
    }));
    if (p.numel() > 1) {
      EXPECT_TRUE(refused([&] { (p.flatten() - p.t().flatten()).norm(); }));
      EXPECT_TRUE(refused([&] { (p.unsqueeze(0) * at::arange(7.0)).sum(); }));
    }
    EXPECT_TRUE(at::equal(p.flatten().view(p.sizes()).sum(0), whole.sum(0)));
    EXPECT_TRUE(at::equal(p.flatten().view_as(p).sum(0), whole.sum(0)));
    EXPECT_TRUE(at::equal((p.flatten() * at::arange(49.0)).sum(),
                          (whole.flatten() * at::arange(49.0)).sum()));
  });
}

MULTI_RANK_TEST(RankPart, a_penalty_on_the_cat_of_parts_gives_each_parameter_its_gradient) {
  run_ranks(world_size(), [](TestRank& rank) {
    const Parts parts(rank);
    parts.sharded.optimizer->zero_grad();
    std::vector<at::Tensor> wholes;
    for (const at::Tensor& p : parts.parameters)
      wholes.push_back(full_tensor(p).detach().clone().requires_grad_());
    for (const auto& some : {parts.parameters, wholes}) {
      const at::Tensor joined = at::cat({some[0].flatten(), (some[1] * some[1]).flatten()});
      joined.norm().backward();
    }
    for (size_t i = 0; i < wholes.size(); ++i) {
      EXPECT_TRUE(at::allclose(full_tensor(parts.parameters[i].grad()), wholes[i].grad()));
      EXPECT_TRUE(at::equal(parts.parameters[i].grad().norm(),
                            full_tensor(parts.parameters[i].grad()).norm()));
    }
  });
}

// The weight and the bias of a unit have different places in its flat tensor, so their parts on a
// rank have different elements.
MULTI_RANK_TEST(RankPartOnSeveralRanks, adding_parts_that_hold_different_elements_throws) {
  run_ranks(world_size(), [](TestRank& rank) {
    Parts parts(rank);
    const auto named = parts.sharded.model.named_parameters();
    const at::Tensor p = named["b0.linear.weight"], bias = named["b0.linear.bias"];
    if (p.numel() + bias.numel() == 0) return;
    EXPECT_CONTAINS(error_of([&] { p + bias; }), "is a part too, but of other elements");
  });
}

// The penalty is the same number on every rank, so its gradient is not averaged.
MULTI_RANK_TEST(RankPart, the_gradient_of_a_penalty_on_a_parameter_is_not_averaged_over_ranks) {
  run_ranks(world_size(), [](TestRank& rank) {
    const Parts parts(rank);
    parts.sharded.optimizer->zero_grad();
    const at::Tensor& p = parts.parameters[0];
    const at::Tensor whole = full_tensor(p).detach().clone().requires_grad_();
    const auto penalty = [](const at::Tensor& w) {
      return 0.1 * w.norm() + w.square().sum() +
             at::matmul(full_tensor(w * 2), at::ones({7})).mean();
    };
    penalty(p).backward();
    penalty(whole).backward();
    EXPECT_TRUE(at::equal(full_tensor(p.grad()), whole.grad()));
  });
}

MULTI_RANK_TEST(RankPart, a_tensor_hook_in_a_penalty_gets_this_ranks_part_of_the_gradient) {
  run_ranks(world_size(), [](TestRank& rank) {
    const Parts parts(rank);
    parts.sharded.optimizer->zero_grad();
    const at::Tensor& p = parts.parameters[0];
    const at::Tensor whole = full_tensor(p).detach().clone().requires_grad_();
    for (const at::Tensor& tensor : {p, whole}) {
      const at::Tensor twice = tensor * 2;
      twice.register_hook([](const at::Tensor& gradient) { return gradient / gradient.norm(); });
      twice.sum().backward();
    }
    EXPECT_TRUE(at::equal(full_tensor(p.grad()), whole.grad()));
  });
}

MULTI_RANK_TEST(RankPartOnSeveralRanks,
                a_trainable_factor_of_a_part_throws_and_one_of_the_whole_tensor_gets_a_gradient) {
  run_ranks(world_size(), [](TestRank& rank) {
    const Parts parts(rank);
    const at::Tensor& p = parts.parameters[0];
    const at::Tensor factor = at::scalar_tensor(2).requires_grad_();
    EXPECT_CONTAINS(error_of([&] { p* factor; }), "another operand requires a gradient");
    EXPECT_CONTAINS(error_of([&] { p / p.norm(); }), "compute with full_tensor(tensor)");
    const at::Tensor whole = full_tensor(p);
    (whole * factor).sum().backward();
    EXPECT_TRUE(at::equal(factor.grad(), whole.detach().sum()));
  });
}

MULTI_RANK_TEST(RankPart, full_tensor_gathers_a_parameter_its_gradient_and_a_moment) {
  run_ranks(world_size(), [](TestRank& rank) {
    Parts parts(rank);
    ShardedNet& one = parts.sharded;
    one.optimizer->step();
    const auto named = one.model.named_parameters();
    const auto saved = one.model.state_dict();
    for (const auto& part : named) {
      const at::Tensor whole = full_tensor(part.value());
      EXPECT_TRUE(at::equal(whole, saved.at(part.key()))) << part.key();
      EXPECT_EQ(full_tensor(part.value().grad()).sizes(), whole.sizes());
      auto& state = *one.optimizer->state().at(part.value().unsafeGetTensorImpl());
      const auto& moments = static_cast<torch::optim::AdamWParamState&>(state);
      EXPECT_EQ(full_tensor(moments.exp_avg()).sizes(), whole.sizes());
      EXPECT_TRUE(at::equal(full_tensor(part.value() > 0), whole > 0));
      EXPECT_TRUE(at::equal(full_tensor(part.value().to(at::kHalf)), whole.to(at::kHalf)));
    }
    EXPECT_TRUE(full_tensor(at::ones({3})).equal(at::ones({3})));
    EXPECT_FALSE(full_tensor({}).defined());
  });
}

MULTI_RANK_TEST(RankPartOnSeveralRanks,
                computing_a_norm_on_only_one_rank_is_an_error_that_names_the_parameter) {
  const RankRun run = try_ranks(world_size(), [](TestRank& rank) {
    Parts parts(rank);
    if (rank.rank() == 0) parts.parameters[0].norm();
    parts.sharded.model.state_dict();
  });
  EXPECT_CONTAINS(run.failure(), "b0.linear.weight");
  EXPECT_CONTAINS(run.failure(), "aten::norm");
}

MULTI_RANK_TEST(RankPart, this_ranks_part_returns_a_plain_tensor_that_shares_the_parts_memory) {
  run_ranks(world_size(), [](TestRank& rank) {
    const Parts parts(rank);
    for (const at::Tensor& part : {parts.parameters[0], parts.parameters[0].grad()}) {
      const at::NoGradGuard no_grad;
      at::Tensor plain = this_ranks_part(part);
      plain.fill_(3);
      EXPECT_EQ(plain.sum().item<double>(), 3.0 * static_cast<double>(part.numel()));
      EXPECT_TRUE(plain.is_alias_of(part));
      EXPECT_TRUE(at::equal(this_ranks_part(part), plain));
      std::ostringstream() << plain << plain.numel();
    }
    EXPECT_FALSE(this_ranks_part({}).defined());
    const at::Tensor other = at::ones({3});
    EXPECT_TRUE(at::equal(this_ranks_part(other), other));
  });
}

// With one rank, this rank's part is the whole parameter, so it must have the parameter's sizes,
// and its norm.
MULTI_RANK_TEST(RankPart, on_several_ranks_a_part_has_its_parameters_dim_but_at_least_1) {
  run_ranks(world_size(), [](TestRank& rank) {
    torch::manual_seed(1);
    TinyNet net;
    FullyShardedDataParallel model(net, rank.communicator());
    const auto parts = model.named_parameters();
    for (const auto& whole : net.named_parameters()) {
      const at::Tensor* part = parts.find(whole.key());
      // Skips a second name of a parameter: `parts` has this parameter under its first name.
      if (part == nullptr) continue;
      const int64_t least = rank.world_size() > 1 ? 1 : 0;
      EXPECT_EQ(part->dim(), std::max(whole.value().dim(), least)) << whole.key();
      if (rank.world_size() > 1) continue;
      EXPECT_EQ(part->sizes(), whole.value().sizes());
      EXPECT_EQ(part->norm().item<double>(), this_ranks_part(*part).norm().item<double>());
    }
  });
}

using Change = void (*)(Parts&);
MULTI_RANK_TEST(RankPartOnSeveralRanks,
                after_a_write_to_a_ranks_part_operators_still_treat_it_as_a_part) {
  run_ranks(world_size(), [](TestRank& rank) {
    const std::vector<std::pair<const char*, Change>> changes{
        {"step", [](Parts& parts) { parts.sharded.optimizer->step(); }},
        {"set_data",
         [](Parts& parts) {
           for (at::Tensor& p : parts.parameters)
             p.set_data(at::zeros(p.sizes()));
           // At this forward, the model reads the new values.
           loss_of(*parts.sharded.net, parts.sharded.rank);
         }},
        {"vector_to_parameters",
         [](Parts& parts) {
           using namespace torch::nn::utils;
           vector_to_parameters(parameters_to_vector(parts.parameters) * 0.5, parts.parameters);
         }},
        {"loads",
         [](Parts& parts) {
           ShardedNet& one = parts.sharded;
           one.model.load_state_dict(one.model.state_dict());
           one.optimizer->step();
           one.model.load_optim_state_dict(*one.optimizer,
                                           one.model.optim_state_dict(*one.optimizer));
         }},
        {"clip", [](Parts& parts) { parts.sharded.model.clip_grad_norm_(0.01); }},
        {"freezing", [](Parts& parts) {
           for (at::Tensor& p : parts.parameters)
             p.set_requires_grad(false);
           parts.sharded.model.parameters();
         }}};
    for (const auto& [name, change] : changes) {
      SCOPED_TRACE(name);
      Parts parts(rank);
      change(parts);
      for (const at::Tensor& p : parts.sharded.model.parameters()) {
        EXPECT_CONTAINS(error_of([&] { p.sort(); }), "this rank's part");
        if (!p.grad().defined()) continue;
        EXPECT_CONTAINS(error_of([&] { p.grad().sort(); }), "this rank's part");
      }
    }
  });
}

MULTI_RANK_TEST(RankPartOnSeveralRanks, the_moments_of_a_torch_optimizer_are_ranks_parts_too) {
  run_ranks(world_size(), [](TestRank& rank) {
    Parts parts(rank);
    parts.sharded.optimizer->step();
    for (const auto& [parameter, state] : parts.sharded.optimizer->state()) {
      const auto& moments = static_cast<torch::optim::AdamWParamState&>(*state);
      EXPECT_CONTAINS(error_of([&] { moments.exp_avg_sq().sort(); }), "this rank's part");
    }
  });
}

}  // namespace
}  // namespace fsdp
