"""What is known of the SM counts at which libraries compute right results."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import StoreError
from advisor.formats.wire import write
from advisor.validity.checks import (
    CHECKS,
    CountCheck,
    check_for,
    keep_check,
    parse_check,
    wrong_elsewhere,
)
from advisor_data import known as count_checks
from advisor_data.known import bundled_checks, known_checks

OPERATIONS = ("matmul", "convolution", "sort")
CHECK = CountCheck(
    gpu_model="Test GPU 80GB",
    gpu_uuid="GPU-1",
    units_total=132,
    driver="580.1",
    libraries={"torch": "2.11.0", "cublas": "130100"},
    checked=(132, 8, 92, 66),
    wrong={92: ("matmul", "sort"), 66: ("matmul",)},
    operations=OPERATIONS,
    checked_at="2026-11-22T01:02:03.000000Z",
    seconds=12.5,
)


def test_safe_and_unsafe_are_sorted() -> None:
    """A count is safe where nothing was wrong; what was not checked is neither."""
    assert (CHECK.safe, CHECK.unsafe) == ((8, 132), (66, 92))


@st.composite
def checks(draw: st.DrawFn) -> CountCheck:
    checked = draw(st.lists(st.integers(1, 132), unique=True))
    names = st.lists(st.sampled_from(OPERATIONS), min_size=1, unique=True).map(tuple)
    wrong = {count: draw(names) for count in checked if draw(st.booleans())}
    return replace(CHECK, checked=tuple(checked), wrong=wrong)


def test_what_is_written() -> None:
    """Files of it come with advisor, and other versions read them."""
    assert json.loads(write(CHECK)) == {
        "gpu_model": "Test GPU 80GB",
        "gpu_uuid": "GPU-1",
        "units_total": 132,
        "driver": "580.1",
        "libraries": {"torch": "2.11.0", "cublas": "130100"},
        "checked": [132, 8, 92, 66],
        "wrong": {"92": ["matmul", "sort"], "66": ["matmul"]},
        "operations": ["matmul", "convolution", "sort"],
        "checked_at": "2026-11-22T01:02:03.000000Z",
        "seconds": 12.5,
    }


@given(checks())
def test_what_is_written_is_read(check: CountCheck) -> None:
    """Nothing is lost on the way through a file, and safe and unsafe are all there is."""
    again = parse_check(write(check).encode())
    assert again == check
    assert sorted((*again.safe, *again.unsafe)) == sorted(check.checked)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"colour": "red"}, "colour: there is no such key"),
        ({"checked": [8, 134]}, "checked: no 134 of 132 SMs"),
        ({"checked": [0]}, "checked: no 0 of 132 SMs"),
        ({"wrong": {"40": ["matmul"]}}, "wrong.40: 40 SMs were not checked"),
        ({"wrong": {"92": []}}, "wrong.92: not one or more of the operations"),
        ({"wrong": {"92": ["fft"]}}, "wrong.92: not one or more of the operations"),
        ({"wrong": {"many": ["sort"]}}, "wrong.many"),
        ({"seconds": "long"}, "seconds: it should be a valid number"),
    ],
)
def test_faults_are_named(change: dict[str, Any], words: str) -> None:
    text = json.dumps({**json.loads(write(CHECK)), **change})
    with pytest.raises(ValueError, match=words):
        parse_check(text.encode())


def test_what_changed_is_said() -> None:
    assert CHECK.differs_from("580.1", CHECK.libraries) == ""
    assert CHECK.differs_from("580.1", {}) == ""
    assert CHECK.differs_from("580.1", {"jax": "1"}) == ""
    assert CHECK.differs_from("590.2", {"torch": "2.11.0", "cublas": "130200"}) == (
        "driver 580.1 then, 590.2 now, cublas 130100 then, 130200 now"
    )


def test_own_check_comes_before_others_and_they_fill_its_gaps() -> None:
    """A quick check of two counts hides nothing that is known of the rest."""
    own = replace(CHECK, checked=(66, 132), wrong={}, driver="590")
    other_model = replace(CHECK, gpu_model="Another")
    known = check_for(CHECK.gpu_model, [other_model, own, CHECK])
    assert known is not None
    assert (known.safe, known.unsafe, known.driver) == ((8, 66, 132), (92,), "590")
    assert check_for("Nobody's GPU", [own, CHECK]) is None


def test_stored_comes_before_bundled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package, home = tmp_path / "package", tmp_path / "home"
    (package / "bundled/checks").mkdir(parents=True)
    monkeypatch.setattr(count_checks.resources, "files", lambda _: package)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    assert known_checks(home) == []
    bundled = replace(CHECK, gpu_uuid="GPU-2")
    (package / "bundled/checks/test.json").write_text(write(bundled))
    path = keep_check(CHECK, home)
    assert path == home / "checks/test-gpu-80gb.json"
    assert known_checks(home) == [CHECK, bundled]


def test_bundled_files_can_be_read() -> None:
    """Each is a check of its own model, and holds more than the whole GPU."""
    found = bundled_checks()
    assert len({check.gpu_model for check in found}) == len(found)
    assert all(len(check.checked) > 1 for check in found)


def test_damaged_file_says_what_to_do(tmp_path: Path) -> None:
    path = keep_check(CHECK, tmp_path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(StoreError) as caught:
        CHECKS.read(tmp_path)
    assert str(path) in caught.value.what
    assert caught.value.fix == "remove it and run `advisor check` again"


def test_what_was_wrong_on_a_like_model_counts_until_it_is_tried_here() -> None:
    """The same libraries take the same kernels for the same number of SMs."""
    more = ("conv", *CHECK.operations)
    other = replace(CHECK, gpu_model="Another", operations=more, wrong={8: ("conv",)})
    assert wrong_elsewhere(CHECK.gpu_model, [CHECK, other]) == {8: ("conv on Another",)}
    assert wrong_elsewhere(CHECK.gpu_model, [replace(CHECK, operations=more), CHECK, other]) == {}
    assert wrong_elsewhere(CHECK.gpu_model, [CHECK, replace(other, libraries={})]) == {}
    assert wrong_elsewhere(CHECK.gpu_model, [CHECK, replace(other, units_total=60)]) == {}
    assert wrong_elsewhere("Nobody's GPU", [CHECK, other]) == {}
