"""The text of operands: read, written as the key of a result, refused with the place."""

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InputError
from advisor_data.known import bundled_input_points
from advisor_power.data.language import (
    DTYPES,
    OPERATIONS_LIMIT,
    SWEEPS,
    TEXT_LIMIT,
    WORDS,
    Call,
    Operand,
    OperandPair,
    Stage,
    parse_operands,
)


def _numbers(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high).map(lambda x: x + 0.0)


def _text(value: float) -> str:
    """The shortest, as keys have it."""
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


ANY, SPREAD = _numbers(-3e38, 3e38).map(_text), _numbers(0, 3e38).map(_text)
PART = _numbers(0, 1).map(_text)
BITS = st.integers(0, 32).map(str)
LINES, ENDS = st.sampled_from(["rows", "columns"]), st.sampled_from(["low", "high"])
RATIO = st.integers(2, 99).flatmap(lambda m: st.integers(0, m - 1).map(lambda n: f"{n}:{m}"))
NAME = st.text(min_size=1).filter(lambda text: text.isprintable()).map(_quoted)
OPTIONAL = (
    st.just("") | NAME.map("tensor={}".format),
    st.just("") | st.from_regex("[0-9a-f]{64}", fullmatch=True).map('sha256="{}"'.format),
)
TAKES: dict[Stage, dict[str, tuple[st.SearchStrategy[str], ...]]] = {
    "source": {
        "normal": (ANY, SPREAD),
        "uniform": (ANY, ANY),
        "unique": (st.integers(1, 1 << 20).map(str), ANY, SPREAD),
        "constant": (ANY,),
        "zeros": (),
        "ones": (),
        "random_bits": (),
        "file": (NAME, *OPTIONAL),
    },
    "value": {
        "sort": (st.sampled_from(["rows", "columns", "within-rows"]), PART),
        "sparse": (PART,),
        "spoil": (st.sampled_from(["nan", "inf"]), PART),
        "prune": (RATIO,),
        "scale": (ANY,),
        "shift": (ANY,),
        "permute": (LINES, st.integers(0, 2**32 - 1).map(str)),
    },
    "cast": {"cast": (st.sampled_from(DTYPES),)},
    "bit": {"flip": (BITS,), "randomize": (ENDS, BITS), "clear": (ENDS, BITS)},
}


def test_every_word_is_tried() -> None:
    assert {name for of in TAKES.values() for name in of} == set(WORDS)
    assert all(WORDS[name].stage == stage for stage, of in TAKES.items() for name in of)


def _calls(stage: Stage) -> st.SearchStrategy[Call]:
    def of(name: str) -> st.SearchStrategy[Call]:
        return st.tuples(*TAKES[stage][name]).map(
            lambda arguments: Call(name, tuple(filter(None, arguments)))
        )

    return st.sampled_from(sorted(TAKES[stage])).flatmap(of)


@st.composite
def _operands(draw: st.DrawFn) -> Operand:
    source = draw(_calls("source"))
    values = [] if source.name == "random_bits" else draw(st.lists(_calls("value"), max_size=5))
    casts = draw(st.lists(_calls("cast"), max_size=1))
    return Operand(source, (*values, *casts, *draw(st.lists(_calls("bit"), max_size=5))))


PAIRS = st.builds(
    OperandPair,
    a=_operands(),
    b=_operands(),
    aligned=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)


@pytest.mark.slow
@given(PAIRS)
def test_written_text_is_read_as_the_same_pair(pair: OperandPair) -> None:
    assert parse_operands(str(pair)) == pair


def test_text_in_quotes_is_written_in_one_way() -> None:
    text = f'file( "w" , tensor = "a \\"b\\" \\u00e9|;,()", sha256="{"0a" * 32}" )'
    key = f'file("w",tensor="a \\"b\\" é|;,()",sha256="{"0a" * 32}")'
    source = parse_operands(text).a.source
    assert (str(source), source.values[0], source.named("tensor")) == (key, "w", 'a "b" é|;,()')


def test_keys_of_kept_results_stay(keys: list[str]) -> None:
    assert len(keys) > 100
    assert [str(parse_operands(key)) for key in keys] == keys


@pytest.fixture(scope="module")
def keys() -> list[str]:
    """Of all results that are kept here, and of the points that come with advisor."""
    files = (Path(__file__).parents[2] / "docs/measurements/power/inputs").glob("*.jsonl")
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return sorted(
        {line["case"]["operands"] for line in lines}
        | {point.expression for point in bundled_input_points()}
    )


