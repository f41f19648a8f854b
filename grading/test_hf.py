"""Tests that Hugging Face's transformers reads what ./fsdp export writes, and that --init reads
what transformers saves.

The models are tiny and random, so nothing is downloaded. The tests run in the Python of
.venv-peers, which has transformers; if another Python runs this file, it starts the Python of
.venv-peers. The tests are skipped without .venv-peers.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest

from in_peers import ROOT, in_peers

PROMPT = "int main() {"
TOKENS = 20

try:
    import transformers
    import torch
    from safetensors.torch import load_file, load_model
except ImportError:
    transformers = None
else:
    sys.path.insert(0, str(ROOT / "grading/peers"))
    import gpt2

# Sizes of the models, which differ from the defaults of transformers and of ./fsdp train. LLAMA has
# grouped-query attention: six heads of queries share two heads of keys and values.
GPT2 = {"vocab_size": 256, "n_positions": 64, "n_embd": 48, "n_layer": 2, "n_head": 4}
LLAMA = {
    "vocab_size": 256,
    "max_position_embeddings": 64,
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "intermediate_size": 80,
    "rope_theta": 5e5,
}
# The scaled rotary frequencies of Llama 3.1. The context is so short that each of the three kinds
# of frequencies occurs: kept, divided by the factor, and interpolated.
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
LLAMA31 = {**LLAMA, "rope_theta": 5e2, "rope_scaling": LLAMA3, "head_dim": 16}
KINDS = [
    ("gpt2", True, GPT2),
    ("gpt2", False, GPT2),
    *((kind, tied, LLAMA) for kind in ("llama", "qwen2") for tied in (False, True)),
    ("llama", True, LLAMA31),
    ("qwen3", False, {**LLAMA, "head_dim": 12}),
    ("qwen3", True, LLAMA),
    ("mistral", False, {**LLAMA, "sliding_window": 32}),
]
MODES = [("single", 1), ("ddp", 1), ("ddp", 2), ("ddp", 4), ("fsdp", 1), ("fsdp", 2), ("fsdp", 4)]


InPeers = in_peers("test_hf", ("torch", "safetensors", "transformers"), transformers)


def fsdp(*arguments):
    """Runs ./fsdp and returns its output, as bytes."""
    done = subprocess.run([ROOT / "fsdp", *map(str, arguments)], capture_output=True)
    if done.returncode:
        raise AssertionError(done.stderr.decode())
    return done.stdout


def tokens_of(text):
    return torch.tensor([list(text)])


def random_model(kind, **sizes):
    """Returns a model of transformers with random parameters. No parameter is 0 or 1, as biases and
    norms would be after transformers' own initialization."""
    torch.manual_seed(4)
    config = transformers.AutoConfig.for_model(kind, bos_token_id=None, eos_token_id=None, **sizes)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.2)
    return model


def greedy(logits_of, context):
    """Returns the prompt and TOKENS tokens after it, each the most likely one according to
    logits_of(), which sees at most the last `context` tokens."""
    text = list(PROMPT.encode())
    for _ in range(TOKENS):
        text.append(int(logits_of(torch.tensor([text[-context:]]))[0, -1].argmax()))
    return bytes(text)


