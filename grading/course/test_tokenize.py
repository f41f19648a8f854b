"""Tests ./fsdp tokenize, and ./fsdp generate with a tokenizer."""

import json
import pathlib
import tempfile
import unittest

from test_verbs import fsdp

MODEL = "gpt2:vocabulary=258,context=32,d_model=32,layers=1,heads=2,d_ff=64"


def byte_tokenizer():
    """Returns a tokenizer.json in which each byte is a token, "th" is token 256, and <|end|>, which
    begins each text, is token 257."""
    visible = [byte for byte in range(256) if 32 < byte < 127 or 160 < byte != 173]
    hidden = [byte for byte in range(256) if byte not in visible]
    vocabulary = {chr(byte): byte for byte in visible}
    vocabulary |= {chr(256 + place): byte for place, byte in enumerate(hidden)}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False}
    template = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<|end|>"}}, {"Sequence": {"id": "A"}}],
        "special_tokens": {"<|end|>": {"ids": [257]}},
    }
    return {
        "added_tokens": [{"id": 257, "content": "<|end|>", "special": True}],
        "pre_tokenizer": byte_level,
        "post_processor": template,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": {**vocabulary, "th": 256}, "merges": ["t h"]},
    }


class Tokenize(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        for program in ("generate", "tokenize"):
            fsdp(program, "--help")  # builds the program, which prints to stderr
        cls.tokenizer = cls.folder / "tokenizer" / "tokenizer.json"
        cls.tokenizer.parent.mkdir()
        cls.tokenizer.write_text(json.dumps(byte_tokenizer()))
        cls.text, cls.ids = cls.folder / "text", cls.folder / "ids"
        cls.text.write_text("the path<|end|>Größe\n" * 40)

    def tokenized(self, *options, output=None):
        return fsdp("tokenize", "--tokenizer", self.tokenizer.parent, "--input", self.text,
                    "--output", output or self.ids, *options)

    def trained(self, name):
        """Trains for one step on the token ids. Returns the folder of the checkpoint."""
        self.tokenized()
        folder = self.folder / name
        done = fsdp("train", "--model", MODEL, "--tokens", self.ids, "--steps", "1", "--seq", "16",
                    "--checkpoint-dir", folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        return folder

    def assert_refused(self, done, status, reason):
        self.assertEqual((done.returncode, done.stdout, done.stderr.decode()),
                         (status, b"", reason + "\n"))

    def test_tokenize_writes_the_tokenizers_begin_token_first_but_not_with_option_only_text(self):
        line = [256, *b"e pa", 256, 257, *"Größe\n".encode()]
        for options, begin in (([], [257]), (["--only-text"], [])):
            done = self.tokenized(*options)
            self.assertEqual((done.returncode, done.stderr), (0, b""))
            self.assertEqual(
                done.stdout.decode(),
                f"wrote {self.ids}: {len(begin + line * 40)} tokens of 16 bits, from 920 bytes of "
                "text; the ids are below 258\n",
            )
            ids = memoryview(self.ids.read_bytes())[1024:].cast("H")
            self.assertEqual(list(ids), begin + line * 40)

    def test_tokenize_that_fails_prints_one_line_and_writes_no_file(self):
        wrong, empty = self.folder / "wrong.json", self.folder / "empty"
        wrong.write_text('{"model": {"type": "WordPiece"}}')
        empty.write_bytes(b"")
        none, new = self.folder / "none", self.folder / "new"
        for tokenizer, text, status, reason in (
            (wrong, self.text, 2,
             f'--tokenizer {wrong}: model.type: is "WordPiece"; only byte-level BPE is read, as of '
             "GPT-2, Llama 3 and Qwen; write the token ids with the package tokenizers, and pass "
             "them to train --tokens"),
            (none, self.text, 2,
             f"--tokenizer {none}: no such file or folder; a tokenizer of the hub is first "
             "downloaded, for example by: hf download NAME tokenizer.json --local-dir FOLDER"),
            (self.tokenizer, empty, 1, f"{empty}: is empty"),
            (self.tokenizer, none, 2, f"--input {none}: No such file or directory"),
        ):
            done = fsdp("tokenize", "--tokenizer", tokenizer, "--input", text, "--output", new)
            self.assert_refused(done, status, f"fsdp tokenize: {reason}")
            self.assertFalse(new.exists())
        self.assert_refused(self.tokenized(output=self.text), 2,
                            f"fsdp tokenize: --output {self.text}: is the file of --input")
        self.assert_refused(self.tokenized(output=self.tokenizer), 2,
                            f"fsdp tokenize: --output {self.tokenizer}: is the tokenizer, or a "
                            "file that belongs to it; give another file")

    def test_generate_prints_text_for_a_checkpoint_trained_on_ids_if_the_tokenizer_is_given(self):
        run, prompt = self.trained("run"), ["--prompt", "Größe: the", "--tokens", "30"]
        self.assert_refused(
            fsdp("generate", "--checkpoint", run, *prompt), 1,
            f"fsdp generate: {run}/step-000001: was trained on token ids; give --tokenizer, the "
            "one that made them")
        done = fsdp("generate", "--checkpoint", run, "--tokenizer", self.tokenizer, *prompt)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertTrue(done.stdout.decode().startswith("Größe: the"))  # all of it is UTF-8
        (run / "tokenizer.json").write_bytes(self.tokenizer.read_bytes())
        self.assertEqual(fsdp("generate", "--checkpoint", run, *prompt).stdout, done.stdout)

    def test_generate_uses_the_tokenizer_json_in_the_folder_of_an_imported_model(self):
        folder, logits = self.folder / "hf", self.folder / "logits"
        fsdp("export", "--checkpoint", self.trained("of_hf"), "--format", "hf", "--output", folder)

        def length_of_prompt(*options, note=""):
            """Runs ./fsdp generate. Returns the number of tokens of its prompt, which is the size
            of the first dimension of the logits."""
            done = fsdp("generate", "--init", f"hf:{folder}", "--prompt", "the th", "--tokens", "9",
                        "--logits", logits, *options)
            self.assertEqual((done.returncode, done.stderr.decode()), (0, note))
            self.assertTrue(done.stdout.startswith(b"the th"))
            data = logits.read_bytes()
            header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
            return header["logits"]["shape"][0]

        note = (f"fsdp generate: {folder} has no tokenizer.json, so each token is taken for a "
                "byte; copy that of the model into the folder, or give --tokenizer\n")
        self.assertEqual(length_of_prompt(note=note), 6)
        (folder / "tokenizer.json").write_bytes(self.tokenizer.read_bytes())
        self.assertEqual(length_of_prompt(), 5)  # the tokens <|end|>, th, e, space, th
        self.assertEqual(length_of_prompt("--tokenizer", "bytes"), 6)

    def test_generate_refuses_to_write_logits_over_a_file_of_the_model_or_the_tokenizer(self):
        run, folder = self.trained("of_logits"), self.folder / "hf_of_logits"
        fsdp("export", "--checkpoint", run, "--format", "hf", "--output", folder, "--tokenizer",
             self.tokenizer)
        (run / "tokenizer.json").write_bytes(self.tokenizer.read_bytes())
        link = self.folder / "link_to_model"
        link.symlink_to(folder / "model.safetensors")
        (blob := self.folder / "blob").write_bytes((folder / "config.json").read_bytes())
        (folder / "config.json").unlink()
        (folder / "config.json").symlink_to(blob)
        step = run / "step-000001"
        inside = f"lies in {folder}, the folder of the model"
        init, saved = ["--init", f"hf:{folder}"], ["--checkpoint", run]
        for options, path, reason in (
            (init, folder / "model.safetensors", inside),
            (init, folder / "new.safetensors", inside),
            (init, link, inside),
            (init, blob, inside),
            (saved, next(step.glob("*.safetensors")), f"lies in {step}, which is a checkpoint"),
            (saved, run / "tokenizer.json", "is the tokenizer, or a file that belongs to it"),
            ([*init, "--tokenizer", self.tokenizer], self.tokenizer,
             "is the tokenizer, or a file that belongs to it"),
        ):
            before = path.read_bytes() if path.exists() else None
            done = fsdp("generate", *options, "--prompt", "the", "--logits", path)
            self.assert_refused(done, 2,
                                f"fsdp generate: --logits {path}: {reason}; give another file")
            self.assertEqual(path.read_bytes() if path.exists() else None, before)
        done = fsdp("generate", *saved, "--prompt", "the", "--logits", run / "logits.safetensors")
        self.assertEqual((done.returncode, done.stderr), (0, b""))

    def test_export_to_hf_copies_the_tokenizer_or_prints_that_it_is_missing(self):
        run, theirs = self.trained("for_export"), self.folder / "theirs"
        theirs.mkdir()
        (theirs / "tokenizer.json").write_bytes(self.tokenizer.read_bytes())
        (theirs / "special_tokens_map.json").write_text("{}")

        def exported(name, *options):
            return fsdp("export", "--checkpoint", run, "--format", "hf", "--output",
                        self.folder / name, *options)

        bare = exported("bare")
        self.assertEqual((bare.returncode, bare.stdout.decode()), (
            0, f"wrote {self.folder}/bare\n{self.folder}/bare has no tokenizer.json: copy that of "
            "the model into it, or export with --tokenizer\n"))
        self.assertEqual(exported("whole", "--tokenizer", theirs).stdout.decode(),
                         f"wrote {self.folder}/whole\n")
        self.assertEqual(sorted(path.name for path in (self.folder / "whole").iterdir()),
                         ["config.json", "model.safetensors", "special_tokens_map.json",
                          "tokenizer.json"])
        wrong = theirs / "special_tokens_map.json"
        self.assert_refused(exported("none", "--tokenizer", wrong), 2,
                            f"fsdp export: --tokenizer {wrong}: is not a tokenizer.json, which has "
                            "a model")
        self.assert_refused(
            fsdp("export", "--checkpoint", run, "--format", "safetensors", "--output",
                 self.folder / "none", "--tokenizer", theirs), 2,
            "fsdp export: --tokenizer: needs --format hf")
        (run / "tokenizer.json").write_bytes(self.tokenizer.read_bytes())
        self.assertEqual(exported("found").stdout.decode(), f"wrote {self.folder}/found\n")
        self.assertTrue((self.folder / "found" / "tokenizer.json").exists())

    def test_generate_stops_at_the_end_of_text_token_unless_ignore_eos_is_given(self):
        folder, logits = self.folder / "ends", self.folder / "logits_of_end"
        fsdp("export", "--checkpoint", self.trained("of_ends"), "--format", "hf", "--output",
             folder, "--tokenizer", self.tokenizer)

        def generated(*options):
            done = fsdp("generate", "--init", f"hf:{folder}", "--prompt", "the th", "--tokens", "5",
                        *options)
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout, done.stderr

        whole = generated("--logits", logits)
        last = memoryview(logits.read_bytes()[-4 * 258:]).cast("f").tolist()  # the last token
        (folder / "generation_config.json").write_text(
            json.dumps({"eos_token_id": [last.index(max(last))]}))
        text, note = generated()
        self.assertEqual(text, b"the th\n")
        self.assertEqual(note, b"fsdp generate: the first token is already the model's end-of-text "
                               b"token; --ignore-eos continues after it\n")
        self.assertEqual(generated("--ignore-eos"), whole)
        self.assertEqual(generated("--logits", logits), whole)

    def test_generate_says_that_ignore_eos_has_no_effect_if_no_end_of_text_token_is_known(self):
        run, folder, logits = self.trained("of_notes"), self.folder / "of_bytes", self.folder / "l"
        fsdp("train", "--model", "gpt2-tiny", "--steps", "1", "--seq", "18", "--checkpoint-dir",
             folder)
        prompt = ["--prompt", "the", "--tokens", "3", "--ignore-eos"]
        (run / "tokenizer.json").write_bytes(self.tokenizer.read_bytes())
        for options, reason in (
            (["--checkpoint", folder],
             ": the tokens of the model are bytes, and none of them ends a text"),
            (["--checkpoint", run],
             ": no file of the model or of its tokenizer names an end-of-text token"),
            (["--checkpoint", run, "--logits", logits], " with --logits"),
            (["--checkpoint", run, "--tokenizer", "bytes"], " with --tokenizer bytes"),
        ):
            done = fsdp("generate", *options, *prompt)
            self.assertEqual((done.returncode, done.stderr.decode()), (
                0, f"fsdp generate: --ignore-eos has no effect{reason}\n"), options)
        (run / "tokenizer_config.json").write_text('{"eos_token": "<|end|>"}')
        done = fsdp("generate", "--checkpoint", run, *prompt)
        self.assertEqual((done.returncode, done.stderr), (0, b""))

    def test_generate_refuses_a_missing_tokenizer_and_one_that_does_not_fit_the_model(self):
        folder = self.folder / "small"
        fsdp("train", "--model", "gpt2-tiny", "--steps", "1", "--seq", "18", "--checkpoint-dir",
             folder)
        done = fsdp("generate", "--checkpoint", folder, "--tokenizer", self.tokenizer, "--prompt",
                    "a")
        none = folder / "none"
        self.assert_refused(
            fsdp("generate", "--checkpoint", self.trained("of_none"), "--tokenizer", none,
                 "--prompt", "a"), 2,
            f"fsdp generate: --tokenizer {none}: no such file or folder; a tokenizer of the hub is "
            "first downloaded, for example by: hf download NAME tokenizer.json --local-dir FOLDER")
        self.assert_refused(
            done, 1,
            f"fsdp generate: {folder}/step-000001: was trained on text, so its tokens are bytes; "
            "leave out --tokenizer")
        fsdp("export", "--checkpoint", folder, "--format", "hf", "--output", folder / "hf")
        done = fsdp("generate", "--init", f"hf:{folder / 'hf'}", "--tokenizer", self.tokenizer,
                    "--prompt", "a")
        self.assert_refused(
            done, 2,
            "fsdp generate: --prompt: token 0 is 257, and the model has 256 ids; give --tokenizer, "
            "that of the model")


if __name__ == "__main__":
    unittest.main()