@pytest.mark.parametrize("same", [
    "normal(0,1)|sparse(0.5)",
    " a = normal( 0 , 1.0 )\n | sparse( 5e-1 ) ; align=true",
    "a=normal(-0,1)|sparse(.5); b=normal(0,1)|sparse(0.50); seed=0",
])  # fmt: skip
def test_texts_of_one_meaning_have_one_key(same: str) -> None:
    key = "a=normal(0,1)|sparse(0.5); b=normal(0,1)|sparse(0.5); align=true; seed=0"
    assert str(parse_operands(same)) == key


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("", "line 1, column 1", "no source"),
        ("nomral(0,1)", "line 1, column 1", "did you mean normal"),
        ("normal(0,1)|\n  sparce(0.5)", "line 2, column 3", "did you mean sparse"),
        ("normal(0,-1)", "line 1, column 10", "sd of normal"),
        ("normal(0,1", "line 1, column 7", "write normal(mean, sd)"),
        ("normal(0)", "line 1, column 7", "write normal(mean, sd)"),
        ("unique(1.5,0,1)", "line 1, column 8", "whole number"),
        ("unique(9999999,0,1)", "line 1, column 8", "from 1 to 1048576"),
        ("zeros(1)", "line 1, column 6", "takes nothing"),
        ("sparse(0.5)", "line 1, column 1", "is no source"),
        ("ones|normal(0,1)", "line 1, column 6", "one source"),
        ("ones|flip(3)|sparse(0.5)", "line 1, column 14", "before the cast"),
        ("ones|cast(bf16)|cast(fp16)", "line 1, column 17", "cast once"),
        ("random_bits|sparse(0.5)", "line 1, column 13", "random_bits"),
        ("ones|cast(fp4)", "line 1, column 11", "fp32 or tf32"),
        ("ones|prune(4:2)", "line 1, column 12", "n below m"),
        ("ones|prune(2)", "line 1, column 12", "2:4"),
        ("ones|clear(middle,3)", "line 1, column 12", "low or high"),
        ("ones; a=ones", "line 1, column 7", "twice"),
        ("b=ones", "line 1, column 1", "no a="),
        ("ones; align=maybe", "line 1, column 13", "true or false"),
        ("ones; seed=-1", "line 1, column 12", "whole number"),
        ("ones ones", "line 1, column 6", "';' was expected"),
        ("ones|", "line 1, column 6", "the end of the text"),
        ("ones é", "line 1, column 6", "'é'"),
        ("normal(nan,1)", "line 1, column 8", "'nan'"),
        ("constant(1e39)", "line 1, column 10", "from -3e+38"),
        ("file(w.npy)", "line 1, column 6", "in double quotes"),
        ("file", "line 1, column 5", 'file("path", tensor="...", sha256="...")'),
        ('file("")', "line 1, column 6", "path of file"),
        ('file("w)', "line 1, column 5", 'file("path"'),
        ('file("\\q")', "line 1, column 6", "path of file"),
        ('file("\\ud800")', "line 1, column 6", "path of file"),
        ('file("w", tensr="x")', "line 1, column 5", 'tensor="..."'),
        ('file("w", tensor)', "line 1, column 5", 'tensor="..."'),
        ('file("w", tensor=x)', "line 1, column 18", "name of a tensor"),
        ('file("w", tensor="x", tensor="y")', "line 1, column 5", 'tensor="..."'),
        ('file("w", sha256="abc")', "line 1, column 18", "64 digits"),
        ('ones|file("w")', "line 1, column 6", "one source"),
        ('normal("0",1)', "line 1, column 8", "a number"),
    ],
)
def test_bad_text_is_refused_with_its_place(text: str, where: str, what: str) -> None:
    with pytest.raises(InputError) as error:
        parse_operands(text)
    assert all(part in str(error.value) for part in (where, what))


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(InputError):
        assert parse_operands(str(parse_operands(text))) == parse_operands(text)


def test_bombs_are_refused() -> None:
    with pytest.raises(InputError, match="too many operations"):
        parse_operands("ones" + "|scale(2)" * (OPERATIONS_LIMIT + 1))
    with pytest.raises(InputError, match="characters long"):
        parse_operands("o" * (TEXT_LIMIT + 1))


def test_the_fifteen_sweeps_of_the_paper_are_there_for_every_type() -> None:
    assert [sweep.takeaway for sweep in SWEEPS] == list(range(1, 16))
    for sweep in SWEEPS:
        for dtype in DTYPES:
            keys = [str(pair) for pair in sweep.pairs(dtype).values()]
            assert len(set(keys)) == len(keys)
            assert len(keys) > 1 or sweep.takeaway == 7
    aligned = {sweep.takeaway: next(iter(sweep.pairs("bf16").values())).aligned for sweep in SWEEPS}
    assert [takeaway for takeaway, is_aligned in aligned.items() if not is_aligned] == [8]