@unittest.skipUnless(
    transformers, "transformers is not installed; ./fsdp setup --peers installs it"
)
class HuggingFace(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def generated(self, *source):
        """Runs ./fsdp generate. Returns the generated text without its line feed, and the logits of
        the prompt."""
        logits = self.folder / "logits.safetensors"
        text = fsdp("generate", *source, "--prompt", PROMPT, "--tokens", TOKENS, "--logits", logits)
        return text[:-1], load_file(logits)["logits"]

    def assert_same(self, expected, logits):
        self.assertEqual(expected.shape, logits.shape)
        self.assertLess((expected - logits).abs().max().item(), 1e-5)

    def assert_generates(self, model, *source):
        """Asserts that ./fsdp generate with `source` has the logits and the greedy text of `model`,
        a model of transformers."""
        text, logits = self.generated(*source)
        prompt = tokens_of(PROMPT.encode())
        self.assert_same(model(prompt).logits[0].detach(), logits)
        expected = model.generate(prompt, attention_mask=torch.ones_like(prompt), pad_token_id=0,
                                  do_sample=False, max_new_tokens=TOKENS)
        self.assertEqual(bytes(expected[0].tolist()), text)

    def loaded(self, folder):
        """Returns the model that transformers loads from `folder`, which ./fsdp export has written.
        Asserts that no tensor is missing or unexpected."""
        model, loading = transformers.AutoModelForCausalLM.from_pretrained(
            folder, output_loading_info=True
        )
        for what, names in loading.items():
            self.assertEqual(list(names), [], what)
        return model.eval()

    def test_sharded_hf_models_load_train_to_the_same_bits_in_all_modes_and_are_exported(self):
        for number, (kind, tied, sizes) in enumerate(KINDS):
            name = f"{kind}-{tied}-{number}"
            theirs, run, ours = (
                self.folder / f"{name}-{what}" for what in ("theirs", "run", "ours")
            )
            model = random_model(kind, tie_word_embeddings=tied, **sizes)
            model.save_pretrained(theirs, max_shard_size="50KB")
            self.assertGreater(len(list(theirs.glob("*.safetensors"))), 1)
            self.assert_generates(model, "--init", f"hf:{theirs}")
            hashes = set()
            for mode, world in MODES:
                out = self.folder / "run.json"
                saved = ["--checkpoint-dir", run] if (mode, world) == MODES[-1] else []
                fsdp(
                    "train",
                    "--mode",
                    mode,
                    "--world",
                    world,
                    "--microbatches",
                    4,
                    "--batch",
                    4,
                    "--seq",
                    16,
                    "--steps",
                    5,
                    "--init",
                    f"hf:{theirs}",
                    "--json",
                    out,
                    *saved,
                )
                last = json.loads(out.read_text().splitlines()[-1])
                self.assertEqual(last["live_bytes_mismatches"], 0, (name, mode, world))
                hashes.add(last["param_sha256"])
            self.assertEqual(len(hashes), 1, name)
            fsdp("export", "--checkpoint", run, "--format", "hf", "--output", ours)
            back = self.loaded(ours)
            if kind != "mistral":  # it is exported as a Llama
                self.assertEqual(type(back), type(model))
            self.assert_generates(back, "--checkpoint", run)

    def test_export_merges_lora_adapters_as_peft_merges_them(self):
        for kind, target in (("llama", "v_proj|ffn.w2"), ("gpt2", "c_attn|c_fc")):
            theirs, run, ours = (self.folder / f"{kind}-{what}" for what in ("in", "run", "out"))
            model = random_model(kind, **(LLAMA if kind == "llama" else GPT2))
            model.save_pretrained(theirs)
            fsdp("train", "--mode", "fsdp", "--world", 2, "--seq", 16, "--steps", 3, "--lr", 0.05,
                 "--init", f"hf:{theirs}", "--lora", 4, "--lora-alpha", 8, "--lora-target", target,
                 "--checkpoint-format", "full", "--checkpoint-dir", run)
            fsdp("export", "--checkpoint", run, "--format", "hf", "--output", ours)
            self.merge_as_peft(model, load_file(run / "step-000003/model.safetensors"), 8 / 4)
            self.assert_generates(model, "--checkpoint", run)
            back = self.loaded(ours)
            prompt = tokens_of(PROMPT.encode())
            with torch.no_grad():
                difference = (back(prompt).logits - model(prompt).logits).abs().max().item()
            self.assertLess(difference, 1e-6 * model(prompt).logits.abs().max().item() + 1e-6)

    def merge_as_peft(self, model, saved, scale):
        """Merges adapters as peft does: adds B A times `scale` to the weights of `model`, a model
        of transformers. `saved`: the tensors of our checkpoint, with the adapters A and B."""
        names = {"attn": "self_attn", "ffn": "mlp", "w1": "gate_proj", "w2": "down_proj",
                 "w3": "up_proj", "output_proj": "o_proj"}
        parameters = dict(model.named_parameters())
        merged = 0
        for name, a in saved.items():
            if not name.endswith(".lora.A"):
                continue
            layer = name.removesuffix(".lora.A")
            delta = scale * saved[f"{layer}.lora.B"] @ a
            if layer.startswith("h."):  # GPT-2 stores its weights transposed
                weight, delta = parameters[f"transformer.{layer}.weight"], delta.T
            else:
                theirs = ".".join(names.get(part, part) for part in layer.split("."))
                weight = parameters[f"model.{theirs}.weight"]
            self.assertGreater(delta.abs().max().item(), 1e-3, name)
            with torch.no_grad():
                weight += delta
            merged += 1
        self.assertGreater(merged, 3)

    def test_fp16_and_bf16_weights_are_read_as_transformers_reads_them(self):
        for kind, sizes, dtype in (("gpt2", GPT2, torch.float16), ("gpt2", GPT2, torch.bfloat16),
                                   ("qwen2", LLAMA, torch.bfloat16)):
            saved = self.folder / f"{kind}-{dtype}"
            random_model(kind, **sizes).to(dtype).save_pretrained(saved)
            model = transformers.AutoModelForCausalLM.from_pretrained(saved, dtype=torch.float32)
            _, logits = self.generated("--init", f"hf:{saved}")
            self.assert_same(model(tokens_of(PROMPT.encode())).logits[0].detach(), logits)

    def test_a_plain_pytorch_model_loads_the_safetensors_that_export_writes(self):
        run, plain = self.folder / "run", self.folder / "plain"
        fsdp("train", "--mode", "fsdp", "--world", 2, "--model", "gpt2-tiny", "--steps", 2,
             "--seq", 18, "--lr", 0.05, "--checkpoint-dir", run)
        fsdp("export", "--checkpoint", run, "--format", "safetensors", "--output", plain)
        model = gpt2.GPT2(
            types.SimpleNamespace(
                vocabulary=256, context=19, d_model=35, layers=3, heads=5, d_ff=121
            )
        )
        load_model(model, plain / "model.safetensors")  # raises unless it has exactly these names
        text, logits = self.generated("--checkpoint", run)
        with torch.no_grad():
            self.assert_same(model(tokens_of(PROMPT.encode()))[0], logits)
            self.assertEqual(greedy(model, context=19), text)
