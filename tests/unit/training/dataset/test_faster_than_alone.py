"""The list of measurements that are left out since a job ran faster than alone."""

from pathlib import Path
from runpy import run_path

import pytest

from advisor.validity.slow_alone import FASTEST
from advisor_training.dataset.pairs import make_pairs
from advisor_training.retrain.collected import bundled_points
from advisor_training.retrain.sifted import usable_points, with_flags

SCRIPT = Path(__file__).parents[4] / "docs/measurements/model/faster_than_alone.py"


def test_what_is_listed_is_in_no_data_set(capsys: pytest.CaptureFixture[str]) -> None:
    """The script works the speeds out by itself; no pair has the measurements that it names."""
    run_path(str(SCRIPT))["main"]()
    table = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    listed = {(*row[0].split(" + "), row[1].split(", ")[1], row[2]) for row in table}
    usable = usable_points(with_flags(bundled_points()))
    pairs, _ = make_pairs(usable.pairs, [*usable.references, *usable.profiled], full=False)
    used = {(*m.jobs, m.gpu_uuid[:12], m.run) for pair in pairs for m in pair.measurements}
    assert table
    assert used
    assert listed.isdisjoint(used)
    assert all(float(row[5]) > FASTEST for row in table)
