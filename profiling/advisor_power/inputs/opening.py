"""Everything that one run needs: a GPU that is ours alone, its worker, and who fills matrices."""

import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from advisor.files.home import open_home
from advisor.settings import Settings
from advisor.validity.sensor_record import record_for
from advisor.validity.sensor_timing import power_timing
from advisor_data.files.power_records import known_sensors
from advisor_power.inputs.bench import Bench
from advisor_power.inputs.keeping import KeptInputs
from advisor_power.inputs.live import input_bench
from advisor_power.inputs.matrices import Filling, filling
from advisor_profiling.campaign.safe_plan import check_safe_count
from advisor_profiling.testbed.live import worker_backend
from advisor_profiling.window.clock import LiveClock
from advisor_profiling.window.rules import rules_for

WINDOW_S = 2.1
"""Some thirty readings, and twenty ticks of the counter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Where cases are measured.

    Attributes:
        gpu: Index or UUID.
        units: SMs under MPS; None: the whole GPU.
        python: Interpreter that has PyTorch.
        allow_unsafe: Also at counts of SMs at which results are wrong.
    """

    gpu: str = "0"
    units: int | None = None
    python: str = "python3"
    window_s: float = WINDOW_S
    allow_unsafe: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """What `measuring.measure_cases` takes.

    Attributes:
        name: Of the session.
        knows_sensor: Whether there is a record of the card's sensor; else waits are long ones.
    """

    name: str
    bench: Bench
    filling: Filling
    keep: KeptInputs
    knows_sensor: bool


@contextmanager
def open_inputs(settings: Settings, where: Where) -> Generator[Open]:
    """A GPU with a worker; what was started for it ends at the end.

    Raises:
        BusyError: somebody uses the GPU.
        InputError: there is no such GPU, or its sensor is too slow for the window.
        JobError: the workload cannot be started.
        UnsafeCountError: results are wrong at that count of SMs.
    """
    with worker_backend(settings, where.gpu, where.units) as backend:
        gpu = backend.gpu
        check_safe_count(where.units, gpu, settings.home, allow_unsafe=where.allow_unsafe)
        record = record_for(gpu.uuid, gpu.model, gpu.driver or "", known_sensors(settings.home))
        timing = record and power_timing(record)
        name = f"power-input-{LiveClock().utc().replace(':', '')}"
        with (
            input_bench(
                backend,
                settings,
                rules_for(where.window_s, timing),
                python=where.python,
                units=where.units,
                folder=open_home(settings.home, "logs", name),
            ) as bench,
            tempfile.TemporaryDirectory(prefix="advisor-inputs-") as folder,
            filling(Path(folder)) as fill,
        ):
            yield Open(
                name=name,
                bench=bench,
                filling=fill,
                keep=KeptInputs(settings.home, gpu.uuid),
                knows_sensor=timing is not None,
            )
