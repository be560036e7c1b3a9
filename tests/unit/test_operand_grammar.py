"""The text of operands: read, written as the key of a result, refused with the place."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InputError
from advisor_power.operands.expression import Argument, Call, Operand, OperandPair, Quoted
from advisor_power.operands.grammar import OPERATIONS_LIMIT, TEXT_LIMIT, parse_operands
from advisor_power.operands.presets import SWEEPS
from advisor_power.operands.words import DTYPES, WORDS, Number, Parameter, Ratio, Stage, Text


def _arguments(parameter: Parameter) -> st.SearchStrategy[Argument]:
    if isinstance(parameter, Ratio):
        return st.integers(2, 99).flatmap(lambda m: st.integers(0, m - 1).map(lambda n: f"{n}:{m}"))
    if isinstance(parameter, Text):
        return st.from_regex(parameter.pattern, fullmatch=True).map(Quoted)
    if not isinstance(parameter, Number):
        return st.sampled_from(parameter)
    if parameter.whole:
        return st.integers(int(parameter.low), int(parameter.high)).map(float)
    return st.floats(parameter.low, parameter.high).map(lambda x: x + 0.0)


def _given(name: str, parameter: Parameter) -> st.SearchStrategy[Argument | None]:
    if isinstance(parameter, Text) and parameter.named:
        return st.none() | st.from_regex(parameter.pattern, fullmatch=True).map(
            lambda text: Quoted(text, name)
        )
    return _arguments(parameter)


def _calls(stage: Stage) -> st.SearchStrategy[Call]:
    def of(name: str) -> st.SearchStrategy[Call]:
        return st.tuples(*(_given(*of) for of in WORDS[name].parameters)).map(
            lambda arguments: Call(name, tuple(a for a in arguments if a is not None))
        )

    return st.sampled_from([n for n, word in WORDS.items() if word.stage == stage]).flatmap(of)


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


@given(PAIRS)
def test_written_text_is_read_as_the_same_pair(pair: OperandPair) -> None:
    assert parse_operands(str(pair)) == pair


def test_names_of_parameters_come_in_any_order_and_are_written_in_one() -> None:
    text = f'file("w", sha256="{"0a" * 32}", tensor="a \\"b\\" é")'
    assert str(parse_operands(text).a) == f'file("w",tensor="a \\"b\\" é",sha256="{"0a" * 32}")'


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
        ("normal(0,1", "line 1, column 11", "the end of the text"),
        ("normal(0)", "line 1, column 9", "normal(mean, sd)"),
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
        ('file("w)', "line 1, column 6", "path of file"),
        ('file("\\q")', "line 1, column 6", "path of file"),
        ('file("\\ud800")', "line 1, column 6", "path of file"),
        ('file("w", tensr="x")', "line 1, column 11", "did you mean tensor"),
        ('file("w", tensor)', "line 1, column 17", "'=' was expected"),
        ('file("w", tensor=x)', "line 1, column 18", "name of a tensor"),
        ('file("w", tensor="x", tensor="y")', "line 1, column 23", "twice"),
        ('file("w", sha256="abc")', "line 1, column 18", "64 digits"),
        ('ones|file("w")', "line 1, column 6", "one source"),
        ('normal("0",1)', "line 1, column 8", "a number"),
    ],
)
def test_bad_text_is_refused_with_its_place(text: str, where: str, what: str) -> None:
    with pytest.raises(InputError) as error:
        parse_operands(text)
    assert where in str(error.value)
    assert what in str(error.value)


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
