"""Colours blocks of code that name no language, if they are shell commands or C++."""

import re

from docutils import nodes
from pygments.lexer import RegexLexer
from pygments.token import Comment, Generic, Name, String, Text

WORDS = (
    "cd cmake ctest curl docker export gdb git grep hf jq mpirun ninja openssl pip python3 sbatch "
    "srun"
)
COMMAND = (
    r"(?:\w+=\S+ +)*(?:\./fsdp(?: +\w+)?|(?:\.venv|build|scripts|grading)/[\w./-]+|\./\w+"
    rf"|sudo|tar|torchrun|(?:{'|'.join(WORDS.split())})\b)"
)
STATEMENT = re.compile(r"[;{}](\s*//.*)?$|^#include ", re.MULTILINE)


class Lexer(RegexLexer):
    """Tells commands and their comments apart. A line that is neither is what a command prints."""

    name = "shell-session"
    tokens = {
        "root": [
            (rf"^[ ]*{COMMAND}(?=\s|$)", Name.Function, "command"),
            (r"^[ ]*# .*\n?", Comment),
            (r"\n", Text),
            (r"[^\n]+", Generic.Output),
        ],
        "command": [
            (r"\\\n", Text),
            (r"\n", Text, "#pop"),
            (r"(?<=\s)#.*", Comment),
            (r"'[^'\n]*'|\"[^\"\n]*\"", String),
            (r"(?<=\s)--?[A-Za-z][\w-]*", Name.Attribute),
            (r"\$\w+", Name.Variable),
            (r"[^\s'\"$\\]+|[ \t]+|.", Text),
        ],
    }


def language_of(code):
    """Returns the language of a block of code that names none; None if the block is neither shell
    commands nor C++."""
    if re.search(rf"^ *{COMMAND}(?=\s|$)", code.partition("\n")[0]):
        return "shell-session"
    lines = [line for line in code.splitlines() if line.strip()]
    statements = len(STATEMENT.findall(code))
    return "cpp" if statements and 2 * statements >= len(lines) else None


def color_blocks(app, doctree):
    for block in doctree.findall(nodes.literal_block):
        language = block.get("language") in (None, "none") and language_of(block.astext())
        if language:
            block["language"] = language
