"""What each member of a family keeps: back-ends, sources of telemetry and meters of progress.

A new member goes into the `Literal` of its family, and into the fixture here; all tests then run
over it. Placers have theirs in tests/unit/api/advice/test_placers.py.
"""

import json
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, get_args

import exporter
import pytest
from host import FAKES, UUID, FakeHost
from sleeper import sleeper
from source_facts import facts
from store_points import point

from advisor.core.gpu import Gpu, Share, units_for_share
from advisor.core.job import ProgressKind, ProgressSettings
from advisor.core.telemetry import COUNTERS, UNITS
from advisor.errors import InputError, LimitNotProvenError
from advisor.runtime.backend import Backend, CuMaskBackend, Sight, UncappedBackend, open_mps
from advisor.runtime.counting import CounterFile, OutputCounter, open_counter
from advisor.settings import LIMIT_VARIABLES
from advisor_profiling.testbed import Mode, ReplayTestbed, SourceName

NVIDIA = Gpu(uuid=UUID, model="Fake H200", units_total=132)
MI300X = Gpu(uuid="GPU-a", model="MI300X", vendor="amd", units_total=304)


Opened = tuple[Backend, Mapping[str, str]]
"""A back-end, and the variables with which a process meets its fake driver."""


@pytest.fixture(params=get_args(Mode))
def opened(request: pytest.FixtureRequest, host: FakeHost) -> Iterator[Opened]:
    base = host.environment()
    match request.param:
        case "mps":
            yield open_mps(NVIDIA, host.folder / "run", base), base
            host.control("quit")
        case "cu_mask":
            yield (
                CuMaskBackend(MI300X),
                {**base, "LD_LIBRARY_PATH": f"{request.getfixturevalue('hip')}"},
            )
        case "uncapped":
            yield UncappedBackend(NVIDIA), base
        case other:
            pytest.fail(f"write how a test opens {other}")


@pytest.mark.parametrize("percent", [25, 50, 100])
def test_a_backend_reads_a_share_back_or_refuses_it(opened: Opened, percent: int) -> None:
    (backend, base), share = opened, Share(percent)
    try:
        limited = {**base, **backend.environment(share)}
    except InputError:
        assert (backend.mode, percent < 100) == ("uncapped", True)
        return
    expected = units_for_share(percent, backend.gpu.units_total or 0, backend.gpu.vendor)
    assert backend.prove(share, limited).units == expected
    if percent < 100:
        with pytest.raises(LimitNotProvenError):
            backend.prove(share, base)


def test_a_backend_passes_processes_with_its_variables_alone(opened: Opened) -> None:
    (backend, _), share = opened, Share(100)
    wanted = backend.environment(share)
    foreign = min(frozenset(LIMIT_VARIABLES) - wanted.keys())
    with sleeper(wanted) as good, sleeper({}) as bare:
        backend.check_variables(share, lambda: [good])
        for pids in ([good, bare], []):
            with pytest.raises(LimitNotProvenError):
                backend.check_variables(share, lambda pids=pids: pids)
    with sleeper({**wanted, foreign: "10"}) as lifted, pytest.raises(LimitNotProvenError):
        backend.check_variables(share, lambda: [lifted])


def test_a_backend_without_jobs_has_nothing_to_tell(opened: Opened) -> None:
    backend, _ = opened
    assert backend.mode in get_args(Mode)
    assert backend.max_clients > 1
    backend.cap(100)
    backend.check_alive()
    backend.release(())
    assert (backend.given_percent() or 100, backend.holds(100)) == (100, True)
    assert (backend.spoiled(), backend.blamed()) == (False, frozenset())
    assert backend.sight() in (None, Sight(frozenset(), None), Sight(frozenset(), frozenset()))
    backend.close()


@pytest.fixture(params=[*get_args(SourceName), "replay"])
def source(request: pytest.FixtureRequest, host: FakeHost) -> Iterator[dict[str, Any]]:
    """Facts of a source; the libraries of vendors are found in a process of its own."""
    name, vendor, uuid, more = request.param, "nvidia", UUID, {}
    if name == "replay":
        yield facts(ReplayTestbed([point(job="a", share_percent=100.0, idle_power_w=70.0)]).source)
        return
    if name == "amd":
        vendor, uuid = "amd", "uuid-1"
        more = {"ROCM_PATH": str(request.getfixturevalue("rocm")), "FAKE_AMDSMI": "0 420 65535"}
    with exporter.exporter(exporter.text(exporter.CLASSIC)) as served:
        if name == "dcgm":
            uuid, more = exporter.UUID, {"ADVISOR_DCGM_URL": served.url}
        command = [sys.executable, str(FAKES / "source_facts.py"), name, vendor, uuid]
        done = subprocess.run(
            command, env=host.environment(**more), capture_output=True, text=True, timeout=60
        )
    assert done.returncode == 0, done.stderr
    yield json.loads(done.stdout)


def test_a_source_gives_what_it_offers_and_nothing_else(source: dict[str, Any]) -> None:
    offered, looks = source["channels"], source["looks"]
    assert offered.keys() <= UNITS.keys()
    for look in looks:
        assert look.keys() == UNITS.keys() - COUNTERS.keys()
        given = {name for name, value in look.items() if value is not None}
        assert {"power.gpu", "energy.gpu"} <= given <= offered.keys()
    assert looks[0]["power.gpu"] > 0
    assert [name for name, (kind, _) in offered.items() if kind == "total"] == ["energy.gpu"]
    assert looks[1]["energy.gpu"] >= looks[0]["energy.gpu"]
    assert source["nothing"] == {}
    assert all((source["name"], source["uuid"]))
    assert 0 < source["interval_s"] <= 30
    assert source["dropped"] == 0
    assert source["memory_mib"] in (None, 0)
    assert source["throttle"] is None or all(isinstance(name, str) for name in source["throttle"])


@pytest.fixture(params=get_args(ProgressKind))
def meter(
    request: pytest.FixtureRequest, tmp_path: Path
) -> tuple[CounterFile | OutputCounter, Callable[[int], None]]:
    """A meter of each kind, and what makes its job show a number."""
    counts, output = tmp_path / "progress", tmp_path / "output.log"
    counts.write_bytes(bytes(8))
    output.touch()

    def show(number: int) -> None:
        counts.write_bytes(struct.pack("<q", number))
        with output.open("a") as file:
            file.write(f"at {number}\n")

    kind = ProgressSettings(kind=request.param, pattern=r"at (\d+)")
    return open_counter(kind, counts, output), show


def test_a_meter_sees_each_step_and_never_falls(
    meter: tuple[CounterFile | OutputCounter, Callable[[int], None]],
) -> None:
    counter, show = meter
    with closing(counter):
        seen = [counter.read()]
        for number in (3, 3, 8, 2, 4, 6):  # the count starts again at 2
            show(number)
            seen.append(counter.read())
        assert seen[:4] == [0, 3, 3, 8]
        assert seen == sorted(seen)
        assert counter.read(last=True) == 14
