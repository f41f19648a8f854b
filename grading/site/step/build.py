#!/usr/bin/env python3
"""Makes docs/step.html, a page that runs the prediction of a step as WebAssembly.

The page works as a local file and loads nothing else. docs/step.html is in the repository, so that
only a maintainer who changes it needs ziglang (`./fsdp setup --site`). In a handout, the page hides
the order of actions (grading/course/handout.py).
"""

import argparse
import base64
import gzip
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
PAGE = ROOT / "docs/step.html"
ZIGLANG = "0.17.1"
# The C++ sources that are compiled to WebAssembly: schedule() and the predictions that are computed
# from a schedule.
SOURCES = """
    grading/site/step/step.cpp trainer/prediction/chain.cpp trainer/prediction/prediction.cpp
    trainer/prediction/schedule.cpp trainer/prediction/step_time.cpp
    trainer/config/batch_partition.cpp
    trainer/config/train_config.cpp trainer/config/words.cpp
    common/optim/gradient_buckets.cpp common/optim/group_of.cpp
    common/optim/matrix_owners.cpp common/optim/muon_cost.cpp
    common/comm/call.cpp common/comm/clock.cpp common/comm/link.cpp
    common/memory/phase_to_string.cpp
    common/memory/memory_class.cpp
""".split()
SHIMMED = (
    "ATen/core/Tensor.h",
    "base/torch.h",
    *(f"c10/core/{name}.h" for name in ("Allocator", "DeviceType", "ScalarType")),
)
EXPORTS = ("line_of_settings", "described")
# Zig has no exceptions for WebAssembly, so a throw ends the program. The page checks its settings
# before it calls this code.
EXCEPTIONS = """
#include <cstdlib>
extern "C" void* __cxa_allocate_exception(size_t) noexcept { std::abort(); }
extern "C" void __cxa_throw(void*, void*, void*) { std::abort(); }
"""


def compile_to(wasm):
    if importlib.util.find_spec("ziglang") is None:
        sys.exit(f"grading/site/step: ziglang is missing: pip install ziglang=={ZIGLANG}")
    environment = {"ZIG_GLOBAL_CACHE_DIR": str(ROOT / ".cache/zig"), **os.environ}
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "ziglang",
            "c++",
            "--target=wasm32-wasi",
            "-mexec-model=reactor",
            "-std=c++20",
            "-Oz",
            "-Wno-c++11-narrowing",
            "-I",
            folder,
            "-I",
            "common",
            "-I",
            "trainer",
            *(f"-Wl,--export={name}" for name in EXPORTS),
            "-Wl,--strip-all",
            "-o",
            wasm,
        ]
        for header in SHIMMED:
            path = pathlib.Path(folder) / header
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(HERE / "torch_shim.h")  # with #pragma once, so it is read once
        # The sources are compiled as one file, because this takes a fifth of the time of compiling
        # each.
        together = pathlib.Path(folder) / "together.cpp"
        together.write_text(
            EXCEPTIONS + "".join(f'#include "{ROOT / source}"\n' for source in SOURCES)
        )
        made = subprocess.run(
            [*command, together], cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True
        )
    if made.returncode != 0:
        sys.exit(f"grading/site/step: it does not compile to WebAssembly:\n{made.stderr}")


def page(wasm):
    """Returns the page as one file. Its WebAssembly is compressed to a third of the bytes."""
    packed = base64.b64encode(gzip.compress(wasm, mtime=0)).decode()
    return page_around(packed)


def page_around(packed):
    text = (HERE / "step.html").read_text()
    wasm = '<script type="application/wasm" id="wasm">'
    styles = {
        "timeline.css": ROOT / "common/trace/page/timeline.css",
        "step.css": HERE / "step.css",
    }
    parts = {
        f'<link rel="stylesheet" href="{name}">': f"<style>\n{path.read_text()}</style>"
        for name, path in styles.items()
    } | {wasm: wasm + packed}
    for script in ("stops.js", "step.js"):
        parts[f'<script src="{script}">'] = f"<script>\n{(HERE / script).read_text()}"
    for place, part in parts.items():
        if text.count(place) != 1:
            sys.exit(f"grading/site/step: step.html lacks {place}")
        text = text.replace(place, part)
    return text


def packed_in(text):
    """Returns the compressed WebAssembly in a page's text, in base64 as the page has it."""
    return text.partition('<script type="application/wasm" id="wasm">')[2].partition("</script>")[0]


def wasm_in(text):
    return gzip.decompress(base64.b64decode(packed_in(text)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=pathlib.Path, nargs="?", default=PAGE, metavar="OUT",
                        help="the file to write in the place of docs/step.html")
    out = parser.parse_args().out
    try:
        with tempfile.TemporaryDirectory() as folder:
            wasm = pathlib.Path(folder, "step.wasm")
            compile_to(wasm)
            out.write_text(page(wasm.read_bytes()))
    except OSError as error:
        sys.exit(f"grading/site/step: {error}")


if __name__ == "__main__":
    main()
