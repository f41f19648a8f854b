"""Tests ./fsdp grade --receipts with receipts of small runs: honest ones, and others that a student
has changed."""

import csv
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest
import zipfile
from unittest import mock

from grader import receipt_files, receipts, sandbox
from grader.course import ROOT, Refused

TRAIN = ("--mode", "fsdp", "--world", "2", "--model", "gpt2-tiny", "--data", "pattern",
         "--steps", "4")
ALL = "100000"  # more events than a receipt has
MODES = [mode for mode in ("namespaces", "user", "limits")
         if mode == "limits" or sandbox.works(["/bin/sh", "-c", sandbox.TRIES_TO_BREAK_OUT], mode)
         and (mode != "user" or os.geteuid() == 0)]


def fsdp(*arguments, **environment):
    """Runs ./fsdp of this repository. Returns its exit status and its output."""
    done = subprocess.run([ROOT / "fsdp", *map(str, arguments)], capture_output=True, text=True,
                          env={**os.environ, **environment}, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout + done.stderr


def train(receipt, *options):
    status, text = fsdp("train", *TRAIN, "--receipt", receipt, *options)
    assert status == 0, text


def dumped(value):
    """Returns the value as JSON in the form that trainer/receipt/receipt.cpp writes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def merkle_root(leaves):
    """Returns the Merkle root of RFC 6962 over the texts `leaves`."""
    if len(leaves) == 1:
        return hashlib.sha256(b"\0" + leaves[0].encode()).digest()
    left = 1 << ((len(leaves) - 1).bit_length() - 1)
    parts = merkle_root(leaves[:left]) + merkle_root(leaves[left:])
    return hashlib.sha256(b"\1" + parts).digest()


def sealed(head, leaves):
    """Returns the text of a receipt with this head and these leaves, and with the root and the seal
    that belong to them."""
    names = ("step", "part", "what", "name", "unit", "hash", "numel")
    root = merkle_root([dumped({name: leaf[name] for name in names}) for leaf in leaves]).hex()
    lines = "".join(dumped(line) + "\n" for line in (head, *leaves))
    seal = hashlib.sha256((lines + root).encode()).hexdigest()
    return lines + dumped({"leaves": len(leaves), "root": root, "seal": seal}) + "\n"


def lines_of(path):
    """Returns two parts of the receipt in the file `path`, parsed from JSON: the head, which
    describes the run, and the list of leaves, one for each event of the run."""
    head, *leaves, _ = map(json.loads, path.read_text().splitlines())
    return head, leaves


def zipped(path, files, **how):
    """Writes a zip file. `files`: name in the zip -> content."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, **how) as archive:
        for name, content in files.items():
            archive.writestr(name, content)


class InAFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)


