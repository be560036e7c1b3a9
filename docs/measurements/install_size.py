"""Prints what each extra installs: packages, MiB in site-packages, and what importing costs.

    .venv/bin/python docs/measurements/install_size.py [CHECKOUT] [--extras serve,advise]

Builds the wheel of CHECKOUT (this one if not given) and installs it with pip into a new virtual
environment for each extra, without pip itself. Sizes are sums of the lengths of the files, with
the compiled modules that pip adds. Times are medians of new processes. Needs a package index.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]

IMPORTED = {
    "base": "advisor_cli",
    "data": "advisor_data",
    "advise": "advisor_advice.answers",
    "serve": "advisor_api.server",
    "train": "advisor_training.learners",
    "client": "advisor.client",
}
"""Extras, and what is imported first where they are used."""

RUNS = 5
LARGEST = 6
MIB = 2**20


def main() -> None:
    """One line for each extra."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkout", nargs="?", type=Path, default=HERE)
    parser.add_argument("--extras", default=",".join(IMPORTED))
    given = parser.parse_args()
    print("| extra | packages | MiB | of it compiled | largest, MiB | import, s |")
    print("| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory(prefix="advisor-size-") as folder:
        wheel = built(given.checkout.resolve(), Path(folder))
        for extra in given.extras.split(","):
            print(line(extra, wheel, Path(folder) / extra), flush=True)


def built(checkout: Path, folder: Path) -> Path:
    """The wheel of a checkout."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(folder)]
    subprocess.run([*command, str(checkout)], check=True, stdout=subprocess.DEVNULL)
    return next(folder.glob("*.whl"))


def line(extra: str, wheel: Path, folder: Path) -> str:
    """What one extra comes to, as a line of a table."""
    python = folder / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    what = str(wheel) if extra == "base" else f"{wheel}[{extra}]"
    install(python, what)
    [packages] = folder.glob("lib/*/site-packages")
    sizes, compiled = measured(packages)
    largest = ", ".join(f"{name} {size / MIB:.0f}" for name, size in sizes.most_common(LARGEST))
    count = len([*packages.glob("*.dist-info")])
    return (
        f"| {extra} | {count} | {sizes.total() / MIB:.0f} | {compiled / MIB:.0f} | {largest} "
        f"| `{IMPORTED[extra]}` {seconds(python, IMPORTED[extra]):.2f} |"
    )


def install(python: Path, what: str) -> None:
    """Install into the environment of another interpreter."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--python", str(python), "install", what], check=True)


def measured(packages: Path) -> tuple[Counter[str], int]:
    """Bytes by name in site-packages, and how many of all are compiled modules."""
    sizes, compiled = Counter[str](), 0
    for path in packages.rglob("*"):
        if path.is_file():
            size = path.stat().st_size
            # Libraries that wheels bring lie beside their package.
            sizes[path.relative_to(packages).parts[0].removesuffix(".libs")] += size
            compiled += size if path.suffix == ".pyc" else 0
    return sizes, compiled


def seconds(python: Path, module: str) -> float:
    """Median time of a new process that imports a module and ends."""
    return statistics.median(_once([str(python), "-c", f"import {module}"]) for _ in range(RUNS))


def _once(command: Sequence[str]) -> float:
    # Away from every checkout, or the modules there would be imported.
    begun = time.perf_counter()
    subprocess.run(command, check=True, cwd="/", env={**os.environ, "PYTHONPATH": ""})
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
