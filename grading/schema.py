"""Checks, for tests of the grader, whether a results.json has the form that Gradescope's
documentation ("Autograder Specifications") describes."""

NUMBER, TEXT = (int, float), str
VISIBILITIES = ("hidden", "after_due_date", "after_published", "visible")
CHOICES = {
    "visibility": VISIBILITIES,
    "stdout_visibility": VISIBILITIES,
    "status": ("passed", "failed"),
    "output_format": ("text", "html", "simple_format", "md", "ansi"),
    "order": ("asc", "desc"),
}
# Field of results.json -> type of its value. Of all fields, only `name` and `value` of a
# leaderboard entry are required.
EITHER = {
    "score": NUMBER,
    "output": TEXT,
    "output_format": TEXT,
    "visibility": TEXT,
    "extra_data": dict,
}
WHOLE = {**EITHER, "execution_time": NUMBER, "test_output_format": TEXT, "test_name_format": TEXT,
         "stdout_visibility": TEXT, "tests": list, "leaderboard": list}
TEST = {
    **EITHER,
    "max_score": NUMBER,
    "status": TEXT,
    "name": TEXT,
    "name_format": TEXT,
    "number": TEXT,
    "tags": list,
}
LEADER = {"name": TEXT, "value": (int, float, str), "order": TEXT}


def wrong_fields(what, where, fields, required=()):
    if not isinstance(what, dict):
        yield f"{where} is no object"
        return
    yield from (
        f"{where}: '{name}' is unknown to Gradescope" for name in what if name not in fields
    )
    yield from (f"{where}: '{name}' is missing" for name in required if name not in what)
    for name, value in what.items():
        right = isinstance(value, fields.get(name, object)) and not isinstance(value, bool)
        if not right or value not in CHOICES.get(name, [value]):
            yield f"{where}: '{name}' is {value!r}"


def wrong(results):
    """Returns the mistakes in results.json for which Gradescope would reject it, one line each."""
    found = list(wrong_fields(results, "results", WHOLE))
    if isinstance(results, dict):
        if "score" not in results and not any("score" in test for test in results.get("tests", [])):
            found.append("results: neither 'score' nor tests with scores")
        for i, test in enumerate(results.get("tests", [])):
            found.extend(wrong_fields(test, f"test {i}", TEST))
        for i, entry in enumerate(results.get("leaderboard", [])):
            found.extend(wrong_fields(entry, f"leaderboard {i}", LEADER, ("name", "value")))
    return found