class Receipts(unittest.TestCase):
    """Grades the receipts of one class once, for all tests. The methods hand_in_...() write the
    submissions of its students."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.runs, cls.all = cls.folder / "runs", cls.folder / "class"
        for path in (cls.runs, *(cls.all / name for name in "ada cy dan eve fay gus".split())):
            path.mkdir(parents=True)
        cls.written = cls.folder / "written"
        cls.hand_in_runs()
        cls.hand_in_changed_receipts()
        (cls.all / "gus/README.md").write_text("I have trained nothing.")
        zipped(cls.all / "hal.zip", {"../x.receipt": "x", "y.receipt": "y"})
        cls.out = cls.folder / "table.csv"
        cls.status, cls.text = cls.grade("--seed", "1", "--draw", ALL, "--out", cls.out)
        with open(cls.out, newline="") as file:
            cls.rows = {(row["student"], row["receipt"]): row for row in csv.DictReader(file)}

    @classmethod
    def hand_in_runs(cls):
        """Writes four honest submissions: ada and bob have trained; fay has a copy of ada's
        receipt; ivy has trained the same run as ada."""
        saved = ("--save-every", "2", "--checkpoint-dir")
        train(cls.runs / "run.receipt", *saved, cls.runs / "run")
        train(cls.runs / "other.receipt", "--seed", "9")
        train(cls.runs / "ivy.receipt", *saved, cls.runs / "ivy", "--receipt-sample", "1")
        shutil.copytree(cls.runs / "run", cls.all / "ada/run")
        for name in ("ada", "fay"):
            shutil.copy(cls.runs / "run.receipt", cls.all / name)
        for name, receipt in (("bob", "other"), ("ivy", "ivy")):
            content = (cls.runs / f"{receipt}.receipt").read_bytes()
            zipped(cls.all / f"{name}.zip", {f"in/{receipt}.receipt": content})

    @classmethod
    def hand_in_changed_receipts(cls):
        """Writes three changed submissions: cy has changed a hash, dan's receipt lacks its end, and
        eve has added options to receipts."""
        head, leaves = lines_of(cls.runs / "other.receipt")
        wrong = next(leaf for leaf in leaves if leaf["what"] == "gradient of the microbatch")
        cls.wrong, wrong["hash"] = dict(wrong), wrong["hash"] ^ 1
        (cls.all / "cy/cy.receipt").write_text(sealed(head, leaves))
        whole = (cls.runs / "other.receipt").read_text()
        (cls.all / "dan/dan.receipt").write_text(whole[: len(whole) // 2])
        for name, options in cls.hostile().items():
            changed = {**head, "options": head["options"] + options}
            (cls.all / f"eve/{name}.receipt").write_text(sealed(changed, leaves))

    @classmethod
    def hostile(cls):
        return {
            "json": f"json = '{cls.written}'\n",
            "log": f"log = '{cls.written}'\n",
            "config": "config = '/etc/passwd'\n",
            "stack": "stack = 'mine'\n",
            "name": f"\"seed=9 --json={cls.written}\" = 9\n",
            "values": f"lora-target = ['a', '--json={cls.written}']\n",
            "text": "text = '/etc/passwd'\n",
            "tokens": "tokens = '/etc/passwd'\n",
            "line": "steps\n",
        }

    @classmethod
    def grade(cls, *options, **environment):
        return fsdp("grade", "--receipts", cls.all, "--jobs", "2", *options, **environment)

    def test_the_helper_sealed_writes_an_unchanged_receipt_with_the_bytes_of_fsdp_train(self):
        path = self.runs / "run.receipt"
        self.assertEqual(sealed(*lines_of(path)), path.read_text())

    def test_the_audit_of_an_honest_receipt_has_the_result_equal_with_or_without_checkpoints(self):
        self.assertEqual(self.status, 0, self.text)
        for student, receipt in (("ada", "run.receipt"), ("bob", "in/other.receipt")):
            row = self.rows[student, receipt]
            self.assertEqual(
                [row[name] for name in ("result", "reason", "model", "first step", "last step",
                                        "ranks", "seed")],
                ["equal", "", "gpt2-tiny", "1", "4", "2", str(receipts.seed_of("1", student))],
            )
            self.assertGreaterEqual(int(row["events equal"]), int(row["events"]))
            self.assertRegex(self.text, rf"(?m)^{student} +{receipt} +gpt2-tiny, 1-4, 2 ranks .* "
                                        rf"{row['events equal']} equal$")

    def test_the_audit_finds_a_changed_hash_and_names_its_tensor_and_its_rank(self):
        row, wrong = self.rows["cy", "cy.receipt"], self.wrong
        place = f"step {wrong['step'] + 1}, microbatch {wrong['part']}, unit {wrong['unit']}, "
        self.assertEqual(row["result"], "WRONG")
        made = f"made by rank {wrong['ranks'][0]} on "
        self.assertIn(f"{place}{wrong['what']}: {wrong['name']}, {made}", row["reason"])

    def test_a_truncated_receipt_is_refused(self):
        row = self.rows["dan", "dan.receipt"]
        self.assertEqual((row["result"], row["root"]), ("refused", ""))
        self.assertRegex(row["reason"], r"^receipt, line \d+: is ")

    def test_a_receipt_with_options_that_no_run_writes_is_refused_and_they_have_no_effect(self):
        for name, reason in {
            **dict.fromkeys(("json", "log", "config", "stack", "name"),
                            "no run writes it into a receipt"),
            **dict.fromkeys(("text", "tokens"), "names a file, give your own with --options"),
            "line": "expected NAME = VALUE", "values": "",
        }.items():
            row = self.rows["eve", f"{name}.receipt"]
            self.assertEqual(row["result"], "refused", row)
            self.assertIn(reason, row["reason"])
        self.assertFalse(self.written.exists())

    def test_a_submission_without_receipts_has_the_result_no_receipt(self):
        self.assertEqual(self.rows["gus", ""]["result"], "no receipt")
        self.assertRegex(self.text, r"(?m)^gus +no receipt$")

    def test_a_zip_that_has_a_receipt_with_a_path_outside_of_the_zips_folder_is_refused(self):
        row = self.rows["hal", ""]
        self.assertEqual(row["result"], "refused")
        self.assertIn("../x.receipt lies outside of the zip's folder", row["reason"])
        self.assertEqual(list(self.folder.rglob("x.receipt")), [])

    def test_students_whose_receipts_record_the_same_run_are_named(self):
        text = " ".join(self.text.split())
        root = self.rows["ada", "run.receipt"]["root"]
        self.assertIn(f"ada, fay: the same run (the same root, {root})", text)
        self.assertRegex(text, r"ada, ivy: the same run \((\d+) of \1 losses are equal")
        self.assertIn("honestly trained with the same options", text)
        self.assertEqual(self.rows["ada", "run.receipt"]["same run as"], "fay, ivy")

    def test_the_command_that_grade_receipts_prints_audits_a_student_with_the_same_result(self):
        command = self.text.splitlines()[-1].split()
        self.assertEqual(command[:4], ["./fsdp", "grade", "--receipts", str(self.all)])
        out = self.folder / "again.csv"
        status, text = fsdp(*command[1:-1], "cy", "--out", out)
        with open(out, newline="") as file:
            again = list(csv.DictReader(file))
        alone = {**self.rows["cy", "cy.receipt"], "same run as": ""}
        self.assertEqual((status, again), (0, [alone]), text)

    def test_audits_work_in_every_sandbox_and_hostile_options_have_no_effect(self):
        for mode in MODES:
            for student, result in (("ada", "equal"), ("eve", "refused")):
                with self.subTest(mode=mode, student=student):
                    status, text = self.grade("--student", student, "--draw", "1",
                                              "--out", self.folder / "mode.csv", FSDP_SANDBOX=mode)
                    self.assertEqual(status, 0, text)
                    self.assertIn(f"sandbox: {mode}", text)
                    self.assertEqual(
                        set(re.findall(r"(?m)\b(equal|WRONG|refused|no receipt)$",
                                       text.partition("result\n")[2])), {result}, text)
        self.assertFalse(self.written.exists())

    def test_a_receipt_of_a_text_file_is_audited_only_with_the_text_that_the_instructor_gives(self):
        book = self.folder / "the book.txt"
        book.write_text("It was the best of times, it was the worst of times. " * 200)
        mine = self.folder / "with text/joe"
        mine.mkdir(parents=True)
        done = fsdp("train", "--model", "gpt2-tiny", "--steps", "2", "--text", book,
                    "--receipt", mine / "joe.receipt")
        self.assertEqual(done[0], 0, done[1])
        for options, result in (((), "refused"), (("--options", f"--text '{book}'"), "equal")):
            status, text = fsdp("grade", "--receipts", mine.parent, *options,
                                "--out", self.folder / "text.csv")
            self.assertRegex(text, rf"(?m)^joe +joe.receipt .* {result}$")
            self.assertEqual(status, 0)

    def test_wrong_options_of_grade_receipts_are_refused_with_the_reason(self):
        empty = self.folder / "empty"
        empty.mkdir()
        for options, reason in (
            (("--receipts", empty), f"{empty} has no folder and no zip to grade"),
            (("--receipts", empty / "x"), f"--receipts {empty}/x: there is no such folder"),
            (("--receipts", self.all, "--student", "zoe"), "--student zoe: "),
            (("--receipts", self.all, "--options", "--text none.txt"),
             "--options: none.txt: there is no such file or folder"),
            (("--receipts", self.all, "--tasks", "1"), "--tasks has no effect with --receipts"),
            (("--all", self.all, "--draw", "3"), "--draw needs --receipts"),
            (("--receipts", self.all, "--draw", "0"), "--draw 0: at least 1"),
            (("--receipts", self.all, "--out", self.all / "cy/cy.receipt"),
             f"--out {self.all}/cy/cy.receipt: is a receipt or a zip, which would be replaced"),
            (("--receipts", self.all, "--all", self.all), "name one submission, --all FOLDER or"),
        ):
            status, text = fsdp("grade", *options)
            self.assertEqual((status, reason in text), (2, True), text)


class Copies(InAFolder):
    """Tests which files of a submission the grader copies."""

    def copied(self, path):
        """Copies a submission. Returns a dict, name of a receipt -> (its text, the names of the
        files of its checkpoints or None)."""
        target = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        return {
            receipt.name: (receipt.file.read_text(), receipt.checkpoints and sorted(
                str(file.relative_to(receipt.checkpoints))
                for file in receipt.checkpoints.rglob("*") if file.is_file()))
            for receipt in receipt_files.copy(path, target)
        }

    def refused(self, path):
        with self.assertRaises(Refused) as refused:
            self.copied(path)
        return str(refused.exception)

    FILES = {"a/one.receipt": "1", "a/two.receipt": "2", "a/two/step-000002/0.safetensors": "x",
             "a/two/step-000002/checkpoint.json": "{}", "a/two/other.txt": "", "main.cpp": ""}
    COPIES = ["step-000002/0.safetensors", "step-000002/checkpoint.json"]

    def written(self, name, files):
        for file, content in files.items():
            path = self.folder / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        return self.folder / name

    def test_receipts_are_copied_from_folders_zips_and_zips_in_folders(self):
        expected = {"a/one.receipt": ("1", self.COPIES), "a/two.receipt": ("2", self.COPIES)}
        self.assertEqual(self.copied(self.written("ada", self.FILES)), expected)
        inner = self.folder / "moodle/ada_1.zip"
        inner.parent.mkdir()
        for path in (self.folder / "ada.zip", inner):
            zipped(path, {name.replace("/", "\\"): text for name, text in self.FILES.items()})
            self.assertEqual(self.copied(path), expected)
        self.assertEqual(self.copied(inner.parent), expected)

    def test_a_receipt_gets_the_checkpoint_folder_with_its_name_if_there_are_several(self):
        files = {**self.FILES, "b/step-000004/checkpoint.json": "{}"}
        self.assertEqual(
            self.copied(self.written("ada", files)),
            {"a/one.receipt": ("1", None), "a/two.receipt": ("2", self.COPIES)},
        )

    def test_a_receipt_or_checkpoint_that_is_a_link_or_a_fifo_is_refused(self):
        for number, name in enumerate(("run.receipt", "run/step-000001/checkpoint.json",
                                       "run/step-000001")):
            ada = self.written(f"ada{number}", {"a.receipt": "1", "run/x": ""})
            (ada / name).parent.mkdir(exist_ok=True)
            (ada / name).symlink_to("/etc/passwd")
            self.assertRegex(self.refused(ada), f"^{name} is (not a regular file|a link: hand in)")
        bob = self.written("bob", {"x": ""})
        os.mkfifo(bob / "run.receipt")
        self.assertEqual(self.refused(bob), "run.receipt is not a regular file")

    def test_a_link_to_a_folder_with_receipts_is_not_followed(self):
        self.written("other", self.FILES)
        ada = self.written("ada", {"a.receipt": "1"})
        (ada / "there").symlink_to(self.folder / "other")
        self.assertEqual(self.copied(ada), {"a.receipt": ("1", None)})

    def test_a_zip_with_a_path_that_leads_out_of_it_is_refused(self):
        for name in ("../x", "a/../../x.receipt", "/etc/x", "..\\x", "\\x"):
            path = self.folder / "ada.zip"
            zipped(path, {"a.receipt": "1", name: "x"})
            self.assertIn("lies outside of the zip's folder", self.refused(path))

    def test_damaged_zips_other_archives_and_too_large_submissions_are_refused(self):
        path = self.folder / "ada.zip"
        path.write_text("not a zip")
        self.assertIn("ada.zip can't be read", self.refused(path))
        with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
            archive.writestr("a.receipt", "1")
        self.assertIn("a.receipt is compressed in an unusual way", self.refused(path))
        self.assertIn(".tar.gz archive", self.refused(self.written("bob", {"run.tar.gz": ""})))
        zipped(path, {f"{number}.receipt": "" for number in range(11)})
        self.assertIn("it has 11 receipts, and at most 10 are audited", self.refused(path))
        limits = {"most": 10, "zip_bytes": 10_000, "submission_bytes": 1_000_000,
                  "submission_files": 2}
        with mock.patch.object(receipt_files, "rubric", lambda: {"receipts": limits}):
            zipped(path, {"bomb.receipt": "0" * 2_000_000})
            self.assertLess(path.stat().st_size, 10_000)
            self.assertIn("more than 1000000 bytes", self.refused(path))
            zipped(path, {f"{name}.receipt": "" for name in "abc"})
            self.assertIn("2 files", self.refused(path))
            path.write_bytes(bytes(10_001))
            self.assertIn("ada.zip has more than 10000 bytes", self.refused(path))


class Table(unittest.TestCase):
    def test_the_seed_that_draws_the_audited_events_depends_on_the_class_and_on_the_student(self):
        seeds = {receipts.seed_of(seed, name) for seed in "12" for name in ("ada", "bob")}
        self.assertEqual(len(seeds), 4)

    def same_runs(self, *losses):
        audited = [receipts.Audited(f"student {i}", root=str(i), losses=dict(enumerate(hashes)))
                   for i, hashes in enumerate(losses)]
        receipts.name_same_runs(audited)
        return [one.same_as for one in audited]

    def test_two_runs_with_only_half_of_their_losses_equal_are_not_the_same_run(self):
        self.assertEqual(self.same_runs([1, 2, 3, 4], [1, 2, 8, 9]), [[], []])

    def test_receipts_with_most_losses_equal_record_the_same_run(self):
        self.assertEqual(self.same_runs([1, 2, 3, 4, 5, 6], [1, 2, 9, 4], [7]),
                         [["student 1"], ["student 0"], []])

    def test_texts_of_a_receipt_become_no_formulas_in_the_csv_and_no_terminal_codes(self):
        auditor = receipts.Auditor(pathlib.Path("/bin"), 3, "", [])
        printed = f"receipt: steps 1 to 2 of \x1b[2J=1+1 on 1 rank, 3 events, root {'0' * 64}\n"
        receipt = receipt_files.Receipt("=1\n.receipt", pathlib.Path("/dev/null/x"))
        with mock.patch.object(receipts.Auditor, "printed", lambda *_: (0, printed)), \
                mock.patch.object(receipts, "losses_of", lambda _: {}):
            done = auditor.audit("=x", receipt, 1)
        self.assertEqual((done.result, done.model), ("equal", "\\x1b[2J=1+1"))
        self.assertIn("\"'=x\",\"'=1\\n.receipt\"", receipts.table([done]))

    def test_own_data_returns_the_instructors_options_with_absolute_paths_and_these_paths(self):
        here = str(pathlib.Path(__file__).resolve())
        near = os.path.relpath(here)
        for options, words, paths in (
            (f"--text {near} --lr 0.1", f"--text {here} --lr 0.1", [here]),
            (f"--tokens={near} {near}", f"--tokens={here} {here}", [here, here]),
            (f"--seed 3 --init=hf:{near}", f"--seed 3 --init=hf:{here}", [here]),
        ):
            self.assertEqual(receipts.own_data(options), (words, paths))

    def test_the_grader_and_fsdp_train_have_the_same_list_of_options_with_paths(self):
        text = (ROOT / "trainer/options/options.cpp").read_text()
        found = re.search(r"bool names_files\(.*?\n}", text, re.DOTALL)[0]
        self.assertEqual({f"--{name}" for name in re.findall(r'"(\w+)"', found)},
                         set(receipts.NAME_FILES))


if __name__ == "__main__":
    unittest.main()
