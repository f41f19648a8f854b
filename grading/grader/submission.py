"""Reads a submission: a folder or a zip with tasks/. The grader takes from it the .cpp files of the
course, and the student's own sources and headers in the same folders. It does not take the headers
of the course, because it uses its own copies of them."""

import dataclasses
import hashlib
import io
import pathlib
import re
import stat
import zipfile

from grader import course, leaderboard
from grader.course import Refused

MOST_BYTES = 1_000_000  # [bytes] limit for one file
MOST_FILES = 300  # limit for the number of files; tasks/ has about fifty
MOST_ZIPPED = 20_000_000  # [bytes] limit for a zip; tasks/ has 0.1 MB zipped
HEADERS = (".h", ".hpp", ".hh", ".hxx", ".inl", ".inc", ".ipp", ".tpp")
# Suffixes of archives that are not zips.
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
OTHER_SOURCES = (".cc", ".cxx", ".c", ".cu")  # no build of the course compiles these


@dataclasses.dataclass(frozen=True)
class Submission:
    # Path in tasks/, such as "task2_flat_parameter/flat_parameter.cpp" -> bytes, for every .cpp
    # file of the course and for the student's own sources and headers.
    files: dict
    missing: tuple = ()  # the course's .cpp files that were not handed in; the skeletons are used
    ignored: tuple = ()  # sources that no build compiles, by place or suffix
    changed: tuple = ()  # headers of the course that the student has changed
    choices: bytes = None  # the student's leaderboard.toml; None: it was not handed in

    @property
    def headers(self):
        return {name: content for name, content in self.files.items() if not name.endswith(".cpp")}

    def sources(self, task):
        """Returns the .cpp files of the submission in the folders of the task and of its
        extensions."""
        return [
            name
            for name in self.files
            if name.endswith(".cpp") and name.rpartition("/")[0] in task.folders
        ]

    def not_begun(self, task):
        """Returns the numbers of the task's extensions in which the student has written nothing:
        every todo() of the extension's skeleton is still there."""
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
        """Returns a hash of all files of the submission that are compiled for these tasks."""
        names = [*self.headers, *(name for task in tasks for name in self.sources(task))]
        return digest({name: self.files[name] for name in names})


def digest(files):
    state = hashlib.sha256()
    for name, content in sorted(files.items()):
        state.update(f"{name}\0{len(content)}\0".encode() + content)
    return state.hexdigest()[:32]


def plain(content):
    """Returns the content without what editors on Windows add: a byte order mark at the beginning,
    and a carriage return at the end of each line."""
    return content.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n")


def archive_suffix(name):
    """Returns the suffix of the name if it is that of an archive that is not a zip; else ""."""
    return next(
        (
            suffix
            for suffix in sorted(ARCHIVES, key=len, reverse=True)
            if name.lower().endswith(suffix)
        ),
        "",
    )


def require_zip(name):
    """Raises Refused if the suffix of the name is that of an archive that is not a zip."""
    if suffix := archive_suffix(name):
        raise Refused(
            f"{name} is a {suffix} archive: hand in a zip of the folder tasks/, which ./fsdp "
            f"submit makes"
        )


def is_extension(name):
    """Returns whether the file with this path in tasks/ belongs to an extension or to an optional
    task, so that all other tasks can be graded without it."""
    folder = name.partition("/")[0]
    return folder == "extensions" or any(
        task.optional and folder == task.folder for task in course.tasks()
    )


NOTHING = "it holds no file of tasks/: hand in the folder tasks/, or a zip of it"


def roots(paths):
    """Returns the folders of the submission that contain task folders. If some of these folders are
    called tasks/, returns only them, because a copy of the course may also have solutions/.
    `paths`: path -> its parts."""
    found = []  # (folder with task folders, path in tasks/, path)
    for path, parts in paths.items():
        for length in (3, 2):  # extensions/TASK/FILE or TASK/FILE
            if (listed := "/".join(parts[-length:])) in course.blank():
                found.append((parts[:-length], listed, path))
                break
    if not found:
        raise Refused(NOTHING)
    found = [one for one in found if one[0][-1:] == ("tasks",)] or found
    taken = {}
    for _, listed, path in found:
        if (other := taken.setdefault(listed, path)) != path:
            raise Refused(f"tasks/{listed} is in the submission twice: {other} and {path}")
    return {root for root, _, _ in found}


