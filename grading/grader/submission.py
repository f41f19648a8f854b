"""What a student hands in: a folder or a zip with tasks/. Of it the grader takes the course's .cpp
files, and the sources and headers of the student's own beside them; the headers of the course are
its own copies."""

import dataclasses
import hashlib
import io
import pathlib
import re
import stat
import zipfile

from grader import course
from grader.course import Refused

MOST_BYTES = 1_000_000  # of one file
MOST_FILES = 300  # tasks/ has some fifty
MOST_ZIPPED = 20_000_000  # of a zip: tasks/ has 0.1 MB, and each member costs memory
HEADERS = (".h", ".hpp", ".hh", ".hxx", ".inl", ".inc", ".ipp", ".tpp")
# And no zip.
ARCHIVES = (
    ".tar",
    ".tar.gz",
    ".tgz",
    ".tar.xz",
    ".tar.bz2",
    ".tar.zst",
    ".gz",
    ".xz",
    ".7z",
    ".rar",
)
OTHER_SOURCES = (".cc", ".cxx", ".c", ".cu")  # which no build of the course takes


@dataclasses.dataclass(frozen=True)
class Submission:
    # "task2_flat_parameter/flat_parameter.cpp" -> bytes; of every .cpp of the course, and of its
    # own files.
    files: dict
    missing: tuple = ()  # the course's .cpp files that were not handed in: they are as at first
    ignored: tuple = ()  # sources that lie where nobody compiles them
    changed: tuple = ()  # headers of the course that are not as the course's

    @property
    def headers(self):
        return {name: content for name, content in self.files.items() if not name.endswith(".cpp")}

    def sources(self, task):
        """The .cpp files of the task and of its extensions."""
        return [
            name
            for name in self.files
            if name.endswith(".cpp") and name.rpartition("/")[0] in task.folders
        ]

    def not_begun(self, task):
        """The numbers of the task's extensions of which the student has written nothing: what a
        todo() stands for is still to be written as at first."""
        def todos(files, number):
            code = b"\n".join(
                content
                for name, content in files.items()
                if name.rpartition("/")[0] in task.folders
            )
            return re.findall(
                rf'todo\("(?:\w+::)*(\w+)", "{re.escape(number)}"\)'.encode(), code
            ), code

        found = set()
        for problem in task.extensions:
            at_first, _ = todos(course.blank(), problem.number)
            in_headers, _ = todos(course.headers(), problem.number)
            left, mine = todos(self.files, problem.number)
            begun = len(left) < len(at_first) or any(name in mine for name in in_headers)
            if (at_first or in_headers) and not begun:
                found.add(problem.number)
        return found

    def digest(self, tasks):
        """Of all that the tasks are compiled from."""
        names = [*self.headers, *(name for task in tasks for name in self.sources(task))]
        return digest({name: self.files[name] for name in names})


def digest(files):
    state = hashlib.sha256()
    for name, content in sorted(files.items()):
        state.update(f"{name}\0{len(content)}\0".encode() + content)
    return state.hexdigest()[:32]


def plain(content):
    """Without what an editor of Windows adds: a mark at the beginning, and a second character at
    each line's end."""
    return content.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n")


def archive_suffix(name):
    """How the name of an archive ends that is no zip, else nothing."""
    return next(
        (
            suffix
            for suffix in sorted(ARCHIVES, key=len, reverse=True)
            if name.lower().endswith(suffix)
        ),
        "",
    )


def require_zip(name):
    """Throws Refused if the name is that of another archive."""
    if suffix := archive_suffix(name):
        raise Refused(
            f"{name} is a {suffix} archive: hand in a zip of the folder tasks/, which ./fsdp "
            f"submit makes"
        )


def is_extension(name):
    return name.startswith("extensions/")


NOTHING = "it holds no file of tasks/: hand in the folder tasks/, or a zip of it"


def roots(paths):
    """The folders that hold task folders: those called tasks/ if there are any, as in a copy of the
    course, which may also have solutions. `paths`: path -> its parts."""
    found = []  # (folder, which file of the course, path)
    for path, parts in paths.items():
        for length in (3, 2):  # extensions/FOLDER/FILE, FOLDER/FILE
            if (listed := "/".join(parts[-length:])) in course.blank():
                found.append((parts[:-length], listed, path))
                break
    if not found:
        raise Refused(NOTHING)
    found = [one for one in found if one[0][-1:] == ("tasks",)] or found
    taken = {}
    for _, listed, path in found:
        if (other := taken.setdefault(listed, path)) != path:
            raise Refused(f"tasks/{listed} is in it twice: {other} and {path}")
    return {root for root, _, _ in found}


