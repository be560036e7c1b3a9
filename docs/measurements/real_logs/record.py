"""Records what a command prints into a pipe, for tests/fixtures/logs.

    python record.py OUT.log "PROGRAM VERSION" TRUTH -- COMMAND...

The first line of the recording is JSON: the program, its command and its true count. Each other
line is a chunk as it came: [seconds, "text"]. `TRUTH` is the empty folder in which the job script
writes its count (work.py); with `-` the true count is null, to be taken from the program's own end.
"""

import codecs
import json
import os
import subprocess
import sys
import time
from pathlib import Path


def record(out: Path, program: str, truth: str, command: list[str]) -> None:
    """Run the command to its end, then write the recording."""
    began, began_s = time.monotonic(), time.time()
    chunks = list[tuple[float, str]]()
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    with subprocess.Popen(
        command,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        bufsize=0,
    ) as job:
        assert job.stdout is not None
        while data := os.read(job.stdout.fileno(), 65536):
            if text := decoder.decode(data):
                chunks.append((round(time.monotonic() - began, 3), text))
    true = None if truth == "-" else true_count(next(Path(truth).glob("*.jsonl")), began_s)
    with out.open("w") as file:
        for line in ({"program": program, "command": " ".join(command), "truth": true}, *chunks):
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


def true_count(path: Path, began_s: float) -> dict[str, object]:
    """Total of the work, and its rate from the first finished step to the last one.

    `per_unit` is what a step holds of other units; `from_s` and `to_s` are times of the recording.
    """
    counts = [json.loads(line) for line in path.read_text().splitlines()]
    begin, end = counts[0], counts[-1]
    steps, took_s = end["steps"] - begin["steps"], end["time_s"] - begin["time_s"]
    return {
        "unit": "steps",
        "rate_per_s": round(steps / took_s, 4),
        "total_end": end["steps"],
        "per_unit": {"samples": end["batch"]},
        "from_s": round(begin["time_s"] - began_s, 3),
        "to_s": round(end["time_s"] - began_s, 3),
    }


if __name__ == "__main__":
    out, program, truth, dashes, *command = sys.argv[1:]
    assert dashes == "--", __doc__
    record(Path(out), program, truth, command)
