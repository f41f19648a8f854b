"""Measures a training for the leaderboard. docs/leaderboard.md explains what is measured. The
training runs with a simulated link and with a clock that counts operations instead of measuring
time, so the numbers are equal on all machines. They depend only on the code of the student's seven
tasks and on the choices in tasks/leaderboard.toml."""

import dataclasses
import re

from grader.course import Refused, tomllib

FILE = "leaderboard.toml"  # the student's file in tasks/
WORLD = 4
# The options of the training that is measured for every student.
TRAINING = (
    *("--model", "small", "--recipe", "published", "--steps", "3", "--batch", "16"),
    *("--world", str(WORLD), "--link", "500us,200MB/s", "--flops", "2e10"),
)
MEMORY = 64_000_000  # [bytes] of tensors that a rank may have at its peak
# [bytes] A rank may have this much more memory that is not tensors than the same training in one
# process, in which only code of the course runs. That process needs 2 to 4 MB.
OTHER_MEMORY = 8_000_000
ROUNDING = 2  # [ns] tolerance when computing times of ranks are compared
# The options of ./fsdp train that a student may choose in leaderboard.toml.
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
# The chosen options that the comparison run in one process also gets: --microbatches decides on the
# order of sums, and so on the bits of the result; --checkpoint-activations decides how much is
# computed.
OF_BOTH = ("--microbatches=", "--checkpoint-activations=")
COUNTED = re.compile(
    r"^counted: ([\d,]+) ns for \d+ steps; each rank computed for ([\d,]+) ns, with ([\d,]+) bytes "
    r"of tensors and ([\d,]+) bytes of other memory$",
    re.MULTILINE,
)
PARAMETERS = re.compile(r"^param sum .*, sha256 (\w+)$", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Counted:
    """The numbers that a training prints with `./fsdp train --flops`. The option simulates time: it
    counts the time of each rank instead of measuring it."""

    nanoseconds: int  # [ns] counted time of all steps
    computing: int  # [ns] counted on the rank that computed least
    peak: int  # [bytes] peak of tensors
    other: int  # [bytes] peak of other memory
    parameters: str  # the first digits of the SHA-256 of all parameters

    @property
    def milliseconds(self):
        """The counted time of all steps in milliseconds. The leaderboard ranks trainings by this
        number."""
        return self.nanoseconds / 1e6


def choices_of(content):
    """Returns the options that a leaderboard.toml sets, as arguments of ./fsdp train. `content`:
    the bytes of this file. Raises Refused if they are not TOML, or if an option is not allowed."""
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
    """Returns the numbers that a training has printed in `text`. `status`: its exit status; None:
    the training did not end in time. Raises Refused if the training failed or printed its result
    more than once. Graded code can print a forged result line to the same output, but can't prevent
    the program from printing its own line, so a forged line is noticed as a second one."""
    if status is None:
        raise Refused("the training did not end in time")
    found, parameters = COUNTED.findall(text), PARAMETERS.findall(text)
    if status != 0 or not found or not parameters:
        raise Refused("the training failed: " + (text.strip().splitlines() or [""])[-1][:500])
    if text.count("counted: ") > 1 or text.count("sha256 ") > 1:
        raise Refused("the training prints its result more than once")
    return Counted(*(int(number.replace(",", "")) for number in found[0]), parameters[0])


def check(ranks, single):
    """Raises Refused if the training on `ranks` does not count, because its parameters, its amount
    of computing or its memory are not as they must be. `single`: the numbers of the same training
    in one process, in which no code of the student runs."""
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
    """Trains twice: in one process, then on ranks, with the options in `content`, the bytes of a
    leaderboard.toml. Returns the Counted of the training on ranks. train_single(arguments) and
    train_ranks(arguments) run `./fsdp train`, and return its exit status and output. `seed`: the
    seed of the training, which no student knows before; it changes no number of the leaderboard.
    Raises Refused if the training does not count."""
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
