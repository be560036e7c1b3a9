"""Words of messages."""

import json
import unicodedata
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.core.wording import (
    as_asked,
    count_of,
    in_ranges,
    less_or_more,
    listed,
    measuring,
    printable,
    shown,
    unknown_job,
)


def test_lists_and_counts() -> None:
    lists = [listed([]), listed([1]), listed([1, 2]), listed("abc")]
    assert lists == ["", "1", "1 and 2", "a, b and c"]
    assert [count_of(1, "pair"), count_of(2, "pair")] == ["1 pair", "2 pairs"]
    assert [count_of(1, "process"), count_of(2, "process")] == ["1 process", "2 processes"]


def test_copies_are_named_as_commands_take_them() -> None:
    assert (as_asked(["a", "a", "b", "a"]), as_asked([])) == ("a*2 b a", "")


def test_three_in_a_row_are_a_range() -> None:
    assert in_ranges([26, 28, 36, 40, 42, 44, 72], 2) == "26, 28, 36, 40 to 44 and 72"
    assert in_ranges([], 2) == ""


@given(st.sets(st.integers(1, 66).map(lambda n: 2 * n)))
def test_no_count_is_lost(counts: set[int]) -> None:
    written = in_ranges(sorted(counts), 2).replace(" and ", ", ")
    read: set[int] = set()
    for part in filter(None, written.split(", ")):
        ends = [int(end) for end in part.split(" to ")]
        read |= set(range(ends[0], ends[-1] + 1, 2))
    assert read == counts


@given(st.text())
def test_no_text_steers_a_terminal(text: str) -> None:
    """Words of any language stay as they are, and JSON means the same."""
    said = printable(text)
    assert said.isprintable() or not {"Cc", "Cf", "Cs"} & {
        unicodedata.category(one) for one in said if one not in "\n\t"
    }
    assert printable(said) == said
    assert json.loads(printable(json.dumps(text, ensure_ascii=False))) == text


def test_what_steers_is_shown_as_json_writes_it() -> None:
    assert printable("\x1b[2J \x9b \u202e \U000e0041") == r"\u001b[2J \u009b \u202e \udb40\udc41"
    assert printable("Zug 端末\tµ\n") == "Zug 端末\tµ\n"


@pytest.mark.parametrize(
    ("say", "of", "text"),
    [
        (less_or_more, (0.1234,), "12.3 % less"),
        (less_or_more, (0.0, 0), "0 % less"),
        (less_or_more, (-0.5, 0), "50 % more"),
        (shown, ("a" * 58,), repr("a" * 58)),
        (shown, ("a" * 59,), "'" + "a" * 56 + "..."),
        (measuring, (["train.py"],), "advisor profile --name train -- python train.py"),
        (measuring, (["sh", "train.py"],), "advisor profile --name train -- sh train.py"),
        (measuring, (["My job"],), "advisor profile --name NAME -- COMMAND"),
    ],
)
def test_words_of_messages(say: Callable[..., str], of: tuple[Any, ...], text: str) -> None:
    assert say(*of) == text


@pytest.mark.parametrize(
    ("name", "fix", "steps"),
    [
        ("train+infer", "write train infer", []),
        ("train,other", "similar names: trainer, train", ["NAME", "with NAME for it"]),
        ("Training", "similar names: train, trainer", ["NAME", "with NAME for it"]),
        ("z", "names: advisor jobs --bundled", ["--name z", "this command again"]),
    ],
)
def test_an_unknown_job_is_answered_with_what_to_do(name: str, fix: str, steps: list[str]) -> None:
    error = unknown_job(name, ["trainer", "train", "infer"])
    found = [word for word, step in zip(steps, error.steps, strict=True) if word in step]
    assert (error.fix, found) == (fix, steps)
