"""Break the code in one place at a time, and count the breaks that the unit tests nearby notice.

    .venv/bin/python docs/measurements/mutants.py                     # 120 breaks of each area
    .venv/bin/python docs/measurements/mutants.py monitor --sample 0 --survivors  # and the missed

Once the tests of an area are collected, a process forks for each break: the child puts the broken
code into the functions that live in its memory, and runs the tests, the quickest first, until one
fails. No file is changed. docs/measurements/code.md has the results.
"""

import argparse
import ast
import contextlib
import copy
import gc
import io
import json
import math
import os
import random
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NoReturn

import pytest

ROOT = Path(__file__).parents[2]
UNIT, TRAINING, LEARNT = "tests/unit", "training/advisor_training", "tests/unit/training/test"
OPTIONS = ("-q", "-pno:cacheprovider", "--timeout=60", "-mnot (gpu or nightly or postgres)")
AREAS = {
    "core": ("advisor/core", f"{UNIT}/advisor/core", f"{UNIT}/advisor/decide"),
    "validity": ("advisor/validity", f"{UNIT}/advisor/validity"),
    "decide": ("advisor/decide", f"{UNIT}/advisor/decide"),
    "use-cases": ("api/advisor_advice", f"{UNIT}/api/advice"),
    "monitor": ("advisor/launch", f"{UNIT}/advisor/launch"),
    "dataset": (f"{TRAINING}/rows.py", f"{LEARNT}_pairs.py", f"{LEARNT}_rows.py"),
    "scoring": (f"{TRAINING}/scoring.py", f"{LEARNT}_choices.py", f"{LEARNT}_noise.py"),
    "store": ("data/advisor_data", f"{UNIT}/data"),
    "http": ("api/advisor_api/http", f"{UNIT}/api/http"),
    "kubernetes": ("api/kubernetes/advisor_kubernetes", f"{UNIT}/api/kubernetes"),
    "slurm": ("api/advisor_node", f"{UNIT}/api/node", f"{UNIT}/api/slurm"),
    "power": ("profiling/advisor_power", f"{UNIT}/power"),
}
"""What is broken, and the tests that are to notice."""

MOST_CPU_S = 60

COMPARED: dict[type[ast.cmpop], list[type[ast.cmpop]]] = {
    ast.Lt: [ast.LtE, ast.GtE], ast.LtE: [ast.Lt, ast.Gt], ast.Gt: [ast.GtE, ast.LtE],
    ast.GtE: [ast.Gt, ast.Lt], ast.Eq: [ast.NotEq], ast.NotEq: [ast.Eq], ast.Is: [ast.IsNot],
    ast.IsNot: [ast.Is], ast.In: [ast.NotIn], ast.NotIn: [ast.In],
}  # fmt: skip
COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.Pow: ast.Mult,
}  # fmt: skip
CALLED = {
    "min": "max", "max": "min", "any": "all", "all": "any", "reversed": "list", "sorted": "list",
    "ceil": "floor", "floor": "ceil",
}  # fmt: skip


def changes_of(node: ast.AST) -> Iterator[dict[str, Any]]:
    """The ways of breaking a node: the fields that change, each with its new value."""
    match node:
        case ast.Compare(ops=[op]):
            yield from ({"ops": [other()]} for other in COMPARED[type(op)])
        case ast.BoolOp(op=op):
            yield {"op": ast.Or() if isinstance(op, ast.And) else ast.And()}
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield {"operand": ast.UnaryOp(ast.Not(), operand)}
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in COMPUTED:
            yield {"op": COMPUTED[type(op)]()}
        case ast.Constant(value=bool(value)):
            yield {"value": not value}
        case ast.Constant(value=int(value) | float(value)):
            yield {"value": value + 1}
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            yield {"test": ast.UnaryOp(ast.Not(), test)}
        case ast.comprehension(ifs=[_, *_] as ifs):
            yield from ({"ifs": ifs[:n] + ifs[n + 1 :]} for n in range(len(ifs)))
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield {"value": ast.Constant(None)}
        case ast.Expr(value=ast.Call() | ast.Yield() | ast.YieldFrom()):
            yield {"value": ast.Constant(None)}
        case ast.Tuple(elts=[_, _, *_] as elts) if any(isinstance(e, ast.Starred) for e in elts):
            yield from ({"elts": elts[:n] + elts[n + 1 :]} for n in range(len(elts)))
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name) as func, keywords=given):
            if name in CALLED:
                new: Any = copy.copy(func)
                setattr(new, "id" if isinstance(func, ast.Name) else "attr", CALLED[name])
                yield {"func": new}
            dropped = (n for n, keyword in enumerate(given) if keyword.arg != "strict")
            yield from ({"keywords": given[:n] + given[n + 1 :]} for n in dropped)
        case _:
            pass


