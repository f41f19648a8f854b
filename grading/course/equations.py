"""Works out the equations of a text: "3/4 x 4 x 96 = 288" has to be right, to the digits that it shows."""

import re

NUMBER = r"\d[\d,]*(?:\.\d+)?"
TERM = re.compile(rf"\(*{NUMBER}(?:/{NUMBER})?\)*")
OPERATORS = ("x", "+", "-", "/")
ENDS = ",.;:"  # after a number: here a side ends
UNITS = {"GB": 1e9, "MB": 1e6}  # behind what was counted in bytes


def left_of(words):
    side = []
    for word in reversed(words):
        if not (TERM.fullmatch(word) or word in OPERATORS) or word[-1] in ENDS:
            break
        side.insert(0, word)
    return side


def right_of(words):
    side = []
    for word in words:
        plain = word.rstrip(ENDS)
        if not (TERM.fullmatch(plain) or plain in OPERATORS):
            break
        side.append(plain)
        if plain != word:
            break
    return side


def value(side):
    """What a side comes to. None if it is only a part of an expression."""
    text = " ".join(side)
    if not side or side[0] in OPERATORS or side[-1] in OPERATORS or text.count("(") != text.count(")"):
        return None
    if any((a in OPERATORS) == (b in OPERATORS) for a, b in zip(side, side[1:])):
        return None
    return eval(re.sub(r",(?=\d{3})", "", text).replace(" x ", " * "), {})  # digits and operators alone


def equations(text):
    """(text, the one side, the other, by how much they may differ: the numbers may be rounded)."""
    words = text.split()
    for at, word in enumerate(words):
        if word != "=":
            continue
        left, right = left_of(words[:at]), right_of(words[at + 1:])
        values = value(left), value(right)
        if None in values:
            continue
        decimals = [len(found) for found in re.findall(r"\.(\d+)", " ".join(left + right))]
        allowed = len(decimals) / 2 * 10**-max(decimals) if decimals else 0
        after = words[at + 1 + len(right)].rstrip(ENDS) if at + 1 + len(right) < len(words) else ""
        unit = UNITS.get(after, 1) if "." not in "".join(left) else 1
        yield " ".join([*left, "=", *right]), values[0], values[1] * unit, allowed * unit


def wrong_equations(text):
    for equation, left, right, allowed in equations(text):
        if abs(left - right) > allowed * 1.001:
            yield equation
