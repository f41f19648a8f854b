"""What a student hands in: a folder or a zip with the files of tasks/. Nothing else of it is read."""

import dataclasses
import hashlib
import pathlib
import re
import stat
import zipfile

from grader import course
from grader.course import Refused

MOST_BYTES = 1_000_000  # of one file
MOST_ZIPPED = 20_000_000  # of a zip: tasks/ has 0.1 MB, and each member costs memory


@dataclasses.dataclass(frozen=True)
class Submission:
    files: dict  # "task2_flat_parameter/flat_parameter.cpp" -> bytes; of every listed file
    missing: tuple  # the listed files that were not handed in: they are as at first
    ignored: tuple = ()  # sources beside them that the course does not have, and nobody compiles

    def digest(self, numbers):
        """Of the files of these tasks."""
        state = hashlib.sha256()
        for task in course.tasks():
            if task.number not in numbers:
                continue
            for path in task.files:
                state.update(f"{path}\0{len(self.files[path])}\0".encode() + self.files[path])
        return state.hexdigest()[:32]

    def has_extensions(self, among):
        """Whether there is anything in the extensions of these tasks."""
        names = {name for task in among for name in task.files if name.startswith("extensions/")}
        return any(self.files[name] != course.blank()[name] for name in names.difference(self.missing))

    def without_extensions(self):
        """The same, as if none of them had been handed in."""
        files = {name: content for name, content in self.files.items() if name not in self.missing}
        return completed({name: files[name] for name in files if not name.startswith("extensions/")}, self.ignored)


def beside(paths, taken):
    """The sources that lie in the folder of a file that is taken, and are none. `paths`: path -> its parts."""
    folders = {paths[path][:-1] for path in taken}
    return tuple("/".join(parts[-2:]) for path, parts in paths.items() if parts[:-1] in folders
                 and path not in taken and re.search(r"\.(cpp|cc|cxx|h|hpp|cu)$", path))


def chosen(paths):
    """Listed file -> the one path that ends with it. `paths`: path -> its parts."""
    found = {}
    for path, parts in paths.items():
        ends = ("/".join(parts[-count:]) for count in (3, 2))  # extensions/FOLDER/FILE, FOLDER/FILE
        listed = next((end for end in ends if end in course.blank()), None)
        if listed is None:
            continue
        if listed in found:
            raise Refused(f"tasks/{listed} is in it twice: {found[listed]} and {path}")
        found[listed] = path
    if not found:
        raise Refused("it holds no file of tasks/: hand in the folder tasks/, or a zip of it")
    return found


def read_folder(folder):
    """Listed file -> content, and what is beside them."""
    paths = {
        path.relative_to(folder).as_posix(): path.relative_to(folder).parts
        for path in sorted(folder.rglob("*"))
        if not any(part.startswith(".") for part in path.relative_to(folder).parts)
    }
    files, taken = {}, chosen(paths)
    for listed, path in taken.items():
        file = folder / path
        if not stat.S_ISREG(file.lstat().st_mode):
            raise Refused(f"{path} is not a regular file")
        if file.stat().st_size > MOST_BYTES:
            raise Refused(f"{path} has more than {MOST_BYTES} bytes")
        files[listed] = file.read_bytes()
    return files, beside(paths, set(taken.values()))


def parts_in_zip(name):
    """Of a member's name. Some tools put ./ before it, and some of Windows write \\ for /. What this makes of
    a name only says which listed file it is: nothing is written where it says."""
    return tuple(part for part in name.replace("\\", "/").split("/") if part not in ("", "."))


def read_member(archive, member):
    """Only of deflate can zipfile unpack a part: what one byte of another becomes may fill the memory."""
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise Refused(f"{member.filename} is compressed in an unusual way: make the zip with deflate, as most tools do")
    with archive.open(member) as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise Refused(f"{member.filename} has more than {MOST_BYTES} bytes")
    return content


def read_zip(path):
    """The same of a zip."""
    files = {}
    try:
        if path.stat().st_size > MOST_ZIPPED:
            raise Refused(f"{path.name} has more than {MOST_ZIPPED} bytes: hand in a zip of the folder tasks/ alone")
        with zipfile.ZipFile(path) as archive:
            members = {member.filename: member for member in archive.infolist()}
            paths = {
                name: parts_in_zip(name)
                for name in members
                if not any(part.startswith((".", "__MACOSX")) for part in parts_in_zip(name))
            }
            taken = chosen(paths)
            for listed, name in taken.items():
                files[listed] = read_member(archive, members[name])
    except Refused:
        raise
    except Exception as error:  # zipfile throws many kinds for a file that is none, or is damaged
        raise Refused(f"{path.name} can't be read as a zip: {error}") from None
    return files, beside(paths, set(taken.values()))


def read_files(path):
    if path.is_dir():
        try:
            return read_folder(path)
        except (OSError, RecursionError, ValueError) as error:
            raise Refused(f"{path.name} can't be read: {error}") from None
    if path.is_file():
        return read_zip(path)
    raise Refused(f"{path} is neither a folder nor a zip")


def read(path):
    try:
        files, ignored = read_files(pathlib.Path(path))
    except Refused as refused:  # one line, whatever names are in it
        raise Refused(course.one_line(str(refused))) from None
    return completed(files, ignored)


def completed(files, ignored):
    """`files`: path in tasks/ -> content, of what was handed in."""
    missing = tuple(name for name in course.blank() if name not in files)
    return Submission({**course.blank(), **missing_extensions(files), **files}, missing, ignored)


def missing_extensions(files):
    """Path -> content, of the missing extensions of tasks that were handed in: as at first, but weak, so that
    a function counts that another file of the task defines. So it is in what a student began before the
    extensions had files of their own."""
    made = {}
    for task in course.tasks():
        missing = [name for name in task.files if name not in files]
        for name in missing if len(missing) < len(task.files) else ():
            if name.startswith("extensions/") and name.endswith(".cpp"):
                definition = rb"(?m)^(?=\w[\w:<>]* [\w:]+\()"
                made[name] = re.sub(definition, b"[[gnu::weak]] ", course.blank()[name])
    return made
