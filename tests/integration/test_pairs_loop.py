"""The whole way of the bundled pairs: replayed, exported, imported elsewhere."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from command_line import Advisor, Said, in_this_process

from advisor.core.records import PairPoint
from advisor.formats.rows import column_types, flat, to_row
from advisor_data.bundled import bundled_pair_points
from advisor_data.files import read_points

REPLAY = ("--gpu", "replay")
PAIR = "mobilenet-train-b2+triad"
ITSELF = "sorting+sorting"
NINE_AND_UNCAPPED = 10
FIVE_AND_UNCAPPED = 6
BUNDLED = Path(__file__).parents[2] / "data/advisor_data/bundled"


@dataclass(frozen=True)
class User:
    """Somebody with a folder, a store of their own and no GPU."""

    folder: Path
    run: Advisor

    def advisor(self, *arguments: str) -> Said:
        """Run the command to its end, which must be a good one."""
        done = self.run(*arguments)
        assert done.code == 0, done.err
        return done

    def json(self, *arguments: str) -> dict[str, Any]:
        return json.loads(self.advisor(*arguments, "--json").out)


NewUser: TypeAlias = Callable[[str], User]


@pytest.fixture
def new_user(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> NewUser:
    """Makes somebody who works in a folder of this name."""
    monkeypatch.setenv("COLUMNS", "150")

    def make(name: str) -> User:
        folder = tmp_path / name
        folder.mkdir()
        # Each command goes to the folder of its own user.
        return User(folder, lambda *words: in_this_process(capsys, monkeypatch, folder)(*words))

    return make


@pytest.fixture
def user(new_user: NewUser) -> User:
    return new_user("user")


def recorded() -> dict[tuple[Any, ...], list[PairPoint]]:
    """The bundled points of each window."""
    found: dict[tuple[Any, ...], list[PairPoint]] = {}
    for point in bundled_pair_points():
        found.setdefault(key(flat(to_row(point))), []).append(point)
    return found


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    """What a window is found by."""
    return tuple(
        row[name] for name in ("job_1", "job_2", "mode", "share_1_percent", "share_2_percent")
    )


@pytest.mark.slow
def test_replay_of_recorded_pairs(user: User) -> None:
    done = user.advisor("colocate", "--pairs", f"{PAIR},{ITSELF}", *REPLAY)
    assert "REPLAY of recorded points of NVIDIA H200" in done.err
    assert "(replay of recorded points)" in done.out
    answer = user.json("colocate", "--pairs", f"{PAIR},{ITSELF}", *REPLAY)
    assert answer["replay"] is True
    assert len(answer["points"]) == NINE_AND_UNCAPPED + FIVE_AND_UNCAPPED
    known = recorded()
    for row in answer["points"]:
        assert set(row) == {"jobs", *column_types(PairPoint)}
        row = flat(row)
        assert row["source"] == "replay"
        assert any(
            row["rate_1"] == pytest.approx(point.parts[0].rate, rel=0.01)
            and row["rate_2"] == pytest.approx(point.parts[1].rate, rel=0.01)
            and row["power_w"] == pytest.approx(point.power_w, rel=0.01)
            for point in known[key(row)]
        )
    assert not (user.folder / "home/advisor.db").exists()


def test_pairs_that_nobody_measured_are_named(user: User) -> None:
    answer = user.json("colocate", "--pairs", PAIR, "--splits", "15/85,50/50", *REPLAY)
    assert [s["reason"] for s in answer["skipped"]] == ["1 window: not recorded"]
    assert [row["jobs"][0]["share_percent"] for row in answer["points"]] == [50]


def test_the_loop_of_a_replay(user: User, new_user: NewUser, tmp_path: Path) -> None:
    rows = user.json("colocate", "--pairs", f"{PAIR},{ITSELF}", *REPLAY)["points"]
    file = tmp_path / "replayed.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    other = new_user("other")
    assert other.json("data", "import", str(file))["pairs"] == {"read": 16, "new": 16}
    other.advisor("data", "export", "out.parquet", "--kind", "pairs")
    assert {to_row(p)["source"] for p in read_points(other.folder / "out.parquet")} == {"replay"}
