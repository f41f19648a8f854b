"""GPT-2 in PyTorch. It has the sizes of common/nn/gpt2.cpp and draws its parameters in the same
order, so both models start with the same values."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.heads = options.heads
        self.c_attn = nn.Linear(options.d_model, 3 * options.d_model)
        self.c_proj = nn.Linear(options.d_model, options.d_model)

    def forward(self, x):
        # [B, T, 3 d] -> three of [B, heads, T, d_head]
        q, k, v = self.c_attn(x).unflatten(-1, (3, self.heads, -1)).transpose(1, 3).unbind(2)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(mixed.transpose(1, 2).flatten(2))


class MLP(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.c_fc = nn.Linear(options.d_model, options.d_ff)
        self.c_proj = nn.Linear(options.d_ff, options.d_model)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.ln_1 = nn.LayerNorm(options.d_model)
        self.attn = Attention(options)
        self.ln_2 = nn.LayerNorm(options.d_model)
        self.mlp = MLP(options)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT2(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.wte = nn.Embedding(options.vocabulary, options.d_model)
        self.wpe = nn.Embedding(options.context, options.d_model)
        self.h = nn.ModuleList(Block(options) for _ in range(options.layers))
        self.ln_f = nn.LayerNorm(options.d_model)

    def forward(self, tokens):
        positions = torch.arange(tokens.size(1), device=tokens.device)
        x = self.wte(tokens) + self.wpe(positions)
        for block in self.h:
            x = block(x)
        # The output head is tied to the embedding: it uses wte.weight directly. If the head had an
        # attribute for this weight, the initialization from the meta device would make two separate
        # parameters.
        return F.linear(self.ln_f(x), self.wte.weight)


def build_on_meta(options):
    with torch.device("meta"):
        return GPT2(options)


@torch.no_grad()
def draw_weights(model, options, seed, place):
    """Draws every whole parameter from torch's default generator, in the order of registration, and
    calls place(parameter, whole tensor) for it. Only one whole parameter is in memory at a time."""
    torch.manual_seed(seed)
    residual_std = 0.02 / math.sqrt(2 * options.layers)
    for name, parameter in model.named_parameters():
        whole = torch.empty(parameter.shape)
        if name.endswith("bias"):
            whole.zero_()
        elif ".ln_" in name or name.startswith("ln_"):
            whole.fill_(1)
        else:
            whole.normal_(0, residual_std if "c_proj" in name else 0.02)
        place(parameter, whole)


def loss_of(model, inputs, targets):
    return F.cross_entropy(model(inputs).flatten(0, 1).float(), targets.flatten())
