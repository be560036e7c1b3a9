"""A folder of bundled sensors and kernels, made up, and built by the script that bundles."""

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any, cast

from made_up_kernel import MadeUpKernel, record
from synthetic_sensor import INSTANT, MadeUpCard

from advisor.core.gpu import Gpu
from advisor.formats.wire import to_plain, write
from advisor.wire.power import KernelReport
from advisor_power.kernels import WantedKernel, measure_operation
from advisor_power.sensor import read_trace, record_of, run_stages, steps_and_bursts, waves

ROOT = Path(__file__).parents[2]
BUNDLED = ROOT / "data/advisor_data/bundled"
SCRIPT = ROOT / "docs/measurements/power/bundle_sensors.py"

FOLDER_OF_BUNDLED = "advisor_data.bundled._bundled"
"""What to replace by a function that gives the folder."""


def bundle_script() -> Any:
    spec = importlib.util.spec_from_file_location("bundle_sensors", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def campaign(folder: Path, card: MadeUpCard | None = None) -> Path:
    """What sensor_campaign.py would have written of a made-up card."""
    folder.mkdir()
    period_s, seed = INSTANT.period_s, 1
    stages = (*steps_and_bursts(seed), *waves(period_s, seed), *run_stages(seed))
    trace = read_trace((card or MadeUpCard(stages=stages)).write(folder / "recording.jsonl"))
    (folder / "record.json").write_text(json.dumps(to_plain(record_of(trace, "live"))))
    return folder


def kernel_report(home: Path, power_w: float = 400.0, units: int = 132) -> KernelReport:
    """What `advisor power kernel` would say of a made-up operation."""
    known = record()
    bench = MadeUpKernel(lambda tau_s: power_w + (100.0 if tau_s > 0.03 else 0.0))
    bench.ready = bench.ready.__class__(
        operation=f"gemm m={int(power_w)} n=64 k=64 bf16",
        execution_s=bench.execution_s,
        launches=2,
        captured=True,
        units=units,
        libraries={"torch": "2.0.0"},
    )
    gpu = Gpu(uuid="GPU-1", model="Fake H200", driver="580.00.00", units_total=132)
    wanted, sensors = WantedKernel(runs=80), (known, known.channels[0])
    return measure_operation(
        cast("Any", bench), gpu, sensors, wanted, home, lambda _: None, lambda _: None
    )


def kernels(folder: Path, *reports: KernelReport) -> Path:
    """A folder of measured operations."""
    folder.mkdir()
    for number, report in enumerate(reports):
        (folder / f"{number}.json").write_text(write(report))
    return folder


def made_up_bundle(folder: Path) -> Path:
    """A card and two kernels, bundled."""
    into = folder / "bundled"
    into.mkdir()
    shutil.copy(BUNDLED / "README.md", into)
    reports = [kernel_report(folder / "home", 400.0), kernel_report(folder / "home", 300.0, 66)]
    bundle_script().bundle(
        [campaign(folder / "campaign"), kernels(folder / "kernels", *reports)], into
    )
    return into
