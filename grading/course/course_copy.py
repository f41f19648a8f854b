"""The base class of the tests of ./fsdp: each test tries a verb in a copy of the course."""

import pathlib
import shutil
import signal
import subprocess
import tempfile
import unittest

import skeletons

SKELETON = "tasks/task3_forward_hooks/forward_hooks.cpp"


class CourseCopy(unittest.TestCase):
    """Gives each test, in self.root, a copy of the files of the course that the verbs of ./fsdp
    read. Nothing is built in this copy."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="a course ")
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name in ("cmake", "scripts", "tasks", "solutions", "programs"):
            shutil.copytree(skeletons.ROOT / name, self.root / name)
        for name, content in skeletons.delivered().items():
            path = self.root / ".pristine" / name.removeprefix("tasks/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        (self.root / "grading/course").mkdir(parents=True)
        for name in ("fsdp", "course.toml", "grading/course/skeletons.py"):
            shutil.copy(skeletons.ROOT / name, self.root / name)
        (self.root / ".venv").symlink_to(skeletons.ROOT / ".venv")

    def run_verb(self, *arguments):
        command = [self.root / "fsdp", *arguments]
        done = subprocess.run(command, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def run_function(self, source, script):
        """Runs the bash commands `script` in self.root. They may call the functions of
        scripts/verb.sh and of scripts/SOURCE.sh, where SOURCE is `source`. Returns the finished
        process."""
        begin = f"source scripts/verb.sh; source scripts/{source}.sh; set +e; "
        return subprocess.run(
            ["bash", "-c", begin + script], cwd=self.root, capture_output=True, text=True
        )

    def folder_of_build(self, rule):
        """Creates a build folder whose only target, `made`, is made by the shell command `rule`."""
        folder = self.root / "build/default"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "build.ninja").write_text(f"rule r\n  command = {rule}\nbuild made: r\n")
        return folder

    def build(self, before="", within=("bash", "-c")):
        script = (
            f"root={str(self.root)!r}; source scripts/build.sh; {before} build default made; exit "
            f"$?"
        )
        return subprocess.Popen([*within, script], cwd=self.root, text=True, start_new_session=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