def breaks(path: Path) -> Iterator[tuple[str, CodeType]]:
    """Every break inside of the functions of a file: where and what, and the code with it."""
    tree = ast.parse(path.read_text())
    bodies = [s for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) for s in f.body]
    inside = {id(node): node for statement in bodies for node in ast.walk(statement)}
    for node in ast.walk(tree):
        # No run shows an annotation, and no input makes lists that `strict` guards against.
        unseen = [getattr(node, "annotation", None), getattr(node, "returns", None)]
        unseen += [node] if isinstance(node, ast.keyword) and node.arg == "strict" else []
        for part in (part for root in filter(None, unseen) for part in ast.walk(root)):
            inside.pop(id(part), None)
    for node in inside.values():
        whole = ast.unparse(node)
        for change in changes_of(node):
            kept = {name: getattr(node, name) for name in change}
            vars(node).update(change)
            code = compile(ast.fix_missing_locations(copy.deepcopy(tree)), path, "exec")
            where = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', '?')}"
            yield f"{where}: {whole} -> {ast.unparse(node)}", code
            vars(node).update(kept)


def put(path: str, code: CodeType) -> None:
    """Let every function of a file that lives in this process do what the code says."""
    new, waiting = dict[tuple[str, int], CodeType](), [code]
    while waiting:
        one = waiting.pop()
        new[one.co_qualname, one.co_firstlineno] = one
        waiting += [const for const in one.co_consts if isinstance(const, CodeType)]
    for live in gc.get_objects():
        if isinstance(live, FunctionType) and live.__code__.co_filename == path:
            live.__code__ = new[live.__code__.co_qualname, live.__code__.co_firstlineno]


class Breaking:
    """In the place of pytest's own loop: runs all tests once for each break, and counts."""

    def __init__(self, source: Path, sample: int, seed: int) -> None:
        paths = sorted(source.rglob("*.py")) if source.is_dir() else [source]
        self.every = [(str(path), *found) for path in paths for found in breaks(path)]
        of = min(sample or len(self.every), len(self.every))
        self.tried = random.Random(seed).sample(self.every, of)
        self.missed: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Without a break first, to know how long each test takes."""
        for path in sorted({path for path, *_ in self.tried}):  # some are imported late
            root = max((r for r in sys.path if r and path.startswith(f"{r}/")), key=len)
            __import__(path[len(root) + 1 : -3].replace("/", ".").removesuffix(".__init__"))
        gc.unfreeze()  # else functions that conftest.py has frozen would not be found
        if (times_s := _run(session)) is None:
            raise pytest.UsageError("a test fails without any break")
        order = sorted(range(len(times_s)), key=times_s.__getitem__)
        session.items = [session.items[n] for n in order]
        self.missed = [text for path, text, code in self.tried if _run(session, path, code)]
        return True


def _run(
    session: pytest.Session, path: str = "", code: CodeType | None = None
) -> list[float] | None:
    """How long each test takes in a fork, with a break; None where one fails."""
    reading, writing = os.pipe()
    if not (child := os.fork()):
        _be_child(session, path, code, writing)
    os.close(writing)
    with os.fdopen(reading) as told:
        text = told.read()
    return json.loads(text) if os.waitpid(child, 0)[1] == 0 else None


def _be_child(session: pytest.Session, path: str, code: CodeType | None, writing: int) -> NoReturn:
    times_s: list[float] = []
    # A test that never ends is noticed, also by hypothesis, which would try it again.
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU_S, MOST_CPU_S))
    try:
        if code:
            put(path, code)
        for item, after in zip(session.items, [*session.items[1:], None], strict=True):
            begun_s = time.monotonic()
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            times_s.append(time.monotonic() - begun_s)
            if session.testsfailed:
                return os._exit(1)
        os.write(writing, json.dumps(times_s).encode())
        os._exit(0)
    finally:
        os._exit(1)


def interval(caught: int, of: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's, with 95 %."""
    middle = caught + z * z / 2
    wide = z * math.sqrt(caught * (of - caught) / of + z * z / 4)
    return (middle - wide) / (of + z * z), (middle + wide) / (of + z * z)


def main() -> None:
    """Print the score of each area."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("areas", nargs="*", help=f"by default all: {', '.join(AREAS)}")
    parser.add_argument("--sample", type=int, default=120, help="breaks of each area; 0: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--survivors", action="store_true", help="list what was missed")
    given = parser.parse_args()
    os.chdir(ROOT)
    for area in given.areas or AREAS:
        source, *tests = AREAS[area]
        run = Breaking(ROOT / source, given.sample, given.seed)
        with contextlib.redirect_stdout(io.StringIO()) as said:
            code = pytest.main([*OPTIONS, *tests], [run])
        if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            raise SystemExit(said.getvalue())
        of = len(run.tried)
        caught, (low, high) = of - len(run.missed), interval(of - len(run.missed), of)
        print(
            f"{area}: {caught} of {of} caught, {caught / of:.0%} ({low:.0%} to {high:.0%}); "
            f"there are {len(run.every)}",
            *(run.missed if given.survivors else ()), sep="\n  ", flush=True,
        )  # fmt: skip


if __name__ == "__main__":
    main()
