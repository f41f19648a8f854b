"""Tests that the WebAssembly in docs/step.html predicts the same numbers as ./fsdp plan."""

import base64
import importlib.util
import json
import pathlib
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "grading/site/step"))
import build  # noqa: E402

PLAN = ROOT / "build/default/bin/plan"


def needs(*names):
    """Returns a decorator that skips a test if one of these Python modules or programs is
    missing."""
    missing = [
        str(name)
        for name in names
        if not (name.exists() if isinstance(name, pathlib.Path) else importlib.util.find_spec(name))
    ]
    return unittest.skipIf(
        missing, f"missing: {', '.join(missing)}; ./fsdp setup --site and ./fsdp build have them"
    )


def settings(dice):
    """Returns a random line of settings, as a list of words, in the form that step.cpp reads."""
    world = dice.choice([1, 2, 3, 4, 8, 16, 64])
    mode = dice.choice(["fsdp", "fsdp", "fsdp", "ddp"])
    replica = dice.choice([n for n in range(1, world + 1) if world % n == 0])
    return [world, dice.randint(1, 9), 64 * dice.randint(1, 12), dice.choice([1000, 9000, 50304]),
            dice.randint(1, 5), dice.choice(["block", "none", "auto"]), mode,
            replica if mode == "fsdp" else world, dice.randint(1, 5), dice.randint(0, 1),
            dice.choice(["fp32", "bf16"]), dice.choice(["fp32", "bf16"]), dice.choice([0, 0, 1, 2]),
            dice.choice([0, 1000, 200000, 4000000]), dice.choice([100, 1000, 25000]),
            dice.choice([10, 1000])]


# A script for docs/step.html. It moves every slider to every position, opens every stop of the
# page's tour (stops.js) and some wrong addresses, and replaces the page's content by what the page
# showed meanwhile.
DRIVE = """<script>(async () => {
  while (!run) await new Promise(done => setTimeout(done, 10));
  const said = [], wrong = () => element('wrong').textContent;
  for (const {name, words, values} of FIELDS)
    (words || values).forEach((value, i) => {
      element(name).value = i;
      element(name).dispatchEvent(new Event('input'));
      said.push([`slider ${name}`, wrong()]);
    });
  STOPS.forEach((_, i) => { goToStop(i); said.push(['stop', element('sentence').textContent]); });
  for (const text of BAD) {
    location.hash = text;
    attempt(readAddress);
    said.push(['bad', wrong()]);
  }
  const packed = btoa(unescape(encodeURIComponent(JSON.stringify(said))));
  document.body.innerHTML = `<pre id="said">${packed}</pre>`;
})()</script>"""
BAD = {"world=0": "world is 0: takes a number from 1 to 64",
       "width=100": "width is 100: takes a number from 64 to 4096 that 64 divides",
       "wrap=x": "wrap is x: takes block, auto, none",
       "strategy=hybrid&shard_size=3": "shard_size is 3: does not divide world, 4",
       "colour=1": "colour: no such setting", "stop=18": "stop is 18: takes a number from 1 to 17"}


class Wasm:
    def __init__(self, code):
        import wasmtime
        engine = wasmtime.Engine()
        self.store = wasmtime.Store(engine)
        self.store.set_wasi(wasmtime.WasiConfig())
        linker = wasmtime.Linker(engine)
        linker.define_wasi()
        self.exports = linker.instantiate(self.store, wasmtime.Module(engine, code)).exports(
            self.store
        )
        self.exports["_initialize"](self.store)

    def described(self, line):
        memory = self.exports["memory"]
        place = self.exports["line_of_settings"](self.store)
        memory.write(self.store, " ".join(map(str, line)).encode() + b"\0", place)
        begin = self.exports["described"](self.store)
        data = bytes(memory.read(self.store, begin, memory.data_len(self.store)))
        return data[:data.index(0)].decode()


class Step(unittest.TestCase):
    def setUp(self):
        self.text = build.PAGE.read_text()

    def test_docs_step_html_contains_the_present_files_of_grading_site_step(self):
        self.assertTrue(
            build.page_around(build.packed_in(self.text)) == self.text,
            "docs/step.html is older than grading/site/step/ or timeline.css; make it again with "
            "grading/site/step/build.py",
        )

    @needs("ziglang", "wasmtime")
    def test_the_wasm_in_docs_step_html_predicts_the_same_as_the_present_sources(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "step.wasm")
            build.compile_to(path)
            today, page, dice = (
                Wasm(path.read_bytes()),
                Wasm(build.wasm_in(self.text)),
                random.Random(22),
            )
        for _ in range(100):
            line = settings(dice)
            self.assertEqual(
                page.described(line), today.described(line), "run grading/site/step/build.py"
            )

    def test_every_slider_and_every_stop_of_the_tour_in_step_html_works_in_a_browser(self):
        browser = shutil.which("chromium") or shutil.which("google-chrome")
        if browser is None:
            self.skipTest("missing: chromium")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        script = DRIVE.replace("BAD", json.dumps(list(BAD)))
        page = pathlib.Path(folder.name, "driven.html")
        page.write_text(self.text.replace("</body>", script + "</body>"))
        done = subprocess.run(
            [
                browser,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--dump-dom",
                f"--user-data-dir={folder.name}/browser",
                "--virtual-time-budget=60000",
                page.as_uri(),
            ],
            capture_output=True,
            text=True,
        )
        said = json.loads(base64.b64decode(re.search('id="said">(.*?)<', done.stdout)[1]))
        self.assertEqual([one for one in said if one[0].startswith("slider") and one[1]], [])
        self.assertEqual(len([one for one in said if one[0] == "stop" and one[1]]), 17)
        wrong = [text for kind, text in said if kind == "bad"]
        for text, expected in zip(wrong, BAD.values(), strict=True):
            self.assertTrue(text.startswith(expected), text)

    @needs("wasmtime", PLAN)
    def test_fsdp_plan_prints_the_same_numbers_as_step_html(self):
        dice, wasm = random.Random(21), Wasm(build.wasm_in(self.text))
        for _ in range(30):
            self.compare(wasm.described(settings(dice)))

    def compare(self, described):
        most, received = {}, 0
        for line in described.splitlines():
            what, *words = line.split()
            if what == "command":
                command = words
            elif what == "most":
                most[words[0], words[1]] = int(words[2])
            elif what == "received":
                received += int(words[1])
            elif what == "time":
                seconds = sum(map(int, words)) / 1e9
            elif what == "flops":
                flops = int(words[0])
        done = subprocess.run(
            [PLAN, *command[2:], "--json"], capture_output=True, text=True, check=True
        )
        plan = json.loads(done.stdout)
        with self.subTest(shlex.join(command)):
            planned = {(phase, cls): count for phase, classes in plan["live_bytes"].items()
                       for cls, count in classes.items() if cls not in ("other", "total")}
            self.assertEqual({key: most[key] for key in planned}, planned)
            self.assertEqual(received, plan["bytes_within_host"] + plan["bytes_between_hosts"])
            self.assertEqual(flops, plan["flops"])
            if plan["mode"] == "fsdp":  # in ddp, seconds depend on the order of a block's gradients
                self.assertAlmostEqual(seconds, sum(plan["seconds"].values()), delta=1e-6)
