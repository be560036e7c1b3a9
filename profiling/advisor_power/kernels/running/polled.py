"""What the poller has written: changes of power, and what held the clock back when."""

import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from advisor.core.telemetry import POWER_CAPS
from advisor.errors import SourceError
from advisor.settings import python
from advisor_power.kernels.trace import Reading
from advisor_profiling.telemetry import polling

_MODULE = "advisor_power.kernels.running.poller"


@dataclass
class Changes:
    """Lines of the poller, as far as they are read."""

    readings: list[Reading] = field(default_factory=list[Reading])
    memory: list[Reading] = field(default_factory=list[Reading])
    reasons: list[tuple[float, frozenset[str]]] = field(
        default_factory=list[tuple[float, frozenset[str]]]
    )

    def add(self, line: str) -> None:
        """Take one line in."""
        kind, at, *rest = line.split()
        if kind == "p":
            self.readings.append(Reading(float(at), float(rest[0])))
        elif kind == "m":
            self.memory.append(Reading(float(at), float(rest[0])))
        else:
            names = rest[0].split(",") if rest else []
            self.reasons.append((float(at), frozenset(names)))

    def between(self, begin_s: float, end_s: float) -> tuple[Reading, ...]:
        """Readings of that time; older ones are forgotten."""
        self.readings = [r for r in self.readings if r.at_s >= begin_s]
        return tuple(r for r in self.readings if r.at_s <= end_s)

    def memory_between(self, begin_s: float, end_s: float) -> tuple[Reading, ...]:
        """Readings of the memory of that time."""
        return tuple(r for r in self.memory if begin_s <= r.at_s <= end_s)

    def held_back(self, begin_s: float, end_s: float) -> str:
        """Why the clock was held back at any moment of that time; the power limit is no reason."""
        found = self._reasons(begin_s, end_s) - POWER_CAPS
        return f"clock held back: {', '.join(sorted(found))}" if found else ""

    def power_capped(self, begin_s: float, end_s: float) -> bool:
        """Whether the power limit held the clock back at any moment of that time."""
        return not POWER_CAPS.isdisjoint(self._reasons(begin_s, end_s))

    def _reasons(self, begin_s: float, end_s: float) -> frozenset[str]:
        before = [names for at_s, names in self.reasons if at_s <= begin_s][-1:]
        within = [names for at_s, names in self.reasons if begin_s < at_s <= end_s]
        return frozenset[str]().union(*before, *within)


class Poller:
    """The process that polls, and what it has found."""

    def __init__(self, gpu_uuid: str, folder: Path, environment: dict[str, str]) -> None:
        path = folder / "power.txt"
        path.touch(mode=0o600)
        self._errors = folder / "poller.log"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [python(), "-m", _MODULE, gpu_uuid, str(path)],
                stdin=subprocess.PIPE,
                stderr=errors,
                env=environment,
            )
        self._file = path.open()
        self._half = ""
        self.changes = Changes()

    def __enter__(self) -> "Poller":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        """End the process."""
        polling.end(self._process)
        self._file.close()

    def read(self) -> Changes:
        """All that was found so far.

        Raises:
            SourceError: the process has ended.
        """
        if self._process.poll() is not None:
            last = self._errors.read_text(errors="replace").strip().rpartition("\n")[2]
            raise SourceError(
                "what reads the power has ended",
                why=last or f"exit code {self._process.returncode}",
                fix="run it again; look at `nvidia-smi` and `dmesg` if it happens again",
            )
        *lines, self._half = (self._half + self._file.read()).split("\n")
        for line in lines:
            self.changes.add(line)
        return self.changes
