"""Tests that ./fsdp tokenize writes the token ids of the Python package tokenizers.

The tokenizers are trained here on random text, so nothing is downloaded. The tests run in the
Python of .venv-peers, which has the package; if another Python runs this file, it starts the Python
of .venv-peers. The tests are skipped without .venv-peers.
"""

import json
import pathlib
import random
import subprocess
import tempfile
import unicodedata
import unittest

from in_peers import ROOT, in_peers

TEXTS = 3000  # texts for each tokenizer
SEPARATOR = "<|sep|>"
HEADER = 1024  # [bytes] header of a file of token ids

try:
    import tokenizers
    from tokenizers import decoders, normalizers, pre_tokenizers, processors
except ImportError:
    tokenizers = None

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN = LLAMA3.replace("{1,3}", "")

# Characters of every class, and characters that the patterns of pre-tokenizers or NFC treat in a
# special way.
CHARACTERS = (
    [*"abcdefgstrvmlABCSTRVMLDEXYZ0123456789", *" " * 12, *"\n\n\r\t", *"''’ſ", *".,!?-_<|>{}"]
    + [" 's", " 'S", " 'LL", "'ll", "'Re", "'vE", "'D", "...", "\r\n", "\0", "\x7f", "\x1c"]
    + ["é", "e\u0301", "\u0301", "\u0323", "\u0307", "\u0316", "İ", "ı", "ß", "Ω", "\u2126"]
    + ["한", "글", "\u1100", "\u1161", "\u11a8", "가", "中", "文", "日本", "क\u093c", "\u0958", "ि"]
    + ["😀", "👩\u200d👩\u200d👧", "\U0001f1e9\U0001f1ea", "\ufb01", "Ǆ", "ŉ", "ก", "ำ", "𝐀", "𝟘"]
    + ["\u00a0", "\u3000", "\u2028", "\u0085", "\u1680", "\u200b", "½", "²", "Ⅷ", "٣", "๑"]
)
ADDED = ["<|end|>", "<|end|>x", "<l>", "<r>", " <l> ", "  <r>  ", "word", " word ", "sword", "café",
         "cafe\u0301", "12", " 12 ", "raw\u0301"]
# Ranges of code points for random characters. The NFC tables of the package tokenizers end with
# Unicode 10, so marks that are younger are left out.
BLOCKS = [(0x20, 0x250), (0x370, 0x7FD), (0x900, 0x9FE), (0x1E00, 0x2FE0), (0x3000, 0xD800),
          (0xF900, 0xFB50), (0x10000, 0x10A00), (0x1F000, 0x20000)]


InPeers = in_peers("test_tokenizer", ("tokenizers",), tokenizers)


def random_text(draw, length):
    def character():
        if draw.random() < 0.9:
            return draw.choice(CHARACTERS)
        return chr(draw.randrange(*draw.choice(BLOCKS)))

    text = "".join(character() for _ in range(draw.randrange(1, length)))
    for _ in range(draw.randrange(3)):
        at = draw.randrange(len(text) + 1)
        text = text[:at] + draw.choice(ADDED) + text[at:]
    return text


def pre_tokenizer(kind):
    def byte_level(**options):
        return pre_tokenizers.ByteLevel(**{"add_prefix_space": False, **options})

    def split(pattern):
        step = pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
        return pre_tokenizers.Sequence([step, byte_level(use_regex=False)])

    if kind == "digits":
        step = pre_tokenizers.Digits(individual_digits=True)
        return pre_tokenizers.Sequence([step, byte_level()])
    return {"gpt2": byte_level(), "gpt2 with prefix": byte_level(add_prefix_space=True),
            "llama3": split(LLAMA3), "qwen": split(QWEN)}[kind]


