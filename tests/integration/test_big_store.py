"""docs/measurements/big_store.py, with a store that is not big: it runs, and says what it says."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "docs/measurements/big_store.py"


def test_it_measures_a_small_store(tmp_path: Path) -> None:
    """Keys of its JSON, which the page of figures is made of."""
    command = [sys.executable, str(SCRIPT), "--scale", "0.001", "--requests", "80", "--json"]
    done = subprocess.run(
        [*command, "--times", "4"], capture_output=True, text=True, timeout=250, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found) == {
        *("store", "profiles", "points", "observations", "filled_s"),
        *("start_s", "latency", "mix"),
    }
    assert (found["profiles"], found["points"], found["observations"]) == (5, 1000, 1000)
    assert all(set(row) == {"p50_ms", "p99_ms"} for row in found["latency"].values())
    assert set(found["mix"]) == {"requests", "per_s", "tenths"}
    assert [set(row) for row in found["mix"]["tenths"]] == [{"memory_mib", "files"}] * 10
