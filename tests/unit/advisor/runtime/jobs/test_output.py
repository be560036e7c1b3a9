"""The lines of a job's output, read a piece at a time while the file is begun again."""

import os
import re
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import JobError
from advisor.runtime.counting import LINE_BYTES, LOOK_BYTES, OutputLines

PIECES = st.lists(st.tuples(st.binary(max_size=9), st.booleans(), st.booleans()), max_size=30)
"""What is written, whether a look follows, and whether the file is begun again after that."""


def begin_again(path: Path) -> None:
    """As the shim does."""
    path.rename(f"{path}.1")
    path.touch()


@given(PIECES)
def test_lines_are_those_of_the_whole_output(
    pieces: list[tuple[bytes, bool, bool]],
) -> None:
    """However it is cut into looks and files, as long as each file is looked at."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "output.log")
        path.touch()
        lines, found, aside = OutputLines(path), list[bytes](), False
        for data, looked, again in pieces:
            with path.open("ab") as file:
                file.write(data)
            if looked:
                found += lines.read()
                aside = False
            if again and not aside:
                begin_again(path)
                aside = True
        for _ in range(3):
            found += lines.read()
        lines.close()
    whole = b"".join(data for data, _, _ in pieces)
    assert found == re.split(rb"[\r\n]", whole)[:-1]


def test_look_is_bounded(tmp_path: Path) -> None:
    """A job that floods its output cannot make its supervisor grow; what is left comes later."""
    path = tmp_path / "output.log"
    path.write_bytes(b"x" * 99 + b"\n" + b"." * (3 * LOOK_BYTES) + b"step 7\nstep 8\n")
    lines = OutputLines(path)
    first = lines.read()
    assert [len(line) for line in first] == [99]
    assert len(lines._rest) == LINE_BYTES  # pyright: ignore[reportPrivateUsage]
    found = [line for _ in range(4) for line in lines.read()]
    assert [line[-6:] for line in found] == [b"step 7", b"step 8"]
    assert len(found[0]) <= LINE_BYTES + LOOK_BYTES
    lines.close()


def test_output_that_was_lost_is_an_error(tmp_path: Path) -> None:
    """A count that leaves lines out would be a wrong rate."""
    path = tmp_path / "output.log"
    path.write_bytes(b"step 1\n")
    lines = OutputLines(path)
    assert lines.read() == [b"step 1"]
    begin_again(path)
    begin_again(path)
    with pytest.raises(JobError, match="faster than it can be read"):
        lines.read()
    lines.close()


def test_file_that_is_just_being_begun_again_is_waited_for(tmp_path: Path) -> None:
    """Between the two steps of its shim there is no file of this name."""
    path = tmp_path / "output.log"
    path.write_bytes(b"step 1\n")
    lines = OutputLines(path)
    path.rename(f"{path}.1")
    assert lines.read() == [b"step 1"]
    path.write_bytes(b"step 2\n")
    assert lines.read() == [b"step 2"]
    assert os.fstat(lines._file.fileno()).st_ino == path.stat().st_ino  # pyright: ignore[reportPrivateUsage]
    lines.close()
