"""What Gradescope's documentation says of results.json ("Autograder Specifications"), as a check."""

VISIBILITIES = ("hidden", "after_due_date", "after_published", "visible")
FORMATS = ("text", "html", "simple_format", "md", "ansi")
NUMBER = (int, float)

# Name -> type. All may be missing but a leader's name and value.
EITHER = {
    "score": NUMBER,
    "output": str,
    "output_format": str,
    "visibility": str,
    "extra_data": dict,
}
WHOLE = {
    **EITHER,
    "execution_time": NUMBER,
    "test_output_format": str,
    "test_name_format": str,
    "stdout_visibility": str,
    "tests": list,
    "leaderboard": list,
}
TEST = {
    **EITHER,
    "max_score": NUMBER,
    "status": str,
    "name": str,
    "name_format": str,
    "number": str,
    "tags": list,
}
LEADER = {"name": str, "value": (int, float, str), "order": str}


def wrong_fields(what, where, fields, required=()):
    if not isinstance(what, dict):
        yield f"{where} is no object"
        return
    for name in what:
        if name not in fields:
            yield f"{where}: '{name}' is unknown to Gradescope"
    for name in required:
        if name not in what:
            yield f"{where}: '{name}' is missing"
    for name, kind in fields.items():
        if name not in what:
            continue
        if not isinstance(what[name], kind) or isinstance(what[name], bool):
            yield f"{where}: '{name}' is {what[name]!r}"
    for name in ("visibility", "stdout_visibility"):
        if name in fields and what.get(name, "visible") not in VISIBILITIES:
            yield f"{where}: '{name}' is {what[name]!r}"
    if what.get("output_format", "text") not in FORMATS:
        yield f"{where}: 'output_format' is {what['output_format']!r}"
    if what.get("status", "passed") not in ("passed", "failed"):
        yield f"{where}: 'status' is {what['status']!r}"
    if what.get("order", "asc") not in ("asc", "desc"):
        yield f"{where}: 'order' is {what['order']!r}"


def wrong(results):
    """What Gradescope would not take, one line each."""
    found = list(wrong_fields(results, "results", WHOLE))
    if not isinstance(results, dict):
        return found
    if "score" not in results and not any("score" in test for test in results.get("tests", [])):
        found.append("results: neither 'score' nor tests with scores")
    for i, test in enumerate(results.get("tests", [])):
        found.extend(wrong_fields(test, f"test {i}", TEST))
    for i, entry in enumerate(results.get("leaderboard", [])):
        found.extend(wrong_fields(entry, f"leaderboard {i}", LEADER, ("name", "value")))
    return found


if __name__ == "__main__":
    import json
    import sys

    lines = wrong(json.load(sys.stdin))
    print("\n".join(lines) or "as documented")
    sys.exit(1 if lines else 0)
