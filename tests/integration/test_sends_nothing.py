"""Commands and the service speak to nobody but whom they were told, and write into their home.

They run in a network of their own (`sniffing.py`), native code as well.
"""

import dataclasses
import functools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import synthetic_pairs as made_up
from host import FAKES, FakeHost

from advisor_data.files import write_points

pytestmark = [pytest.mark.figures, pytest.mark.slow]

PAIR = ("bert-infer-b2", "vit-train")
FILES = ("--pairs", "pairs.parquet", "--solo", "solo.csv")

EXPORTER = ["tcp", "127.0.0.1", 9400]
"""`advisor doctor` looks for the exporter of counters on this host."""

COMMANDS = (
    ("doctor",),
    ("jobs", "--bundled"),
    ("recommend", *PAIR),
    ("recommend", *PAIR, "--fine", "--json"),
    ("place", "gemm:3", "triad:2", "--gpus", "2"),
    ("next",),
    ("drift",),
    ("power", "components", "gemm"),
    ("power", "input", "normal(0,1)", "--predict", "--gpu-model", "NVIDIA H200"),
    ("profile", "triad", "--gpu", "replay"),
    ("train", *FILES, "--out", "mine"),
    ("models", "promote", "./mine"),
    ("models", "check"),
    ("models", "show"),
    ("recommend", *PAIR),
    ("models", "rollback"),
    ("retrain",),
    ("data", "import", "pairs.parquet"),
    ("data", "import", "solo.csv"),
    ("evaluate", *FILES, "--quick", "--out", "evaluation"),
    ("launch", "one", "two", "--split", "70/30", "--duration", "1"),
    ("launches",),
)


@functools.cache
def _why_not() -> str | None:
    """Why this host lets no test have a network of its own; None: it does."""
    if missing := [name for name in ("unshare", "ip", "mount") if shutil.which(name) is None]:
        return f"needs {missing[0]}"
    command = ["unshare", "--net", "--mount", "ip", "link", "set", "lo", "up"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"needs a network of its own: {done.stderr.strip()}"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory, fake_libraries: Path) -> FakeHost:
    if why := _why_not():
        pytest.skip(why)
    made = FakeHost(tmp_path_factory.mktemp("n"), fake_libraries)
    for name in ("work", "user", "tmp"):
        (made.folder / name).mkdir()
    (made.folder / "nvml" / "gpu0").mkdir(parents=True)
    for name in ("one", "two"):
        made.write_job(name)
    solos = [dataclasses.replace(p, idle_power_w=made_up.IDLE_W) for p in made_up.solo_points()]
    write_points(made.folder / "work/pairs.parquet", made_up.pair_points())
    write_points(made.folder / "work/solo.csv", solos)
    return made


@pytest.fixture(scope="module")
def found(host: FakeHost) -> dict[str, Any]:
    environment = host.environment(
        HOME=str(host.folder / "user"),
        TMPDIR=str(host.folder / "tmp"),
        PYTHONPATH=os.pathsep.join([str(FAKES), *sys.path]),
    )
    for name in [name for name in environment if name.startswith("XDG_")]:
        environment.pop(name)
    work = {"folder": str(host.folder), "environment": environment, "commands": COMMANDS}
    done = subprocess.run(
        ["unshare", "--net", "--mount", sys.executable, str(FAKES / "sniffing.py")],
        input=json.dumps(work),
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_watch_sees_connections_and_questions_for_names(found: dict[str, Any]) -> None:
    assert ["tcp", "203.0.113.7", 443, ""] in found["checked"]
    assert any(to == "192.0.2.53" and "telemetry" in said for _, to, _, said in found["checked"])


def test_every_command_did_its_work(found: dict[str, Any]) -> None:
    assert {words: said for words, (code, said) in found["ended"].items() if code} == {}


def test_nothing_is_sent_but_to_the_service(found: dict[str, Any]) -> None:
    told = (["tcp", "127.0.0.1", urlsplit(str(found["url"])).port], EXPORTER)
    assert [one for one in found["seen"] if one[:3] not in told] == []


def test_nothing_is_written_beside_the_home(host: FakeHost, found: dict[str, Any]) -> None:
    """No cache and no file of a library in the user's folder; what was asked for is in the work."""
    assert found["url"]
    assert [*(host.folder / "user").rglob("*")] == [*(host.folder / "tmp").rglob("*")] == []
    work = {path.name for path in (host.folder / "work").iterdir()}
    assert work == {"pairs.parquet", "solo.csv", "mine", "evaluation"}
