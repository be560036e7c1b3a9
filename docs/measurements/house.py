"""How the modules hang together: one column for each checkout.

    .venv/bin/python docs/measurements/house.py [CHECKOUT ...]

Source is every package whose name begins with `advisor`, without migrations of the database, and
the workloads. An import inside a function counts. A chain is the longest way from a module down to
one that imports nothing of ours; a circle counts once.
"""

import argparse
import ast
import functools
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]
FOLDERS = (".", "profiling", "training", "models", "data", "api", "api/kubernetes")
PACKAGES = ("advisor*/__init__.py", "workloads/harness.py")


def main() -> None:
    """A table, a row for each figure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkouts", nargs="*", type=Path, default=[HERE])
    columns = [dict(figures(path.resolve())) for path in parser.parse_args().checkouts]
    print(f"| | {' | '.join(['checkout'] * len(columns))} |")
    print(f"|---|{'--:|' * len(columns)}")
    for name in columns[0]:
        print(f"| {name} | {' | '.join(column[name] for column in columns)} |")


def figures(root: Path) -> Iterator[tuple[str, str]]:
    """Names and texts of all figures of a checkout."""
    every = dict(modules(root))
    trees = {name: ast.parse(path.read_text("utf-8")) for name, path in every.items()}
    ways = {name: imported(tree, set(every)) - {name} for name, tree in trees.items()}
    own = [name for name, path in every.items() if path.name != "__init__.py"]
    lengths = [every[name].read_text("utf-8").count("\n") for name in own]
    users = Counter(other for others in ways.values() for other in others)
    yield "modules", str(len(own))
    yield "module lines, median, most", f"{statistics.median(lengths):g}, {max(lengths)}"
    yield "packages", str(len({every[name].parent for name in own}))
    yield "own imports per module", f"{statistics.fmean(map(len, ways.values())):.1f}"
    yield "modules with one user", str(sum(users[name] == 1 for name in own))
    yield "longest chain of imports", str(longest_chain(ways))
    contracts = (root / "pyproject.toml").read_text().count("[[tool.importlinter.contracts]]")
    yield "import contracts", str(contracts)


def modules(root: Path) -> Iterator[tuple[str, Path]]:
    """Every file of source, by dotted name."""
    for folder in FOLDERS:
        for package in sorted(p for pattern in PACKAGES for p in (root / folder).glob(pattern)):
            for path in sorted(package.parent.rglob("*.py")):
                parts = path.relative_to(root / folder).with_suffix("").parts
                if "migrations" not in parts:
                    yield ".".join(parts).removesuffix(".__init__"), path


def imported(tree: ast.Module, known: set[str]) -> set[str]:
    """The modules of ours that one imports."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names} & known
            found |= inner or {node.module}
    return found & known


def longest_chain(ways: Mapping[str, set[str]]) -> int:
    """Modules on the longest way down."""
    above: set[str] = set()

    @functools.cache
    def depth(name: str) -> int:
        above.add(name)
        deepest = max((depth(other) for other in ways[name] if other not in above), default=0)
        above.discard(name)
        return 1 + deepest

    return max(map(depth, ways))


if __name__ == "__main__":
    main()
