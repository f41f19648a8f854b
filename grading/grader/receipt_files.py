"""Copies the receipts and the checkpoints of a submission, a folder or a zip, into a folder of the
grader. A malicious submission may try to make the grader read or write other files of the machine,
so only regular files are copied, to paths that the grader chooses."""

import dataclasses
import os
import pathlib
import re
import stat
import zipfile

from grader import submission
from grader.course import Refused, one_line, rubric

SUFFIX = ".receipt"
STEP = re.compile(r"step-[0-9]{6,18}")  # the name of a checkpoint's folder
BLOCK = 1 << 20  # [bytes] read and written at a time


@dataclasses.dataclass(frozen=True)
class Receipt:
    name: str  # the receipt's path in the submission
    folder: pathlib.Path  # the folder of the grader with the copy
    checkpoints: pathlib.Path = None  # a folder with checkpoints of the run; None: there is none

    @property
    def file(self):
        return self.folder / "receipt"


class Room:
    """The number of bytes and the number of files that the grader may still copy from one
    submission."""

    def __init__(self):
        limits = rubric()["receipts"]
        self.bytes, self.files = limits["submission_bytes"], limits["submission_files"]

    def copy(self, source, target):
        """Copies the open file `source` into the new file `target`. Raises Refused if the limits of
        the submission are exceeded."""
        self.files -= 1
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(target, "xb") as file:
            while self.files >= 0 and self.bytes >= 0 and (block := source.read(BLOCK)):
                self.bytes -= len(block)
                file.write(block)
        if self.files < 0 or self.bytes < 0:
            limits = rubric()["receipts"]
            raise Refused(
                f"it has more than {limits['submission_bytes']} bytes or "
                f"{limits['submission_files']} files of receipts and checkpoints: hand in fewer "
                f"checkpoints"
            )


def is_receipt(parts):
    return parts[-1].lower().endswith(SUFFIX)


def is_wanted(parts):
    """Returns whether a path in a submission, given as its parts, is a receipt or a file of a
    checkpoint, and not hidden."""
    hidden = any(part.startswith((".", "__MACOSX")) for part in parts)
    of_checkpoint = len(parts) > 1 and STEP.fullmatch(parts[-2])
    return not hidden and bool(is_receipt(parts) or of_checkpoint)


def files_below(folder):
    """Returns a dict of everything below `folder` that is not a folder: the parts of its path
    relative to `folder` -> its path. Does not follow links to folders; they are listed like
    files."""
    return {
        path.relative_to(folder).parts: path
        for here, folders, files in sorted(os.walk(folder))
        for path in (pathlib.Path(here, name) for name in sorted([*folders, *files]))
        if path.is_symlink() or not path.is_dir()
    }


def opened(path, parts):
    """Opens a file of a submission. Raises Refused if it is not a regular file but, for example, a
    link."""
    if not stat.S_ISREG(path.lstat().st_mode):
        raise Refused(f"{'/'.join(parts)} is not a regular file")
    return open(path, "rb")


def from_folder(folder):
    """Returns a dict of the receipts and the files of checkpoints in `folder`: the parts of a
    file's path -> a function that opens the file. Raises Refused if the folder of a checkpoint is a
    link."""
    found = files_below(folder)
    for parts, path in found.items():
        if STEP.fullmatch(parts[-1]) and path.is_symlink():
            raise Refused(f"{'/'.join(parts)} is a link: hand in the checkpoint")
    return {
        parts: lambda parts=parts, path=path: opened(path, parts)
        for parts, path in found.items() if is_wanted(parts)
    }


def from_zip(archive):
    """Returns a dict of the receipts and the files of checkpoints in the open zip `archive`, in the
    form of from_folder()."""
    found = {}
    for member in archive.infolist():
        parts = submission.parts_in_zip(member.filename)
        if ".." in parts or member.filename.startswith(("/", "\\")):
            raise Refused(f"{member.filename} lies outside of the zip's folder: make the zip again")
        if member.is_dir() or not parts or not is_wanted(parts):
            continue
        submission.require_deflate(member)
        if parts in found:
            raise Refused(f"{'/'.join(parts)} is in the zip twice")
        found[parts] = lambda member=member: archive.open(member)
    return found


def inner_zip(folder):
    """Returns the path of the only zip in a folder that has no receipts, such as the folder that
    Moodle makes for each student; None if the folder has receipts or no zip."""
    found = files_below(folder)
    names = {"/".join(parts): path for parts, path in found.items()
             if not any(part.startswith(".") for part in parts)}
    if any(is_wanted(parts) for parts in found):
        return None
    for name in names:
        submission.require_zip(name)
    zips = [name for name in names if name.lower().endswith(".zip")]
    if len(zips) > 1:
        raise Refused(f"it holds {' and '.join(zips[:4])}, and only one zip can be read")
    if zips and not stat.S_ISREG(names[zips[0]].lstat().st_mode):
        raise Refused(f"{zips[0]} is not a regular file")
    return names[zips[0]] if zips else None


def checkpoints_of(receipt, found):
    """Returns the folder, as parts, that holds the checkpoints of this receipt: the folder with the
    receipt's name or, if there is none, the only folder with checkpoints of the submission; None if
    it has none or several."""
    own = (*receipt[:-1], receipt[-1][: -len(SUFFIX)])
    folders = {parts[:-2] for parts in found if not is_receipt(parts)}
    return own if own in folders else min(folders) if len(folders) == 1 else None


def copy_all(found, folder):
    """Copies the receipts, and the checkpoints that belong to them, into `folder`. `found`: from
    from_folder() or from_zip(). Returns the copied receipts."""
    if (count := sum(map(is_receipt, found))) > (most := rubric()["receipts"]["most"]):
        raise Refused(f"it has {count} receipts, and at most {most} are audited: remove the others")
    room, copies, receipts = Room(), {}, []
    for number, parts in enumerate(sorted(filter(is_receipt, found))):
        made = Receipt("/".join(parts), folder / str(number))
        with found[parts]() as source:
            room.copy(source, made.file)
        if (saved := checkpoints_of(parts, found)) is not None:
            copies.setdefault(saved, folder / f"checkpoints{len(copies)}")
            made = dataclasses.replace(made, checkpoints=copies[saved])
        receipts.append(made)
    for parts, source in found.items():
        if not is_receipt(parts) and parts[:-2] in copies:
            with source() as file:
                room.copy(file, copies[parts[:-2]].joinpath(*parts[-2:]))
    return receipts


def copy_zip(path, folder):
    submission.require_zip(path.name)
    if path.stat().st_size > (most := rubric()["receipts"]["zip_bytes"]):
        raise Refused(f"{path.name} has more than {most} bytes: hand in fewer checkpoints")
    with zipfile.ZipFile(path) as archive:
        return copy_all(from_zip(archive), folder)


def copy(path, folder):
    """Copies the receipts and checkpoints of the submission `path` into `folder`, and lets other
    users read the copies. Returns the receipts, in the order of their names. Raises Refused if the
    submission can't be read."""
    try:
        inner = inner_zip(path) if path.is_dir() else path
        receipts = copy_zip(inner, folder) if inner else copy_all(from_folder(path), folder)
        for here, folders, files in os.walk(folder):
            for name in (*folders, *files):
                os.chmod(os.path.join(here, name), 0o755 if name in folders else 0o644)
        return receipts
    except Refused as refused:  # names in the message may have line feeds
        raise Refused(one_line(str(refused))) from None
    except Exception as error:  # a damaged zip makes zipfile raise many types
        raise Refused(one_line(f"{path.name} can't be read: {error}")) from None