def chosen(paths):
    """Name in tasks/ -> the one path of it, of all sources and headers; and the sources that nobody
    compiles."""
    taken, ignored = {}, []
    folders = {folder for task in course.tasks() for folder in task.folders}
    for root in sorted(roots(paths)):
        for path, parts in paths.items():
            name, suffix = "/".join(parts[len(root):]), pathlib.PurePath(path).suffix
            if parts[: len(root)] != root or suffix not in (".cpp", *HEADERS, *OTHER_SOURCES):
                continue
            if not any(name.startswith(f"{folder}/") for folder in folders):
                continue  # as of tests/, if somebody hands in everything
            if suffix in HEADERS or (suffix == ".cpp" and name.rpartition("/")[0] in folders):
                if name in taken:
                    raise Refused(f"tasks/{name} is in it twice: {taken[name]} and {path}")
                taken[name] = path
            else:
                ignored.append(name)
    if len(taken) > MOST_FILES:
        raise Refused(
            f"it holds {len(taken)} sources and headers, and {MOST_FILES} at most are taken"
        )
    return taken, tuple(ignored)


def zip_in(paths):
    """The one zip among paths that have no file of tasks/, as in a folder that Moodle makes for
    each student; None if there is none."""
    if any(
        "/".join(parts[-length:]) in course.blank() for parts in paths.values() for length in (3, 2)
    ):
        return None
    for path in paths:
        require_zip(path)
    zips = [path for path in paths if path.lower().endswith(".zip")]
    if len(zips) > 1:
        raise Refused(
            f"it holds {' and '.join(zips[:4])}, and only one zip can be graded: remove the others"
        )
    return zips[0] if zips else None


def read_folder(folder, under="."):
    """Name in tasks/ -> content, and the sources that nobody compiles. Takes what is in
    folder/under."""
    paths = {
        path.relative_to(folder).as_posix(): path.relative_to(folder).parts
        for path in sorted((folder / under).rglob("*"))
        if not any(part.startswith(".") for part in path.relative_to(folder).parts)
        and not path.is_dir()
    }
    if under == "." and (inner := zip_in(paths)):
        if not stat.S_ISREG((folder / inner).lstat().st_mode):
            raise Refused(f"{inner} is not a regular file")
        return read_zip(folder / inner)
    taken, ignored = chosen(paths)
    files = {}
    for name, path in taken.items():
        file = folder / path
        if not stat.S_ISREG(file.lstat().st_mode):
            raise Refused(f"{path} is not a regular file")
        if file.stat().st_size > MOST_BYTES:
            raise Refused(f"{path} has more than {MOST_BYTES} bytes")
        files[name] = file.read_bytes()
    return files, ignored


def parts_in_zip(name):
    """Of a member's name. Some tools put ./ before it, and some of Windows write \\ for /. What
    this makes of a name only says which file of tasks/ it is; none leads out of it."""
    return tuple(part for part in name.replace("\\", "/").split("/") if part not in ("", "."))


def read_member(archive, member, most=MOST_BYTES):
    """Only of deflate can zipfile unpack a part: what one byte of another becomes may fill the
    memory."""
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise Refused(
            f"{member.filename} is compressed in an unusual way: make the zip with deflate, as "
            f"most tools do"
        )
    with archive.open(member) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise Refused(f"{member.filename} has more than {most} bytes")
    return content


def read_zip(path):
    """The same of a zip."""
    require_zip(path.name)
    if path.stat().st_size > MOST_ZIPPED:
        raise Refused(
            f"{path.name} has more than {MOST_ZIPPED} bytes: hand in a zip of the folder tasks/ "
            f"alone"
        )
    return read_archive(path, path.name)


def read_archive(file, shown, inner=False):
    """`file`: a path or an open file; `shown`: its name. `inner`: it is a zip in another one."""
    try:
        with zipfile.ZipFile(file) as archive:
            members = {member.filename: member for member in archive.infolist()}
            paths = {
                name: parts_in_zip(name)
                for name in members
                if not any(part.startswith((".", "__MACOSX")) for part in parts_in_zip(name))
            }
            if not inner and (nested := zip_in(paths)):
                content = read_member(archive, members[nested], MOST_ZIPPED)
                return read_archive(io.BytesIO(content), nested, inner=True)
            taken, ignored = chosen(paths)
            return {
                name: read_member(archive, members[path]) for name, path in taken.items()
            }, ignored
    except Refused:
        raise
    except Exception as error:  # zipfile throws many kinds for a file that is none, or is damaged
        raise Refused(f"{shown} can't be read as a zip: {error}") from None


def read(path):
    path = pathlib.Path(path)
    try:
        if path.is_file():
            files, ignored = read_zip(path)
        elif path.is_dir():
            files, ignored = read_folder(path)
        else:
            raise Refused(f"{path} is neither a folder nor a zip")
    except Refused as refused:  # one line, whatever names are in it
        raise Refused(course.one_line(str(refused))) from None
    except (OSError, RecursionError, ValueError) as error:
        raise Refused(course.one_line(f"{path.name} can't be read: {error}")) from None
    return completed(files, ignored)


def completed(files, ignored=()):
    """`files`: name in tasks/ -> content, of what was handed in."""
    given = course.headers()
    changed = tuple(
        name for name in files if name in given and plain(files[name]) != plain(given[name])
    )
    own = {name: content for name, content in files.items() if name not in given}
    missing = tuple(name for name in course.blank() if name not in own)
    return Submission({**course.blank(), **own}, missing, ignored, changed)