def chosen(paths):
    """Selects the files of a submission. Returns two values: a dict, path in tasks/ -> path in the
    submission, of the sources, headers and leaderboard.toml that are used; and a tuple with the
    paths of the sources that are not compiled. Raises Refused if two files have one path in
    tasks/."""
    taken, ignored = {}, []
    folders = {folder for task in course.tasks() for folder in task.folders}
    for root in sorted(roots(paths)):
        for path, parts in paths.items():
            name, suffix = "/".join(parts[len(root):]), pathlib.PurePath(path).suffix
            is_choices = name == leaderboard.FILE
            is_source = suffix in (".cpp", *HEADERS, *OTHER_SOURCES)
            if parts[: len(root)] != root or not (is_source or is_choices):
                continue
            if not (is_choices or any(name.startswith(f"{folder}/") for folder in folders)):
                continue  # for example a file of tests/, if a student hands in everything
            in_its_place = suffix == ".cpp" and name.rpartition("/")[0] in folders
            if is_choices or suffix in HEADERS or in_its_place:
                if name in taken:
                    raise Refused(
                        f"tasks/{name} is in the submission twice: {taken[name]} and {path}"
                    )
                taken[name] = path
            else:
                ignored.append(name)
    if len(taken) > MOST_FILES:
        raise Refused(
            f"the submission has {len(taken)} sources and headers; at most {MOST_FILES} are allowed"
        )
    return taken, tuple(ignored)


def zip_in(paths):
    """Returns the path of the only zip among `paths` if none of them is a file of tasks/, as in the
    folder that Moodle makes for each student; None if there is no zip or there are files of
    tasks/."""
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
    """Reads the files in folder/under. Returns two values: a dict, path in tasks/ -> content; and a
    tuple with the paths of the sources that are not compiled. If `under` is "." and the folder has
    one zip and no file of tasks/, reads this zip instead."""
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
    """Returns the parts of the name of a zip's member. Some tools put ./ before a name, and some
    tools on Windows write \\ for /. The parts only select a file of tasks/, so a name with .. can't
    make the grader write outside of tasks/."""
    return tuple(part for part in name.replace("\\", "/").split("/") if part not in ("", "."))


def require_deflate(member):
    """Raises Refused if a member of a zip is neither stored nor compressed with deflate, because
    zipfile can't limit what it unpacks from other formats, so a small member could fill the
    memory."""
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise Refused(
            f"{member.filename} is compressed in an unusual way: make the zip with deflate, as "
            f"most tools do"
        )


def read_member(archive, member, most=MOST_BYTES):
    """Returns the content of a member of a zip. Raises Refused if it has more than `most` bytes, or
    if require_deflate() refuses it."""
    require_deflate(member)
    with archive.open(member) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise Refused(f"{member.filename} has more than {most} bytes")
    return content


def read_zip(path):
    """Reads the zip that a student has handed in. Returns the two values that read_folder() would
    return for the folder into which it is unpacked: the files of tasks/ that are used, and the
    paths of the sources that are not compiled."""
    require_zip(path.name)
    if path.stat().st_size > MOST_ZIPPED:
        raise Refused(
            f"{path.name} has more than {MOST_ZIPPED} bytes: hand in a zip of the folder tasks/ "
            f"alone"
        )
    return read_archive(path, path.name)


def read_archive(file, shown, inner=False):
    """Returns what read_folder() would return for the unpacked zip. `file`: the zip's path, or the
    zip as an open file; `shown`: its name in messages; `inner`: the zip was inside another zip."""
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
    except Exception as error:  # a damaged zip makes zipfile raise many types
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
    except Refused as refused:  # names in the message may have line feeds
        raise Refused(course.one_line(str(refused))) from None
    except (OSError, RecursionError, ValueError) as error:
        raise Refused(course.one_line(f"{path.name} can't be read: {error}")) from None
    return completed(files, ignored)


def has(path, file):
    """Returns whether `file` is the zip `path`, or lies in tasks/ of the folder `path`."""
    path, file = pathlib.Path(path), pathlib.Path(file)
    if not (path.exists() and file.exists()):
        return False
    folder = path.resolve() / "tasks"
    return path.samefile(file) or (folder.is_dir() and folder in file.resolve().parents)


def completed(files, ignored=()):
    """Returns the Submission. `files`: path in tasks/ -> content of the handed-in files. The
    skeletons take the place of .cpp files of the course that were not handed in."""
    given = course.headers()
    changed = tuple(
        name for name in files if name in given and plain(files[name]) != plain(given[name])
    )
    own = {name: content for name, content in files.items() if name not in given}
    choices = own.pop(leaderboard.FILE, None)
    missing = tuple(name for name in course.blank() if name not in own)
    return Submission({**course.blank(), **own}, missing, ignored, changed, choices)
