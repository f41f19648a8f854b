#!/usr/bin/env python3
"""Makes OUT/step.html, a page that runs the prediction of a step as WebAssembly, and OUT/step.wasm.

The page works from a file and asks for nothing else. With --students the order of actions, which
problems ask for, is hidden until a button is pressed. Needs ziglang (`./fsdp setup --site`).
"""

import argparse
import base64
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
ZIGLANG = "0.17.1"
# What schedule() and the folds over it consist of.
SOURCES = """
    grading/site/step/step.cpp trainer/prediction/chain.cpp trainer/prediction/prediction.cpp
    trainer/prediction/schedule.cpp trainer/prediction/step_time.cpp trainer/config/arrangement.cpp
    trainer/config/train_config.cpp common/optim/gradient_buckets.cpp common/optim/parameter_group.cpp
    common/comm/call.cpp common/comm/clock.cpp common/comm/link.cpp common/memory/phase.cpp
    common/memory/memory_class.cpp
""".split()
SHIMMED = ("ATen/core/Tensor.h", "base/torch.h", *(f"c10/core/{name}.h" for name in ("Allocator", "DeviceType", "ScalarType")))
EXPORTS = ("line_of_settings", "described")
# Zig has none for WebAssembly: who throws, ends. The page checks its settings before.
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
        command = [sys.executable, "-m", "ziglang", "c++", "--target=wasm32-wasi", "-mexec-model=reactor",
                   "-std=c++20", "-O2", "-Wno-c++11-narrowing", "-I", folder, "-I", "common",
                   "-I", "trainer", *(f"-Wl,--export={name}" for name in EXPORTS), "-Wl,--strip-all", "-o", wasm]
        for header in SHIMMED:
            path = pathlib.Path(folder) / header
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(HERE / "torch_shim.h")  # with #pragma once, so it is read once
        together = pathlib.Path(folder) / "together.cpp"  # as one file it compiles in a fifth of the time
        together.write_text(EXCEPTIONS + "".join(f'#include "{ROOT / source}"\n' for source in SOURCES))
        made = subprocess.run([*command, together], cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
    if made.returncode != 0:
        sys.exit(f"grading/site/step: it does not compile to WebAssembly:\n{made.stderr}")


def page(wasm, students):
    """The page in one file."""
    text = (HERE / "step.html").read_text()
    parts = {'<link rel="stylesheet" href="timeline.css">':
             f"<style>\n{(ROOT / 'common/trace/page/timeline.css').read_text()}</style>",
             '<link rel="stylesheet" href="step.css">': f"<style>\n{(HERE / 'step.css').read_text()}</style>",
             '<script type="application/wasm" id="wasm">':
             f'<script type="application/wasm" id="wasm">{base64.b64encode(wasm).decode()}'}
    for script in ("stops.js", "step.js"):
        parts[f'<script src="{script}">'] = f"<script>\n{(HERE / script).read_text()}"
    if students:
        parts['data-students=""'] = 'data-students="hidden"'
    for place, part in parts.items():
        if text.count(place) != 1:
            sys.exit(f"grading/site/step: step.html lacks {place}")
        text = text.replace(place, part)
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=pathlib.Path, metavar="OUT")
    parser.add_argument("--students", action="store_true", help="hide the order of actions")
    arguments = parser.parse_args()
    try:
        arguments.out.mkdir(parents=True, exist_ok=True)
        wasm = (arguments.out / "step.wasm").resolve()
        compile_to(wasm)
        (arguments.out / "step.html").write_text(page(wasm.read_bytes(), arguments.students))
    except OSError as error:
        sys.exit(f"grading/site/step: {error}")


if __name__ == "__main__":
    main()
