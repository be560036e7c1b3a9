"""How large the code is and how it hangs together: one column for each checkout.

    .venv/bin/python docs/measurements/house.py [CHECKOUT ...]

Source is every package whose name begins with `advisor`, without migrations of the database, and
the workloads; tests and measuring scripts are counted apart. An import inside a function counts. A
chain is the longest way from a module down to one that imports nothing of ours.
"""

import argparse
import ast
import functools
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]
COMPONENT_FOLDERS = (".", "profiling", "training", "models", "data", "api", "api/kubernetes")
PACKAGES = ("advisor*/__init__.py", "workloads/harness.py")
SMALL_LINES, LIMIT_LINES = 75, 300

Functions = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Module:
    """One file of source."""

    name: str
    path: Path
    text: str
    tree: ast.Module

    @property
    def is_package(self) -> bool:
        """Whether it is an `__init__`, which is counted as no module."""
        return self.path.name == "__init__.py"

    @property
    def lines(self) -> int:
        """All of them."""
        return self.text.count("\n")


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
    every = list(modules(root))
    own = [module for module in every if not module.is_package]
    source = sum(module.lines for module in every)
    tests = lines_below(root / "tests")
    yield "lines of source", f"{source}"
    yield "lines of tests", f"{tests}"
    yield "lines of measuring scripts", f"{lines_below(root / 'docs')}"
    yield "test / source lines", f"{tests / source:.2f}"
    yield from sizes(own)
    yield from style(own)
    yield from names(own)
    yield from imports_of(every)
    text = (root / "pyproject.toml").read_text("utf-8")
    yield "import contracts", str(text.count("[[tool.importlinter.contracts]]"))


def modules(root: Path) -> Iterator[Module]:
    """Every file of source, by dotted name."""
    for folder in COMPONENT_FOLDERS:
        for package in sorted(p for pattern in PACKAGES for p in (root / folder).glob(pattern)):
            for path in sorted(package.parent.rglob("*.py")):
                parts = path.relative_to(root / folder).with_suffix("").parts
                if "migrations" in parts:
                    continue
                text = path.read_text("utf-8")
                name = ".".join(parts).removesuffix(".__init__")
                yield Module(name, path, text, ast.parse(text))


def lines_below(folder: Path) -> int:
    """Lines of Python in a folder."""
    return sum(path.read_text("utf-8").count("\n") for path in folder.rglob("*.py"))


def sizes(own: Sequence[Module]) -> Iterator[tuple[str, str]]:
    """Of modules, packages and functions."""
    lengths = [module.lines for module in own]
    short = sum(length <= LIMIT_LINES for length in lengths)
    yield "modules", str(len(own))
    yield "module lines, median, most", f"{statistics.median(lengths):g}, {max(lengths)}"
    yield f"modules of {LIMIT_LINES} lines or fewer", f"{100 * short / len(own):.1f} %"
    rooms = Counter(module.path.parent for module in own).values()
    yield "packages", str(len(rooms))
    yield "modules per package, median, most", f"{statistics.median(rooms):g}, {max(rooms)}"
    spans = [(node.end_lineno or 0) - node.lineno + 1 for node in functions(own)]
    most = (
        f"{statistics.median(spans):g}, {statistics.quantiles(spans, n=10)[-1]:.0f}, {max(spans)}"
    )
    yield "functions", str(len(spans))
    yield "function lines, median, nine of ten, most", most


def style(own: Sequence[Module]) -> Iterator[tuple[str, str]]:
    """Annotations, exceptions, comments and docstrings."""
    every = list(functions(own))
    full = sum(node.returns is not None and not _unannotated(node) for node in every)
    yield "functions fully annotated", f"{100 * full / len(every):.2f} %"
    handlers = [
        node for m in own for node in ast.walk(m.tree) if isinstance(node, ast.ExceptHandler)
    ]
    yield "broad except", str(sum(map(_is_broad, handlers)))
    filled = sum(bool(line.strip()) for m in own for line in m.text.splitlines())
    comments = sum(line.lstrip().startswith("#") for m in own for line in m.text.splitlines())
    yield "comments per line that is not blank", f"{100 * comments / filled:.1f} %"
    texts = [ast.get_docstring(node) for m in own for node in documentable(m.tree)]
    documented = sum(text.count("\n") + 1 for text in texts if text)
    yield "docstring lines per line that is not blank", f"{100 * documented / filled:.0f} %"


def names(own: Sequence[Module]) -> Iterator[tuple[str, str]]:
    """Names that mean two things, say of which of two jobs they are, or serve one caller."""
    classes = [n.name for m in own for n in m.tree.body if isinstance(n, ast.ClassDef)]
    twice = Counter(classes)
    yield "class names defined more than once", str(sum(count > 1 for count in twice.values()))
    yield "exception classes", str(len({name for name in classes if name.endswith("Error")}))
    public = [sum(not name.startswith("_") for name in _defined(m.tree)) for m in own]
    most = statistics.quantiles(public, n=10)[-1]
    yield "public names per module, median, nine of ten", f"{statistics.median(public):g}, {most:g}"
    sided = {word for m in own for word in re.findall(r"\b[a-z_]+_[ab]\b", m.text)}
    yield "names that end in _a or _b", str(len(sided))
    uses = [len(re.findall(rf"\b{name}\b", m.text)) - 1 for m in own for name in _helpers(m.tree)]
    yield "private helpers used once", f"{100 * uses.count(1) / len(uses):.0f} %"


def imports_of(every: Sequence[Module]) -> Iterator[tuple[str, str]]:
    """How modules hang together."""
    known = {module.name for module in every}
    ways = {module.name: imported(module.tree, known) - {module.name} for module in every}
    users: defaultdict[str, set[str]] = defaultdict(set)
    for name, others in ways.items():
        for other in others:
            users[other].add(name)
    single = [m for m in every if not m.is_package and len(users[m.name]) == 1]
    yield "modules with one user", str(len(single))
    small = sum(module.lines < SMALL_LINES for module in single)
    yield f"  of them under {SMALL_LINES} lines", str(small)
    yield "longest chain of imports", str(longest_chain(ways))


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
    """Modules on the longest way down; a circle counts once."""
    above: set[str] = set()

    @functools.cache
    def depth(name: str) -> int:
        above.add(name)
        deepest = max((depth(other) for other in ways[name] if other not in above), default=0)
        above.discard(name)
        return 1 + deepest

    return max(map(depth, ways))


def functions(own: Iterable[Module]) -> Iterator[Functions]:
    """Every function, methods and inner ones too."""
    for module in own:
        for node in ast.walk(module.tree):
            if isinstance(node, Functions):
                yield node


def documentable(tree: ast.Module) -> Iterator[ast.Module | ast.ClassDef | Functions]:
    """What may have a docstring."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | Functions):
            yield node


def _unannotated(node: Functions) -> list[str]:
    given = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
    return [a.arg for a in given if a.annotation is None and a.arg not in {"self", "cls"}]


def _is_broad(node: ast.AST) -> bool:
    if not isinstance(node, ast.ExceptHandler):
        return False
    named = node.type.id if isinstance(node.type, ast.Name) else None
    return node.type is None or named in {"Exception", "BaseException"}


def _defined(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef | Functions):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def _helpers(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, Functions) and re.match(r"_[a-z]", node.name):
            yield node.name


if __name__ == "__main__":
    main()
