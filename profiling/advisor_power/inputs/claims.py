"""The takeaways of the paper and questions beyond it, as sweeps that confirm or refute a claim.

The paper is Gregersen et al., "Input-Dependent Power Usage in GPUs" (2024). Changes that are given
of it are those of its public data for fp16 without tensor cores on an A100, from the first level to
the last, as they were read again for this project.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from advisor_power.inputs.case import InputCase, InputWork, ProductShape, case_of
from advisor_power.inputs.verdicts import Pattern
from advisor_power.operands.grammar import parse_operands
from advisor_power.operands.presets import SWEEPS, LevelValue

SIDE = 4096
SQUARE: ProductShape = (SIDE, SIDE, SIDE)

MEMORY_SHAPE: ProductShape = (8192, 1, 16384)
"""Of copies: larger than the cache of every card."""

Cases = Callable[[str], Mapping[LevelValue, InputCase]]
"""The cases of a sweep by level, for a type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What is said of a sweep."""

    name: str
    """T and the number of the takeaway, or N and ours."""
    says: str
    paper: str
    """What the paper's data show."""
    pattern: Pattern
    """How power moves from the first level to the last."""
    cases: Cases
    """By level, with seed 0."""
    finite: bool = True
    """Levels with outputs that are not finite say nothing."""
    in_watts: bool = False
    """Levels differ in kind of work, so watts are compared and not ratios to references."""


def with_seed(case: InputCase, seed: int) -> InputCase:
    """The same with other random numbers."""
    return replace(case, operands=str(replace(case.pair, seed=seed)))


_PAPER: Mapping[int, tuple[str, str, Pattern]] = {
    1: ("spread of values does not matter", "-10 % between 32 and 128", "flat"),
    2: ("a large mean draws less", "-25 %", "falls"),
    3: ("few different values draw less", "+18 % from one to many", "rises"),
    4: ("similar bits draw less", "+20 %, then -15 %", "peaks"),
    5: ("random low bits draw more", "+18 %", "rises"),
    6: ("random high bits draw more", "+18 %, H100 +29 %", "rises"),
    8: ("sorted rows draw less", "-3 %", "falls"),
    9: ("sorted and aligned draw even less", "-12 %, H100 -20 %", "falls"),
    10: ("sorted columns draw less", "-5 %", "falls"),
    11: ("sorted within rows draw less", "-6 %", "falls"),
    12: ("zeros draw less", "-23 %, H100 -30 %", "falls"),
    13: ("zeros among sorted values draw more", "+6 % at 30 to 40 %", "peaks"),
    14: ("cleared low bits draw less", "-23 %", "falls"),
    15: ("cleared high bits draw less", "-23 %, first +6 %", "falls"),
}
"""By takeaway: what it says, what the data show, and how power moves. T7 compares types."""

_NOTHING = re.compile(r"\|(sort\([a-z-]+,0\)|(sparse|flip)\(0\)|(randomize|clear)\([a-z]+,0\))")
"""An operation at a level at which it does nothing: many sweeps begin with the same data."""

_MEANS = {"int8": (8, 16, 32, 64), "fp8": (8, 16, 32, 64)}


def _of_paper(takeaway: int) -> Cases:
    def cases(dtype: str) -> dict[LevelValue, InputCase]:
        pairs = SWEEPS[takeaway - 1].pairs(dtype)
        return {x: case_of(_plain(str(pair)), SQUARE, dtype) for x, pair in pairs.items()}

    return cases


def _plain(operands: str) -> str:
    pair = parse_operands(_NOTHING.sub("", operands))
    moved = any(call.name != "cast" for call in pair.a.operations)
    return str(pair if moved else replace(pair, aligned=True))


def _sweep(text: str, levels: tuple[LevelValue, ...]) -> Cases:
    def cases(dtype: str) -> dict[LevelValue, InputCase]:
        return {x: case_of(_plain(text.format(x=x)), SQUARE, dtype) for x in levels}

    return cases


def _proportional(dtype: str) -> dict[LevelValue, InputCase]:
    means = _MEANS.get(dtype, (16, 64, 256, 1024, 4096))
    return {x: case_of(f"normal({x},{x / 8:g})", SQUARE, dtype) for x in means}


def _sums(_: str) -> dict[LevelValue, InputCase]:
    works: tuple[tuple[LevelValue, InputWork], ...] = ((32, "product"), (16, "half-sums"))
    return {x: case_of("normal(0,1024)", SQUARE, "fp16", work) for x, work in works}


def _copies(dtype: str) -> dict[LevelValue, InputCase]:
    contents = ("zeros", "constant(1)", "normal(0,1)", "random_bits")
    return dict(enumerate(case_of(text, MEMORY_SHAPE, dtype, "copy") for text in contents))


CLAIMS: tuple[Claim, ...] = (
    *(
        Claim(name=f"T{n}", says=says, paper=paper, pattern=pattern, cases=_of_paper(n))
        for n, (says, paper, pattern) in _PAPER.items()
    ),
    Claim(
        name="N1",
        says="a mean does not matter where the spread grows with it",
        paper="T2 keeps the spread",
        pattern="flat",
        cases=_proportional,
    ),
    Claim(
        name="N2",
        says="NaN draws less",
        paper="not there",
        pattern="falls",
        cases=_sweep("normal(0,1)|spoil(nan,{x})", (0, 0.001, 0.01, 0.1, 0.5, 1)),
        finite=False,
    ),
    Claim(
        name="N3",
        says="sums in fp16 that overflow draw less than sums in fp32",
        paper="its kernels did so",
        pattern="falls",
        cases=_sums,
        finite=False,
        in_watts=True,
    ),
    Claim(
        name="N4 copy",
        says="what is copied does not matter",
        paper="ones 110.6 W, zeros 110.7 W",
        pattern="flat",
        cases=_copies,
        finite=False,
    ),
)
"""T1 to T15 without T7, and N1 to N4. N5 needs tensors of real models, N6 other numbers of SMs."""
