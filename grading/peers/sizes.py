"""The sizes of the models gpt2-* of common/nn/models.cpp, and numbers of the recipes."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Options:
    vocabulary: int
    context: int
    d_model: int
    layers: int
    heads: int
    d_ff: int


def _gpt2(d_model, layers, heads):
    return Options(50257, 1024, d_model, layers, heads, 4 * d_model)


MODELS = {
    "gpt2-tiny": Options(61, 19, 35, 3, 5, 121),
    "gpt2-36m": Options(20000, 1024, 512, 8, 8, 2048),
    "gpt2-124m": _gpt2(768, 12, 12),
    "gpt2-355m": _gpt2(1024, 24, 16),
    "gpt2-774m": _gpt2(1280, 36, 20),
    "gpt2-1558m": _gpt2(1600, 48, 25),
}

LR = 1e-4        # learning rate of the recipe `published` for these models
MODULAR_SEQ = 3  # tokens in a row of the recipe modular
