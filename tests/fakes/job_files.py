"""The advisor's side of the counter and the gate of a job."""

import struct
from pathlib import Path

from waiting import eventually

from advisor.progress import FILE_BYTES


class JobFiles:
    """Both files in a folder; the job finds them by its environment."""

    def __init__(self, folder: Path) -> None:
        self.progress, self.gate = folder / "progress", folder / "gate"
        self.progress.write_bytes(bytes(FILE_BYTES))
        self.gate.write_bytes(bytes(16))
        self.environment = {
            "ADVISOR_PROGRESS_FILE": str(self.progress),
            "ADVISOR_GATE_FILE": str(self.gate),
        }

    def count(self) -> int:
        return struct.unpack_from("<q", self.progress.read_bytes())[0]

    def state(self) -> int:
        return struct.unpack_from("<q", self.gate.read_bytes(), 8)[0]

    def want(self, wanted: int) -> None:
        with self.gate.open("r+b", buffering=0) as file:
            file.write(struct.pack("<q", wanted))

    def wait_for(self, state: int) -> None:
        eventually(lambda: self.state() == state, lambda: f"still {self.state()}")
