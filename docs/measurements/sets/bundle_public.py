"""Reduces published tables to what `advisor evaluate --public` reads of them.

    python docs/measurements/sets/bundle_public.py FOLDER

FOLDER has clones of `TABLES`, each by the name of its repository. What is read is that of the
commit, so its name is the hash of all of it. Prints the rows and the SHA-256 of each packed table.
"""

import argparse
import csv
import gzip
import hashlib
import io
import json
import re
import statistics
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

BUNDLED = Path(__file__).resolve().parents[3] / "data/advisor_data/bundled/public"
MISO = "mps/configs/util_collection/{}_{}.json"
NO_JOB = "dummy"  # of MISO, which keeps a slice free

Read = Callable[[str], str]
Rows = Iterator[tuple[object, ...]]


def of_parvagpu(read: Read) -> Rows:
    """Copies of a model on a slice of so many of seven, and the rate of all."""
    yield "model", "slice", "batch", "copies", "rate"
    for path in read("prof_data/").split():
        for row in list(csv.reader(read(f"prof_data/{path}").splitlines()))[1:]:
            if float(row[3]):
                yield path.removesuffix(".csv"), *row[:4]


def of_gavel(read: Read) -> Rows:
    """Rate of a job alone, and beside another one where both made progress."""
    yield "gpu", "job", "beside", "rate"
    known = json.loads(read("scheduler/notebooks/figures/motivation/oracle_throughputs.json"))
    for gpu, jobs in known.items():
        for job, rates in jobs.items():
            for beside, rate in rates.items():
                if beside == "null":
                    yield gpu, job, "", f"{rate:.6g}"
                elif all(rate):
                    yield gpu, job, beside, f"{rate[0]:.6g}"


def of_miso(read: Read) -> Rows:
    """Median step on a slice of so many of seven, and what nvidia-smi read on the whole GPU."""
    yield "job", "batch", "gpu_busy_percent", "memory_busy_percent", "power_w", "slice", "step_s"
    for name in read("mps/models/logs/mig/").split():
        [(part, job, batch)] = re.findall(r"(\d)g\.\d+gb_(\w+)_train(\d+)\.json", name)
        if job != NO_JOB:
            told = (json.loads(read(MISO.format(of, job)))[batch] for of in
                    ("util_sm", "util_mem", "power"))  # fmt: skip
            epochs = json.loads(read(f"mps/models/logs/mig/{name}")).values()
            # The first step of an epoch waits for its data.
            step_s = statistics.median(s for steps in epochs for s in steps[1:])
            yield job, batch, *told, part, f"{step_s:.6g}"


def of_zeus(read: Read) -> Rows:
    """An epoch at a power limit."""
    yield "gpu", "dataset", "network", "batch", "optimizer", "limit_w", "epoch_s", "power_w"
    for gpu in ("v100", "a40", "p100", "rtx6000"):
        trace = f"examples/research_reproducibility/zeus_nsdi23/trace/summary_power_{gpu}.csv"
        for *job, limit_w, epoch_s, power_w in list(csv.reader(read(trace).splitlines()))[1:]:
            yield gpu, *job, limit_w, f"{float(epoch_s):.6g}", f"{float(power_w):.5g}"


TABLES: dict[str, tuple[str, str, Callable[[Read], Rows]]] = {
    "parvagpu": ("ParvaGPU_SC24", "5f3de1e", of_parvagpu),
    "gavel": ("gavel", "c4fa40097339e9608ab71fd64c8bdea96a5e4a4c", of_gavel),
    "miso": ("socc22-miso", "39b1ee69d73c876c2d2bfca7858806890b27c834", of_miso),
    "zeus": ("zeus", "75a8b9398034eb9baf74ca0a830c2c31bcce52cd", of_zeus),
}


def main() -> None:
    """Write each table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    for table, (name, commit, rows) in TABLES.items():

        def read(path: str, clone: Path = folder / name, commit: str = commit) -> str:
            command = ["git", "-C", str(clone)]
            command += (["ls-tree", "--name-only", f"{commit}:{path}"] if path.endswith("/")
                        else ["show", f"{commit}:{path}"])  # fmt: skip
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout

        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(found := [*rows(read)])
        packed = gzip.compress(text.getvalue().encode(), mtime=0)
        (BUNDLED / f"{table}.csv.gz").write_bytes(packed)
        print(f"{table}: {len(found) - 1} rows, {hashlib.sha256(packed).hexdigest()}")


if __name__ == "__main__":
    main()
