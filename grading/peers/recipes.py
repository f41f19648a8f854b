"""The recipes of ./fsdp train --recipe in PyTorch. They have the same rows as
trainer/data/dataset.cpp, because they draw them from the same generator."""

import torch

from sizes import LR, MODULAR_SEQ

SEED = 42
NOT_ASKED = -100  # cross_entropy()'s ignore_index: a target that does not count


def generator_of_step(step):
    return torch.Generator().manual_seed(SEED + 100 + step)


def adamw(parameters, recipe):
    return torch.optim.AdamW(
        parameters,
        lr=recipe.lr,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=recipe.weight_decay,
        fused=True,
    )


class Published:
    """The recipe `published`: random tokens, and AdamW without clipping."""
    lr, weight_decay, clip = LR, 0.01, None

    def __init__(self, options):
        self.vocabulary = options.vocabulary

    def batch(self, step, rows, seq):
        tokens = torch.randint(
            0, self.vocabulary, (rows, seq + 1), generator=generator_of_step(step)
        )
        return tokens[:, :-1], tokens[:, 1:]


class Modular:
    """The recipe `modular`: the model learns a + b mod 31. A fifth of the pairs (a, b) is held
    out."""
    lr, weight_decay, clip = 2e-3, 0.5, 1.0
    modulus = 31

    def __init__(self, _):
        pairs = self.modulus**2
        order = torch.randperm(pairs, generator=torch.Generator().manual_seed(SEED))
        self.held_out, self.trained = self.questions(order[:pairs // 5]), order[pairs // 5:]

    def questions(self, pairs):
        a, b = pairs // self.modulus, pairs % self.modulus
        nothing = torch.full_like(a, NOT_ASKED)
        return (torch.stack([a, b, torch.full_like(a, self.modulus)], 1),
                torch.stack([nothing, nothing, (a + b) % self.modulus], 1))

    def batch(self, step, rows, seq):
        if seq != MODULAR_SEQ:
            raise ValueError("--seq: a row of modular addition has 3 tokens")
        return self.questions(self.trained[torch.randint(0, len(self.trained), (rows,),
                                                         generator=generator_of_step(step))])


RECIPES = {"published": Published, "modular": Modular}
