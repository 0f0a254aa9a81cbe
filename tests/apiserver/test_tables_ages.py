"""Ages and JSONPath of table cells."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.apiserver.tables.age import age, human_duration
from hekla.units.jsonpath import PathError, compile_path

MINUTE, HOUR, DAY = 60, 3600, 86_400
YEAR = 365 * DAY

DURATIONS = {
    "nothing": (0, "0s"),
    "fractions are cut off": (5.9, "5s"),
    "a second in the future is now": (-1.5, "0s"),
    "further in the future is invalid": (-2, "<invalid>"),
    "seconds go up to two minutes": (119, "119s"),
    "two minutes sharp": (120, "2m"),
    "minutes with seconds": (150, "2m30s"),
    "just below ten minutes": (599, "9m59s"),
    "from ten minutes on without seconds": (10 * MINUTE + 59, "10m"),
    "minutes go up to three hours": (3 * HOUR - 1, "179m"),
    "hours with minutes": (3 * HOUR + 12 * MINUTE, "3h12m"),
    "hours sharp": (4 * HOUR + 59, "4h"),
    "from eight hours on without minutes": (8 * HOUR + 59 * MINUTE, "8h"),
    "hours go up to two days": (2 * DAY - 1, "47h"),
    "two days sharp": (2 * DAY, "2d"),
    "days with hours": (2 * DAY + 3 * HOUR, "2d3h"),
    "from eight days on without hours": (8 * DAY + 5 * HOUR, "8d"),
    "days go up to two years": (400 * DAY, "400d"),
    "years with days": (2 * YEAR + 30 * DAY, "2y30d"),
    "years sharp": (3 * YEAR, "3y"),
    "from eight years on without days": (8 * YEAR + 300 * DAY, "8y"),
}


@pytest.mark.parametrize("case", DURATIONS)
def test_durations_are_printed_as_by_kubectl(case: str) -> None:
    seconds, want_text = DURATIONS[case]
    assert human_duration(seconds) == want_text


def test_an_age_counts_from_a_timestamp() -> None:
    assert age("1970-01-01T00:01:00Z", 180.0) == "2m"
    assert age(None, 180.0) == "<unknown>"
    assert age("yesterday", 180.0) == "<invalid>"


THING: dict[str, Any] = {
    "metadata": {"annotations": {"example.com/owner": "ann"}},
    "spec": {"queue": "gold", "weights": [3, 1, 2], "limit": 5, "on": True},
    "items": [{"name": "a", "size": 1}, {"name": "b", "size": 2}, {"name": "c"}],
    "status": {
        "conditions": [
            {"type": "Initialized", "status": "False"},
            {"type": "Ready", "status": "True", "tags": ["x]"]},
        ]
    },
}

PATHS = {
    "a field of a field": (".spec.queue", ["gold"]),
    "without the leading dot": ("spec.queue", ["gold"]),
    "from the root, in braces": ("{$.spec.queue}", ["gold"]),
    "a missing field": (".spec.nothing.here", []),
    "a field of something that has none": (".spec.queue.x", []),
    "an index": (".spec.weights[0]", [3]),
    "an index from the end": (".spec.weights[-1]", [2]),
    "an index beyond the end": (".spec.weights[9]", []),
    "a slice": (".spec.weights[0:2]", [3, 1]),
    "some indices": (".spec.weights[0,2]", [3, 2]),
    "every item": (".items[*].name", ["a", "b", "c"]),
    "every value, by order of name": (".items[0].*", ["a", 1]),
    "a quoted name": (".metadata.annotations['example.com/owner']", ["ann"]),
    "a name in double quotes": ('.metadata["annotations"]["example.com/owner"]', ["ann"]),
    "a name with an escaped dot": (r".metadata.annotations.example\.com/owner", ["ann"]),
    "anywhere below": ("..name", ["a", "b", "c"]),
    "a filter by text": ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
    "a filter with spaces and single quotes": (
        ".status.conditions[?( @.type == 'Ready' )].status",
        ["True"],
    ),
    "a filter by inequality": ('.status.conditions[?(@.type!="Ready")].status', ["False"]),
    "a filter by number": (".items[?(@.size>=2)].name", ["b"]),
    "a filter by presence": (".items[?(@.size)].name", ["a", "b"]),
    "a filter that compares a text with a number": (".items[?(@.name>1)].name", []),
    "a filter with a bracket in its text": (
        '.status.conditions[?(@.tags[0]=="x]")].type',
        ["Ready"],
    ),
    "the whole object": (".", [THING]),
}


@pytest.mark.parametrize("case", PATHS)
def test_json_path_result(case: str) -> None:
    path, want_found = PATHS[case]
    assert compile_path(path).find(THING) == want_found


@pytest.mark.parametrize("path", [".a[", ".a[?(@.b==c)]", ".a[b]", ".a]"])
def test_invalid_json_path_is_refused(path: str) -> None:
    with pytest.raises(PathError, match="path"):
        compile_path(path)
