"""Recorded answers of the command line, as text and as JSON."""

import json
import re
import shlex
from operator import itemgetter
from pathlib import Path
from typing import Any, cast

import pytest
from command_line import Advisor, Said
from golden import FOLDER, RECORD, Golden

ANSWERS, OBJECTS = Golden("answers.txt"), FOLDER / "answers.json"
PARSED: dict[str, Any] = json.loads(OBJECTS.read_text())


def asked(command: str, advisor: Advisor, monkeypatch: pytest.MonkeyPatch) -> Said:
    """Run a command, with the variables in front of it, before a terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    words = shlex.split(command)
    place = words.index("advisor")
    for variable in words[:place]:
        monkeypatch.setenv(*variable.split("="))
    return advisor(*words[place + 1 :])


@pytest.mark.slow
@pytest.mark.parametrize("command", ANSWERS.texts)
def test_text(command: str, advisor: Advisor, monkeypatch: pytest.MonkeyPatch) -> None:
    said = asked(command, advisor, monkeypatch)
    failed = f"exit {said.code}\n{said.err}" if said.code else ""
    ANSWERS.check(command, f"{said.out}{failed}")


@pytest.mark.slow
@pytest.mark.parametrize("command", PARSED)
def test_json(command: str, advisor: Advisor, monkeypatch: pytest.MonkeyPatch) -> None:
    said = asked(f"{command} --json", advisor, monkeypatch)
    assert said.code == 0, said.err
    answer = json.loads(said.out)
    if RECORD:
        PARSED[command] = answer
        OBJECTS.write_text(json.dumps(PARSED, indent=0) + "\n")
    assert_near(answer, PARSED[command])


def assert_near(value: Any, recorded: Any) -> None:
    """Fail where keys or values differ; numbers may differ in the seventh digit."""
    match recorded:
        case dict():
            keyed = cast("dict[str, Any]", recorded)
            assert list(value) == list(keyed)
            assert_near(list(value.values()), list(keyed.values()))
        case list():
            assert len(value) == len(cast("list[Any]", recorded))
            for one, other in zip(value, cast("list[Any]", recorded), strict=True):
                assert_near(one, other)
        case float():
            assert value == pytest.approx(recorded, rel=1e-6)
        case _:
            assert value == recorded


PICTURED = re.findall(
    r'<text class="jobs".*?>(.*?)</text>\n.*?>(\d+) %</text>\n.*?>(\d+) %</text>',
    (Path(__file__).parents[4] / "docs/sets.svg").read_text().replace("/>\n<text", "><text"),
)


@pytest.mark.slow
@pytest.mark.parametrize(("jobs", "energy", "hours"), PICTURED, ids=itemgetter(0))
def test_the_picture_shows_what_was_measured(
    jobs: str, energy: str, hours: str, advisor: Advisor
) -> None:
    answer = json.loads(advisor("recommend", *jobs.split(", "), "--json").out)
    saved = [answer["choice"][of]["value"] for of in ("energy_saved", "gpu_time_saved")]
    assert answer["verdict"] == "share"
    assert answer["measured"]["at_choice"]
    assert [round(100 * (1 - part)) for part in saved] == [int(energy), int(hours)]
