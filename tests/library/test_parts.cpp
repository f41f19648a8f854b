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

// `y` is a second operand of the same kind as `x`.
struct Operator {
  std::string name;
  std::function<at::Tensor(const at::Tensor& x, const at::Tensor& y)> call;
};

// Returns a copy of `x`. In-place operators write to the copy, so that they do not change the
// operand.
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
    {"alias", [](const auto& x, const auto&) { return at::alias(x); }},
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

const std::vector<Operator> kOfAllElements{
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
    {"aten::item",
     [](const auto& x, const auto&) { return at::tensor(x.template item<double>()); }},
    {"aten::equal", [](const auto& x, const auto& y) { return at::tensor(at::equal(x, y)); }},
    {"aten::allclose", [](const auto& x, const auto& y) { return at::tensor(x.allclose(y)); }}};

const std::vector<Operator> kOfPositions{
    {"aten::select", [](const auto& x, const auto&) { return x[0]; }},
    {"aten::select",
     [](const auto& x, const auto&) {
       std::ostringstream() << x;
       return x;
     }},
    {"aten::slice", [](const auto& x, const auto&) { return x.slice(0, 0, 1); }},
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

// Two parameters, their gradients, and tensors that were computed from them. With up to four ranks,
// each rank has some elements of each.
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

MULTI_RANK_TEST(RankPart, elementwise_operators_compute_on_a_part_and_return_a_part) {
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
        EXPECT_CONTAINS(error_of([&] { result.to(at::kFloat).sum(); }), "this rank's part");
      }
  });
}

void expect_refusals(TestRank& rank, const std::vector<Operator>& ops,
                     const std::vector<std::string>& words) {
  const Parts parts(rank);
  const at::NoGradGuard no_grad;
  for (const auto& [kind, x, y] : parts.pairs())
    for (const Operator& op : ops) {
      if (x.numel() < 2)
        continue;  // the part can be its first element only, which select and slice return whole
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

MULTI_RANK_TEST(RankPartOnSeveralRanks, reductions_over_all_elements_of_a_part_throw) {
  run_ranks(world_size(), [](TestRank& rank) {
    expect_refusals(rank, kOfAllElements, {"this rank's part", "norms()", "this_ranks_part("});
  });
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
    const auto gradient = error_of([&] { p.grad().norm(); });
    for (const char* call :
         {"model.clip_grad_norm_()", "model.gradients_are_finite()", "model.grad_norms()"})
      EXPECT_CONTAINS(gradient, call);
    const auto parameter = error_of([&] { p.norm(); });
    for (const char* call : {"model.param_norms()", "model.summon_full_params()"})
      EXPECT_CONTAINS(parameter, call);
    EXPECT_CONTAINS(error_of([&] { at::linear(at::ones({2, 7}), p); }), "summon_full_params()");
    const auto mask = error_of([&] { p.detach().mul_(at::ones({7, 7})); });
    EXPECT_CONTAINS(mask,
                    "and another operand has 49; give it tensors that are cut as the part is");
  });
}

// A sum over a part throws, because a decision that depends on it would differ between ranks.
MULTI_RANK_TEST(RankPartOnSeveralRanks,
                a_penalty_on_a_part_throws_and_one_on_a_plain_tensor_is_differentiated) {
  run_ranks(world_size(), [](TestRank& rank) {
    const Parts parts(rank);
    parts.sharded.optimizer->zero_grad();
    const at::Tensor& p = parts.parameters[0];
    EXPECT_CONTAINS(error_of([&] { p.square().sum().backward(); }), "aten::sum of");
    (this_ranks_part(p).square().sum() + this_ranks_part(p * 3).sum()).backward();
    EXPECT_TRUE(at::equal(this_ranks_part(p.grad()), 2 * this_ranks_part(p) + 3));
    EXPECT_CONTAINS(error_of([&] { p.grad().norm(); }), "gradient of parameter b0.linear.weight");
  });
}

MULTI_RANK_TEST(RankPart, this_ranks_part_returns_a_plain_view_of_the_parts_memory) {
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

// With one rank, the part is the whole parameter, so its norm can be computed.
MULTI_RANK_TEST(RankPart, a_part_has_the_dim_of_its_parameter) {
  run_ranks(world_size(), [](TestRank& rank) {
    torch::manual_seed(1);
    TinyNet net;
    FullyShardedDataParallel model(net, rank.communicator());
    const auto parts = model.named_parameters();
    for (const auto& whole : net.named_parameters()) {
      const at::Tensor* part = parts.find(whole.key());
      if (part == nullptr) continue;  // the parameter is listed under its first name
      EXPECT_EQ(part->dim(), std::max<int64_t>(whole.value().dim(), 1)) << whole.key();
      if (rank.world_size() > 1) continue;
      EXPECT_EQ(part->norm().item<double>(), this_ranks_part(*part).norm().item<double>());
    }
  });
}

using Change = void (*)(Parts&);
MULTI_RANK_TEST(RankPartOnSeveralRanks, parts_stay_parts_whatever_is_written_to_them) {
  run_ranks(world_size(), [](TestRank& rank) {
    const std::vector<std::pair<const char*, Change>> changes{
        {"step", [](Parts& parts) { parts.sharded.optimizer->step(); }},
        {"set_data",
         [](Parts& parts) {
           for (at::Tensor& p : parts.parameters)
             p.set_data(at::zeros(p.sizes()));
           loss_of(*parts.sharded.net, parts.sharded.rank);  // reads the new values
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
        EXPECT_CONTAINS(error_of([&] { p.norm(); }), "this rank's part");
        if (!p.grad().defined()) continue;
        EXPECT_CONTAINS(error_of([&] { p.grad().norm(); }), "this rank's part");
      }
    }
  });
}

MULTI_RANK_TEST(RankPartOnSeveralRanks, the_moments_of_an_optimizer_are_parts) {
  run_ranks(world_size(), [](TestRank& rank) {
    Parts parts(rank);
    parts.sharded.optimizer->step();
    for (const auto& [parameter, state] : parts.sharded.optimizer->state()) {
      const auto& moments = static_cast<torch::optim::AdamWParamState&>(*state);
      EXPECT_CONTAINS(error_of([&] { moments.exp_avg_sq().mean(); }), "this rank's part");
    }
  });
}

}  // namespace
}  // namespace fsdp
