"""Measures a training for the leaderboard. docs/leaderboard.md says what is measured. A simulated
link and a clock that counts make the numbers equal on all machines. So only the code of the seven
tasks and the choices in tasks/leaderboard.toml decide on them."""

import dataclasses
import re

from grader.course import Refused, tomllib

FILE = "leaderboard.toml"  # in tasks/
WORLD = 4
# The training that everybody measures.
TRAINING = (
    *("--model", "small", "--recipe", "published", "--steps", "3", "--batch", "16"),
    *("--world", str(WORLD), "--link", "500us,200MB/s", "--flops", "2e10"),
)
MEMORY = 64_000_000  # [bytes] of tensors that a rank may have
# [bytes] of other memory that a rank may have beyond that of one process, in which only code of the
# course runs. The process itself needs 2 to 4 MB.
OTHER_MEMORY = 8_000_000
ROUNDING = 2  # [ns] by which a rank's computing may be less than its part of one process's
# The options of ./fsdp train that may be chosen.
ALLOWED = (
    "wrap",
    "limit",
    "forward-limit",
    "backward-limit",
    "prefetch",
    "reshard-after-forward",
    "checkpoint-activations",
    "microbatches",
    "reduce-gradients",
    "step-in-backward",
)
# The options that one process has too: microbatches decides on the order of sums, and so on the
# bits; the recomputation decides how much is computed.
OF_BOTH = ("--microbatches=", "--checkpoint-activations=")
COUNTED = re.compile(
    r"^counted: ([\d,]+) ns for \d+ steps; each rank computed for ([\d,]+) ns, with ([\d,]+) bytes "
    r"of tensors and ([\d,]+) bytes of other memory$",
    re.MULTILINE,
)
PARAMETERS = re.compile(r"^param sum .*, sha256 (\w+)$", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Counted:
    """The numbers that `./fsdp train --flops` prints."""

    nanoseconds: int  # of all steps
    computing: int  # [ns] of the rank that computed least
    peak: int  # [bytes] of tensors
    other: int  # [bytes] of other memory
    parameters: str  # the beginning of the parameters' hash

    @property
    def milliseconds(self):
        """The number of the leaderboard."""
        return self.nanoseconds / 1e6


def choices_of(content):
    """Returns the options of `content`, the bytes of a choices file, as arguments of ./fsdp train.
    Raises Refused if they are not TOML, or if an option is not allowed."""
    try:
        chosen = tomllib.loads(content.decode())
    except ValueError as error:
        raise Refused(f"{FILE} can't be read: {error}") from None
    arguments = []
    for name, value in chosen.items():
        if name not in ALLOWED:
            raise Refused(f"{FILE}: {name} may not be chosen; allowed: {', '.join(ALLOWED)}")
        if not isinstance(value, (bool, int, str)):
            raise Refused(f"{FILE}: {name} must be a text, a number, true or false")
        if isinstance(value, bool):
            value = "on" if value else "off"
        arguments.append(f"--{name}={value}")
    return arguments


def counted(status, text):
    """Returns the numbers that a training has printed. `status`: its exit status; None: it did not
    end in time. Raises Refused if it failed. Graded code prints into the same stream. It can't
    prevent the program from printing its own lines, so a forged line makes their number wrong."""
    if status is None:
        raise Refused("the training did not end in time")
    found, parameters = COUNTED.findall(text), PARAMETERS.findall(text)
    if status != 0 or not found or not parameters:
        raise Refused("the training failed: " + (text.strip().splitlines() or [""])[-1][:500])
    if text.count("counted: ") > 1 or text.count("sha256 ") > 1:
        raise Refused("the training prints its result more than once")
    return Counted(*(int(number.replace(",", "")) for number in found[0]), parameters[0])


def check(ranks, single):
    """Raises Refused if the training `ranks` does not count: unless it has computed what `single`
    has, the same training in one process, in which no rank needs another one."""
    if ranks.parameters != single.parameters:
        raise Refused(
            f"the training ends with other parameters (sha256 {ranks.parameters}) than the same "
            f"training in one process ({single.parameters}); ./fsdp diff finds where they first "
            f"differ"
        )
    if (ranks.computing + ROUNDING) * WORLD < single.computing:
        raise Refused(
            f"a rank computed for {ranks.computing:,} ns only, but the model and its recomputation "
            f"need {single.computing // WORLD:,} ns on each of {WORLD} ranks; leave the model's "
            f"operators as they are"
        )
    if ranks.peak > MEMORY:
        raise Refused(
            f"a rank has {ranks.peak:,} bytes of tensors at its peak, which are "
            f"{ranks.peak - MEMORY:,} bytes more than the {MEMORY:,} allowed; choose settings that "
            f"need less memory"
        )
    if ranks.other > single.other + OTHER_MEMORY:
        raise Refused(
            f"a rank has {ranks.other:,} bytes of memory that is not memory of tensors, which are "
            f"{ranks.other - single.other - OTHER_MEMORY:,} bytes more than allowed; keep data in "
            f"tensors"
        )


def measure(content, seed, train_single, train_ranks):
    """Trains twice: in one process, then on ranks with the choices in `content`. Returns the
    Counted of the ranks. train_single(arguments) and train_ranks(arguments) run a program of
    `./fsdp train`, and return its exit status and output. `seed`: of the training, which no student
    knows before; it changes no number. Raises Refused if the training does not count."""
    choices = choices_of(content)
    training = [*TRAINING, "--seed", str(seed)]
    of_both = [choice for choice in choices if choice.startswith(OF_BOTH)]
    try:
        single = counted(*train_single(["--mode", "single", *training, *of_both]))
    except Refused as refused:
        raise Refused(f"gave no result: in one process, {refused}") from None
    ranks = counted(*train_ranks(["--mode", "fsdp", *training, *choices]))
    check(ranks, single)
    return ranks
