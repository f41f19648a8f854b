"""What the lists of faults and exploits have in common: their form, which entries are run, and
what is counted."""

from grader.course import Refused, tomllib


def checked(entry, path, fields, optional=()):
    """The entry of the file, if it has all `fields`, and of others only the `optional` ones."""
    if wrong := set(fields).symmetric_difference(entry) - set(optional):
        raise Refused(f"{path.name}: too few or too many: {', '.join(sorted(wrong))}: {entry}")
    return entry


def load(path, kind, fields, optional=()):
    """The entries [[kind]] of a file."""
    return [checked(entry, path, fields, optional) for entry in tomllib.loads(path.read_text())[kind]]


def add_options(parser, what):
    parser.add_argument("--only", nargs="+", metavar="NAME", help=f"these {what}s")
    parser.add_argument("--part", metavar="I/N", help=f"the I-th of N parts of the {what}s")
    parser.add_argument("--totals", metavar="FILE", help="add 'passed failed skipped' to FILE")


def chosen(entries, arguments):
    if arguments.only:
        entries = [entry for entry in entries if entry["name"] in arguments.only]
    if arguments.part:
        part, parts = map(int, arguments.part.split("/"))
        ends = [len(entries) * (part % parts + i) // parts for i in (0, 1)]
        entries = entries[slice(*ends)]  # neighbours: they have the files to compile in common
    return entries


def shortened(text, width):
    return text if len(text) <= width else text[: width - 3] + "..."


def add_totals(arguments, passed, failed, skipped=0):
    if arguments.totals:
        with open(arguments.totals, "a") as file:
            file.write(f"{passed} {failed} {skipped}\n")
