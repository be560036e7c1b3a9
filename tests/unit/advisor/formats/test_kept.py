"""Records that are kept on a host: whole or not there, and what was interrupted goes on."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.errors import StoreError
from advisor.formats.wire import RecordFolder, RecordLines, read


@dataclass(frozen=True, slots=True)
class Draw:
    name: str
    watts: float


READ = partial(read, Draw)
DRAWS = st.lists(st.builds(Draw, st.text(max_size=4), st.floats(0, 1e4)), max_size=5)


def lines(folder: Path, suffix: str) -> RecordLines[Draw]:
    return RecordLines(folder / f"draws.{suffix}", "advisor power input", READ)


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz"])
@given(draws=DRAWS, more=DRAWS, data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
def test_what_is_cut_anywhere_goes_on_behind_the_last_whole_line(
    tmp_path: Path, suffix: str, draws: list[Draw], more: list[Draw], data: st.DataObject
) -> None:
    """As after a power cut in the middle of a write."""
    kept = lines(tmp_path, suffix)
    kept.path.unlink(missing_ok=True)
    ends = [0]
    for draw in draws:
        kept.add(draw)
        ends.append(kept.path.stat().st_size)
    if draws:
        cut = data.draw(st.integers(0, ends[-1]))
        kept.path.write_bytes(kept.path.read_bytes()[:cut])
        draws = draws[: sum(end <= cut for end in ends) - 1]
    assert kept.read() == kept.resume() == draws
    for draw in more:
        kept.add(draw)
    assert kept.read() == [*draws, *more]


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz"])
def test_a_bad_line_is_named_with_what_to_do(tmp_path: Path, suffix: str) -> None:
    kept = lines(tmp_path, suffix)
    kept.add(Draw("a", 1.0))
    RecordLines(kept.path, "another", READ).add({"watts": 1})  # pyright: ignore[reportArgumentType]
    with pytest.raises(StoreError, match="line 2 does not hold results of `advisor power input`"):
        kept.read()


def test_only_the_user_can_read_lines(tmp_path: Path) -> None:
    kept = lines(tmp_path, "jsonl")
    kept.add(Draw("a", 1.0))
    assert kept.path.stat().st_mode & 0o777 == 0o600


def test_records_are_found_by_key_and_a_broken_one_names_its_command(tmp_path: Path) -> None:
    folder = RecordFolder("draws", "advisor power sensor", READ)
    path = folder.keep(Draw("a", 1.0), tmp_path, "GPU-1", "580.1")
    folder.keep(Draw("b", 2.0), tmp_path, "NVIDIA H200 / 2")
    assert path.name == "gpu-1-580.1.json"
    assert [draw.name for draw in folder.read(tmp_path)] == ["a", "b"]
    path.write_text("{}")
    with pytest.raises(StoreError, match=r"gpu-1-580\.1\.json is not a result of `advisor power s"):
        folder.read(tmp_path)
