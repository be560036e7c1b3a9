"""Prints how the code is laid out: rooms, arrows, circles, sizes, and what importing costs.

    .venv/bin/python docs/measurements/structure.py [CHECKOUT] [--no-times]

A room is a package, or a module at the top of a component. An arrow is a room that imports another
one, a circle a set of rooms that reach each other. CHECKOUT is this one if not given; its times are
those of the Python that runs this, with the checkout first on its path.
"""

import argparse
import ast
import os
import re
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]
COMPONENTS = {
    "advisor": ".",
    "advisor_profiling": "profiling",
    "advisor_training": "training",
    "advisor_models": "models",
    "advisor_data": "data",
    "advisor_api": "api",
    "advisor_node": "api",
    "advisor_kubernetes": "api/kubernetes",
}
TIMED = {
    "import advisor": ("-c", "import advisor"),
    "cold recommend": ("-m", "advisor_cli", "recommend", "bert-infer", "transpose",
                       "--gpu-model", "NVIDIA H200"),
}  # fmt: skip
RUNS = 9

FEWEST_FIELDS = 3
"""Classes with fewer fields are alike by chance."""

Imports = Mapping[str, set[str]]
"""What each module imports, both by their dotted names."""


def main() -> None:
    """One line a figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("checkout", nargs="?", type=Path, default=HERE)
    parser.add_argument("--no-times", action="store_true")
    given = parser.parse_args()
    for name, value in figures(given.checkout.resolve(), times=not given.no_times):
        print(f"| {name} | {value} |")


def figures(root: Path, *, times: bool) -> Iterator[tuple[str, str]]:
    """Names and texts of all figures."""
    files = modules(root)
    imports = {name: imported(path, files) for name, path in files.items()}
    sizes = modules_per_package(files)
    yield "packages", str(len(sizes))
    yield "modules per package, median and most", f"{statistics.median(sizes):g}, {max(sizes)}"
    for component in COMPONENTS:
        arrows = rooms(component, imports, files)
        ways = sum(map(len, arrows.values()))
        yield f"{component}: rooms, arrows, circles", f"{len(arrows)}, {ways}, {circles(arrows)}"
    text = (root / "pyproject.toml").read_text("utf-8")
    contracts = text[text.index("[tool.importlinter]") :].split("\n[tool.")[0]
    yield "lines of import contracts", str(sum(map(bool, contracts.splitlines())))
    yield "  of them names of single modules", str(named_modules(contracts, files))
    yield "names that end in _a or _b", str(len(sided(files)))
    yield "classes with the fields of another one", str(declared_again(files))
    yield "lines of source", str(sum(map(lines, files.values())))
    yield "lines of tests", str(sum(map(lines, (root / "tests").rglob("*.py"))))
    if times:
        for name, command in TIMED.items():
            yield f"{name}, s", f"{seconds(root, command):.2f}"


def modules(root: Path) -> dict[str, Path]:
    """Modules by dotted name, without the migrations of the database."""
    found = {}
    for package, folder in COMPONENTS.items():
        for path in (root / folder / package).rglob("*.py"):
            parts = path.relative_to(root / folder).with_suffix("").parts
            if "migrations" not in parts:
                found[".".join(parts).removesuffix(".__init__")] = path
    return found


def imported(path: Path, files: Mapping[str, Path]) -> set[str]:
    """The modules that one imports, inside functions too."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            names |= {name if name in files else node.module for name in inner}
    return names & files.keys()


def modules_per_package(files: Mapping[str, Path]) -> list[int]:
    """How many modules each package holds, packages without any left out."""
    counts: defaultdict[Path, int] = defaultdict(int)
    for path in files.values():
        counts[path.parent] += path.name != "__init__.py"
    return [count for count in counts.values() if count]


def rooms(component: str, imports: Imports, files: Mapping[str, Path]) -> dict[str, set[str]]:
    """The rooms of a component, and which of its other rooms each imports."""
    found: dict[str, set[str]] = defaultdict(set)
    for module, others in imports.items():
        if module.split(".")[0] == component and module != component:
            own = room(module, files)
            found[own] |= {room(o, files) for o in others if o.startswith(f"{component}.")} - {own}
    return dict(found)


def room(module: str, files: Mapping[str, Path]) -> str:
    """The package of a module; itself where it is one, or is at the top of its component."""
    package = module.rpartition(".")[0]
    return module if files[module].name == "__init__.py" or package in COMPONENTS else package


def circles(arrows: Mapping[str, set[str]]) -> int:
    """Rooms that are reached from themselves."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        ahead = list(arrows.get(start, ()))
        while ahead:
            if (here := ahead.pop()) not in seen:
                seen.add(here)
                ahead += arrows.get(here, ())
        return seen

    return sum(name in reached(name) for name in arrows)


def named_modules(contracts: str, files: Mapping[str, Path]) -> int:
    """Modules below the top of a component that the contracts name one by one."""
    named = set(re.findall(r"advisor\w*(?:\.\w+)+", contracts))
    return sum(name in files and files[name].name != "__init__.py" for name in named)


def sided(files: Mapping[str, Path]) -> set[str]:
    """Names that say of which of two jobs they are."""
    return {
        word
        for path in files.values()
        for word in re.findall(r"\b[a-z_]+_[ab]\b", path.read_text("utf-8"))
    }


def declared_again(files: Mapping[str, Path]) -> int:
    """Classes of three fields or more that another class has by the same names.

    Where an answer is declared for the service, for the client and as a value, each counts.
    """
    counts: defaultdict[frozenset[str], int] = defaultdict(int)
    for path in files.values():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                names = frozenset(
                    field.target.id
                    for field in node.body
                    if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
                )
                counts[names] += len(names) >= FEWEST_FIELDS
    return sum(count for count in counts.values() if count > 1)


def lines(path: Path) -> int:
    """Lines of a file."""
    return path.read_text("utf-8").count("\n")


def seconds(root: Path, command: tuple[str, ...]) -> float:
    """Median time of a process, the first one left out."""
    path = os.pathsep.join(str(root / folder) for folder in COMPONENTS.values())
    took = []
    for _ in range(RUNS + 1):
        begun_s = time.monotonic()
        environment = {**os.environ, "PYTHONPATH": path}
        subprocess.run(
            [sys.executable, *command], env=environment, cwd=root, check=True, capture_output=True
        )
        took.append(time.monotonic() - begun_s)
    return statistics.median(took[1:])


if __name__ == "__main__":
    main()