def trained(kind, draw):
    """Returns a tokenizer that is trained on random words, with added tokens of every kind."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(ignore_merges=kind == "llama3"))
    if kind == "qwen":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizer(kind)
    tokenizer.decoder = decoders.ByteLevel()
    words = [random_text(draw, 6) for _ in range(400)]
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=1500, show_progress=False, special_tokens=[SEPARATOR],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(
        [" ".join(draw.choices(words, k=60)) for _ in range(200)], trainer)
    added = tokenizers.AddedToken
    tokenizer.add_special_tokens(
        [added("<|end|>"), added("<|end|>x"), added("<l>", lstrip=True), added("<r>", rstrip=True)])
    tokenizer.add_tokens(
        [added("word", single_word=True), added("café", normalized=True),
         added("12", single_word=True, lstrip=True, rstrip=True),
         added("raw\u0301", normalized=False)])
    if kind == "llama3":
        ends = [(token, tokenizer.token_to_id(token)) for token in ("<|end|>", "<r>")]
        template = processors.TemplateProcessing(single="<|end|> $A <r>", special_tokens=ends)
        tokenizer.post_processor = processors.Sequence([processors.ByteLevel(), template])
    return tokenizer


@unittest.skipUnless(
    tokenizers, "tokenizers is not installed; ./fsdp setup --peers installs it"
)
class Tokenizers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):  # builds the program, which prints to stderr
        subprocess.run([ROOT / "fsdp", "tokenize", "--help"], capture_output=True)

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def ids_of(self, text, *options):
        """Returns the ids that ./fsdp tokenize writes for the text with the tokenizer.json in
        self.folder."""
        read, wrote = self.folder / "text", self.folder / "ids"
        read.write_bytes(text.encode())
        done = subprocess.run(
            [ROOT / "fsdp", "tokenize", "--tokenizer", self.folder, "--input", read, "--output",
             wrote, *options], capture_output=True, text=True)
        note = "has a byte of 0, so it may not be a text\n" if "\0" in text else ""
        self.assertEqual((done.returncode, done.stderr[-len(note) :] if note else done.stderr),
                         (0, note))
        self.assertIn("16 bits", done.stdout)
        return list(memoryview(wrote.read_bytes())[HEADER:].cast("H"))

    def assert_same(self, tokenizer, texts):
        """Asserts that `tokenizer` of the package and ./fsdp tokenize give the same ids for the
        texts. All texts are encoded in one run, with SEPARATOR between them: it is a special token,
        so the texts around a text do not change its ids."""
        whole = SEPARATOR.join(texts)
        expected, ours = tokenizer.encode(whole).ids, self.ids_of(whole)
        if expected == ours:
            return
        same = next((i for i, pair in enumerate(zip(expected, ours)) if pair[0] != pair[1]),
                    min(len(expected), len(ours)))
        text = texts[expected[:same].count(tokenizer.token_to_id(SEPARATOR))]
        self.fail(f"{text!r} is {tokenizer.encode(text).tokens}; ours differ at token {same}: "
                  f"{[tokenizer.id_to_token(token) for token in ours[same - 2:same + 3]]}")

    def test_fsdp_tokenize_and_the_package_tokenizers_give_random_texts_the_same_ids(self):
        for kind in ("gpt2", "gpt2 with prefix", "llama3", "qwen", "digits"):
            with self.subTest(kind):
                draw = random.Random(kind)
                tokenizer = trained(kind, draw)
                tokenizer.save(str(self.folder / "tokenizer.json"))
                self.assert_same(tokenizer, [random_text(draw, 25) for _ in range(TEXTS)])
                self.assert_same(tokenizer, [random_text(draw, 20000)])
                text = random_text(draw, 25)
                self.assertEqual(tokenizer.encode(text, add_special_tokens=False).ids,
                                 self.ids_of(text, "--only-text"))

    def test_merges_written_as_texts_give_the_same_ids_as_merges_written_as_pairs(self):
        draw = random.Random(1)
        tokenizer = trained("gpt2", draw)
        content = json.loads(tokenizer.to_str())
        self.assertIsInstance(content["model"]["merges"][0], list)
        content["model"]["merges"] = [" ".join(pair) for pair in content["model"]["merges"]]
        (self.folder / "tokenizer.json").write_text(json.dumps(content))
        self.assert_same(tokenizer, [random_text(draw, 25) for _ in range(100)])

    def test_fsdp_tokenize_puts_each_code_point_into_the_class_of_the_package_tokenizers(self):
        """Code points are in the classes of Unicode 16 in ./fsdp tokenize. The package may have
        another version of Unicode, so only code points that this Python knows are compared."""
        tokenizer = trained("llama3", random.Random(2))
        tokenizer.save(str(self.folder / "tokenizer.json"))
        points = [point for point in map(chr, range(0x20000))
                  if unicodedata.category(point) not in ("Cn", "Cs")]
        texts = [f"1{one}a 1{one}1 {one}{one}!" for one in points]
        self.assert_same(tokenizer, texts)


if __name__ == "__main__":
    unittest.main()
