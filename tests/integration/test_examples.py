"""The examples run, and say what they are there for; a figure of theirs is no promise."""

import runpy
import subprocess
from pathlib import Path

import pytest

from advisor_data.bundled import bundled_solo_points
from advisor_node.slurm.site import parse_comment

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"

pytestmark = pytest.mark.usefixtures("advisor")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("two_servers", ["share uncapped", "start them: advisor launch bert-serve-30"]),
        ("server_and_training", ["energy_saved", "share"]),
        ("seven_trainings", ["share 13/13/13/13/13/13/13", "copies"]),
        ("frontier", ["points of", "share 100/23"]),
    ],
)
def test_an_example_runs(
    name: str, said: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names of columns, options and answers that have changed break them first."""
    monkeypatch.setenv("MPLBACKEND", "Agg")
    runpy.run_path(str(EXAMPLES / f"{name}.py"))
    told = capsys.readouterr().out
    for part in said:
        assert part in told


def test_the_page_begins_with_what_runs(capsys: pytest.CaptureFixture[str]) -> None:
    exec((ROOT / "docs/python.md").read_text().partition("```python\n")[2].partition("```")[0], {})
    assert "share 50/26" in capsys.readouterr().out


def test_the_batch_script_names_a_recorded_job() -> None:
    """A comment that the matcher does not take would leave the job alone on its GPU, silently."""
    script = EXAMPLES / "slurm.sh"
    (comment,) = (
        line.partition("--comment=")[2]
        for line in script.read_text().splitlines()
        if line.startswith("#SBATCH --comment=")
    )
    named = parse_comment(comment)
    assert named is not None
    assert named.job in {point.job for point in bundled_solo_points()}
    assert subprocess.run(["bash", "-n", script], check=False).returncode == 0
