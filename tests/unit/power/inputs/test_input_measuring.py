"""The order of measuring, what is kept, and what references make of it."""

import dataclasses
import io
import json
import os
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_inputs import CONDITIONS, OUTPUTS, SMALL, MadeUpBench, case, here_filling, result
from reading import some
from workload_scripts import load

from advisor.core.job import InputData, Job
from advisor.errors import InputError
from advisor.formats.wire import RecordLines, read, write
from advisor.wire.power import FEATURES, InputAsked, InputFingerprint
from advisor_cli.power.input import note_lines
from advisor_data.known import input_points_text, read_input_points
from advisor_power.data.fill import STORAGE, Fingerprint, fill_pair, fingerprint
from advisor_power.data.language import SWEEPS, parse_operands
from advisor_power.data.measuring import (
    REFERENCE_EVERY,
    InputCase,
    InputPower,
    InputRun,
    Matrices,
    Outcome,
    case_of,
    fill_case,
    filled,
    input_lines,
    kept_inputs,
    measure_cases,
    newest_of,
    parse_shape,
    read_kept,
    reference_for,
    with_ratios,
    with_references,
)
from advisor_power.data.of_job import input_fingerprint, with_fingerprint
from advisor_power.data.predictor import with_features, with_sent_features
from advisor_power.data.training import pattern_of, points_of
from advisor_power.gpu_worker import Step

REFERENCE = reference_for(SMALL, "bf16")
CASES = [case(f"constant({n})") for n in range(20)]


def run(
    folder: Path, bench: MadeUpBench, cases: list[InputCase]
) -> tuple[Outcome, RecordLines[InputPower], list[Step]]:
    (folder / "filled").mkdir(exist_ok=True)
    keep, steps = input_lines(folder / "home", "GPU-1"), list[Step]()
    asked = InputRun(name="one", bench=bench, filling=here_filling(folder / "filled"), keep=keep)
    outcome = measure_cases(asked, cases, steps.append)
    assert not list((folder / "filled").iterdir())
    return outcome, keep, steps


# order


@given(st.integers(1, 40))
def test_each_case_stands_between_references(count: int) -> None:
    order = with_references([case(f"constant({n})") for n in range(count)])
    marks = [is_reference for _, is_reference in order]
    assert marks[0]
    assert marks[-1]
    assert sum(not mark for mark in marks) == count
    runs = "".join("r" if mark else "c" for mark in marks).split("r")
    assert max(map(len, runs)) <= REFERENCE_EVERY
    assert "rr" not in "".join("r" if mark else "c" for mark in marks)


def test_each_type_has_its_own_reference() -> None:
    order = with_references([case("zeros"), case("zeros", "fp16")])
    assert [one.dtype for one, _ in order] == ["bf16"] * 3 + ["fp16"] * 3


def test_what_is_kept_is_not_measured_again(tmp_path: Path) -> None:
    """After Ctrl-C the rest follows; nothing is lost and nothing is there twice."""
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, MadeUpBench(stops_after=5), CASES[:6])
    outcome, keep, steps = run(tmp_path, bench := MadeUpBench(), CASES[:6])
    assert bench.measured == [
        REFERENCE.operands,
        *(c.operands for c in CASES[4:6]),
        *bench.measured[:1],
    ]
    assert [r.case for r in keep.read() if not r.is_reference] == CASES[:6]
    assert (steps[-1].done, steps[-1].total, steps[-1].eta_s) == (4, 4, 0)
    assert len(outcome.measured) == 4
    outcome, _, _ = run(tmp_path, bench := MadeUpBench(), CASES[:6])
    assert (outcome.measured, bench.measured) == ([], [])


def test_other_conditions_are_measured_again(tmp_path: Path) -> None:
    run(tmp_path, MadeUpBench(), CASES[:1])
    whole = dataclasses.replace(CONDITIONS, units=132)
    outcome, keep, _ = run(tmp_path, MadeUpBench(conditions=whole), CASES[:1])
    assert len(outcome.measured) == 3
    assert newest_of(keep.read(), CASES, whole)[CASES[0]].conditions.units == 132


def test_refused_case_does_not_end_the_others(tmp_path: Path) -> None:
    outcome, keep, _ = run(tmp_path, MadeUpBench(refuses=frozenset({CASES[0].operands})), CASES[:3])
    assert list(outcome.refused) == [CASES[0]]
    assert [r.case for r in keep.read() if not r.is_reference] == CASES[1:3]


def test_matrix_that_cannot_be_made_is_refused_alone(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="needs groups of 4"):
        fill_case(case_of("ones|prune(2:4)", (8, 8, 6), "bf16"), tmp_path / "x")


def test_killed_filling_is_explained() -> None:
    future: Future[Matrices] = Future()
    future.set_exception(BrokenProcessPool("gone"))
    with pytest.raises(InputError, match="for lack of memory"):
        filled(case(), future)


def test_card_without_power_is_no_result(tmp_path: Path) -> None:
    outcome, keep, _ = run(tmp_path, MadeUpBench(without_power=True), CASES[:1])
    assert keep.read() == []
    assert "power was not read" in str(outcome.refused[CASES[0]])


# files


def test_files_hold_the_bytes_of_the_matrices(tmp_path: Path) -> None:
    """B column by column, whether its pattern is transposed or not."""
    for align in ("true", "false"):
        one = case(f"normal(0,1)|sort(rows,0.5); align={align}")
        made = fill_case(one, tmp_path / "x")
        a, b = fill_pair(one.pair, SMALL, "bf16")
        m, n, k = SMALL
        dtype = STORAGE["bf16"][1]
        read_a = np.fromfile(made.a_path, dtype).reshape(m, k)
        read_b = np.fromfile(some(made.b_path), dtype).reshape(n, k)
        assert (read_a == a.matrix.view(dtype)).all()
        assert (np.ascontiguousarray(b.matrix).view(dtype) == read_b.T).all()
        made.remove()
        assert not list(tmp_path.iterdir())


def test_fingerprint_of_before_signs_were_counted_is_none(tmp_path: Path) -> None:
    keep = input_lines(tmp_path, "GPU-1")
    matrix = np.ones((8, 64), np.float32)
    found = replace(result(case(), 321.0), fingerprint=fingerprint(matrix, matrix.T, "fp32"))
    keep.add(found)
    assert keep.read() == [found]
    keep.path.write_text(keep.path.read_text().replace('"product_signs"', '"product_sins"'))
    assert keep.read() == [replace(found, fingerprint=None)]


# references


def test_ratio_follows_the_drift_of_the_reference() -> None:
    """A card that draws more from minute to minute: half way between two references."""
    results = [
        result(REFERENCE, 400, at_s=0, is_reference=True),
        result(case(), 205, at_s=10),
        result(REFERENCE, 420, at_s=20, is_reference=True),
    ]
    first, middle, last = with_ratios(results)
    assert some(middle.reference_ratio).value == pytest.approx(0.5)
    assert 0.0005 < (some(some(middle.reference_ratio).high) - 0.5) / 1.96 < 0.002
    assert some(first.reference_ratio).value == pytest.approx(400 / 420)
    assert last.reference_ratio is not None


def test_without_a_reference_of_its_session_and_type_there_is_no_ratio() -> None:
    results = [
        result(REFERENCE, at_s=0, is_reference=True, session="other"),
        result(reference_for(SMALL, "fp16"), at_s=1, is_reference=True),
        result(case(), at_s=2),
    ]
    assert with_ratios(results)[-1].reference_ratio is None


def test_reference_that_heat_held_back_is_none() -> None:
    """It draws less than its data let it, so that what is beside it would seem to draw more."""
    free = result(REFERENCE, 400, at_s=0, is_reference=True)
    hot = result(REFERENCE, 360, at_s=10, is_reference=True, throttle_reasons=("sw-thermal",))
    own = result(case(), 200, at_s=9)
    assert with_ratios([hot, own])[0].reference_ratio is None
    ratio = some(with_ratios([free, own, hot])[1].reference_ratio)
    assert ratio.value == pytest.approx(0.5)


def test_scatter_of_references_is_a_part_of_the_error() -> None:
    """Windows are read to a thousandth, and the same product draws 2 % more or less."""
    watts = (400, 408, 400, 408, 400)
    references = [
        result(REFERENCE, w, at_s=10 * place, is_reference=True) for place, w in enumerate(watts)
    ]
    *_, last = with_ratios([*references, result(case(), 200, at_s=41)])
    assert (some(some(last.reference_ratio).high) - 0.5) / 1.96 == pytest.approx(
        0.5 * 0.02, rel=0.1
    )


# cases


@given(st.tuples(*[st.integers(1, 2**31 - 1)] * 3))
def test_shape_is_read_in_both_spellings(shape: tuple[int, int, int]) -> None:
    for mark in ("x", "X", ","):
        assert parse_shape(mark.join(map(str, shape))) == shape


@pytest.mark.parametrize("text", ["", "4", "1x2x3x4", "1x-2x3", "axbxc", "1x2x", "1.5x2x3"])
def test_what_is_no_shape_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is no shape"):
        parse_shape(text)


def test_energy_is_power_over_work() -> None:
    """1000 products of 2 m n k operations a second at 400 W, of which 100 W is idle."""
    one = result(case())
    work = 2 * 32 * 16 * 64 * 1000
    assert (one.energy_pj, one.energy_above_idle_pj) == (
        pytest.approx(400e12 / work),
        pytest.approx(300e12 / work),
    )


def test_flags_say_what_is_wrong() -> None:
    assert result(case()).flags == ()
    wrong = dataclasses.replace(result(case()).outputs, nan=3, unwritten=1)
    found = result(case(), 690, outputs=wrong, throttle_reasons=("sw-thermal",))
    assert found.flags == ("non-finite-outputs", "wrong-outputs", "power-limit", "throttled")
    assert result(case(), throttle_reasons=("sw-power-cap",)).at_limit


def test_overflowing_cast_and_saturation_are_flagged_and_explained(tmp_path: Path) -> None:
    """Of the operands, before anything is computed."""
    odd = [case("constant(70000)", "fp16"), case("normal(0,100)", "int8")]
    outcome, _, _ = run(tmp_path, MadeUpBench(), odd)
    notes = "\n".join(note_lines(outcome.measured))
    assert "non-finite-operands: matrices hold NaN or infinity" in notes
    assert "saturated-operands: values were beyond the range of int8" in notes


def test_text_of_a_case_has_the_hash_of_its_files(tmp_path: Path) -> None:
    """The text is the key of a result, and what a file holds may change."""
    file = tmp_path / "w.npy"
    np.save(file, np.ones((8, 8), np.float32))
    first = case_of(f'file("{file}")', (8, 8, 8), "bf16")
    assert "sha256=" in first.operands
    np.save(file, np.zeros((8, 8), np.float32))
    assert case_of(f'file("{file}")', (8, 8, 8), "bf16") != first


# which results a model of power by data learns from, and fingerprints of what is asked


def found_print(text: str) -> Fingerprint:
    a, b = fill_pair(parse_operands(text), SMALL, "bf16")
    return fingerprint(a.matrix, b.matrix, "bf16")


def measured(text: str = "normal(0,1)", watts: float = 400.0, **of: object) -> InputPower:
    return replace(result(case(text), watts), fingerprint=found_print(text), **of)


def test_a_result_becomes_a_point_that_a_file_holds(tmp_path: Path) -> None:
    (point,), left_out = points_of([measured("normal(0,1)|sparse(0.5)")])
    assert left_out == {}
    assert set(point.features) == set(FEATURES)
    assert 0.4 < point.features["a_zeros"] < 0.6
    assert (point.group, point.real, point.held_back) == ("normal|sparse", False, False)
    assert (point.power_w, point.idle_w, point.power_limit_w) == (400, 100, 700)
    m, n, k = SMALL
    assert point.flop_per_s == pytest.approx(measured().rate.value * 2 * m * n * k)
    path = tmp_path / "points.jsonl"
    path.write_bytes(input_points_text([point]))
    assert read_input_points(path) == (point,)


@pytest.mark.parametrize(
    ("of", "why"),
    [
        ({"fingerprint": None}, "has no fingerprint"),
        ({"idle_w": None}, "has no idle power"),
        ({"idle_w": 400.0}, "draws no more than the idle card"),
        ({"sm_clock_mhz": None}, "has no clock"),
        ({"settled": False}, "has the flag not-settled"),
        ({"outputs": replace(OUTPUTS, unwritten=1)}, "has the flag wrong-outputs"),
        ({"case": replace(case(), work="copy")}, "computed a copy, not a product"),
    ],
)
def test_what_cannot_be_learned_from_is_counted(of: dict[str, object], why: str) -> None:
    assert points_of([replace(measured(), **of)]) == ((), {why: 1})


def test_a_clock_that_was_held_back_is_told_by_the_rate() -> None:
    """Of others of the same kind; without such as it was read."""
    free = measured()
    slow = replace(free.rate, value=0.8 * free.rate.value)
    hot = measured("ones", rate=slow, throttle_reasons=("sw-thermal",), sm_clock_mhz=1500.0)
    limited = replace(hot, throttle_reasons=("sw-power-cap",))
    found, _ = points_of([free, hot, limited])
    assert [(p.throttled, p.at_limit) for p in found] == [
        (False, False),
        (True, False),
        (False, True),
    ]
    assert [p.clock_mhz for p in found] == pytest.approx([1980, 0.8 * 1980, 0.8 * 1980])
    (alone,), _ = points_of([hot])
    assert alone.clock_mhz == 1500


def test_levels_of_a_sweep_have_one_pattern_and_sweeps_their_own() -> None:
    patterns = {s.takeaway: {pattern_of(pair) for pair in s.pairs("bf16").values()} for s in SWEEPS}
    assert {len(found) for found in patterns.values()} == {1}
    # 1, 2 and 7 are normal random numbers that differ in mean and spread alone.
    assert (
        len({name for found in patterns.values() for name in found}),
        patterns[5],
        patterns[8],
    ) == (len(SWEEPS) - 2, {"unique|randomize(low)"}, {"normal|sort(rows); align=false"})
    assert pattern_of(parse_operands("a=zeros; b=normal(0,1)")) == "a=zeros; b=normal"


def test_kept_results_of_all_cards_are_read_and_left_as_they_are(tmp_path: Path) -> None:
    for uuid in ("GPU-1", "GPU-2"):
        one = measured()
        input_lines(tmp_path, uuid).add(
            replace(one, conditions=replace(one.conditions, gpu_uuid=uuid))
        )
    path = input_lines(tmp_path, "GPU-2").path
    with path.open("ab") as file:
        file.write(b'{"case": ')  # another process is writing
    before = path.read_bytes()
    found, _ = points_of(kept_inputs(tmp_path))
    assert [p.gpu_uuid for p in found] == ["GPU-1", "GPU-2"]
    assert path.read_bytes() == before
    assert len(read_kept(path)) == 1
    assert kept_inputs(tmp_path / "none") == []


ASKED = InputAsked(operands="normal(0,1)|sparse(0.5)", shape=SMALL, dtype="bf16")


def test_operands_get_the_fingerprint_that_a_measurement_gets() -> None:
    (point,), _ = points_of([measured(ASKED.operands or "")])
    filled = with_features(ASKED)
    assert filled.features == point.features
    assert filled.operands == "a=normal(0,1)|sparse(0.5); b=normal(0,1)|sparse(0.5); " + (
        "align=true; seed=0"
    )
    assert with_features(replace(filled, operands=None)).features == point.features


@pytest.mark.parametrize(
    ("of", "what"),
    [
        ({"operands": None}, "operands or a fingerprint"),
        ({"features": dict.fromkeys(FEATURES, 0.5)}, "operands or a fingerprint"),
        ({"operands": None, "features": {"a_weight": 0.5}}, "missing or unknown"),
        ({"operands": None, "features": dict.fromkeys(FEATURES, float("nan"))}, "from 0 to 1"),
        ({"operands": "nothing"}, "nothing"),
        ({"dtype": "fp8_e5m2"}, "do not compute in fp8_e5m2"),
        ({"shape": (4097, 4096, 4096)}, "too large"),
        ({"shape": (1, 1, 2**31 - 1)}, "too large"),
        ({"shape": (17, 3, 5), "dtype": "int8"}, "multiples of 8"),
    ],
)
def test_what_cannot_be_sent_is_refused(of: dict[str, object], what: str) -> None:
    with pytest.raises(InputError, match=what):
        with_sent_features(replace(ASKED, **of))


def test_no_file_of_the_service_can_be_named(tmp_path: Path) -> None:
    np.save(tmp_path / "w.npy", np.ones((64, 64), np.float32))
    text = f'a=normal(0,1); b=file("{tmp_path}/w.npy")'
    asked = InputAsked(operands=text, shape=(16, 64, 64), dtype="fp32")
    assert with_features(asked).features is not None
    with pytest.raises(InputError, match="a file cannot be named here"):
        with_sent_features(asked)


# the fingerprint of what a job's file says that its matrices hold


QUIET = Job(name="a", command=("a",), input=InputData(dtype="bf16"))


def test_job_that_says_nothing_keeps_its_identity() -> None:
    """That of before it could be said."""
    assert QUIET.job_hash == "3b05c91d3bcd6a3c"
    assert with_fingerprint(QUIET) is QUIET


def test_job_that_says_its_data_has_a_fingerprint() -> None:
    telling = dataclasses.replace(QUIET, input=InputData(dtype="bf16", data="zeros"))
    assert telling.job_hash != QUIET.job_hash
    found = some(input_fingerprint(telling.input))
    assert (
        set(found.features),
        found.dtype,
        found.features["a_zeros"],
        found.features["a_weight"],
    ) == (set(FEATURES), "bf16", 1.0, 0.0)
    assert read(InputFingerprint, write(found), tolerant=True) == found
    assert with_fingerprint(telling).input_fingerprint == write(found)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (InputData(data="zeros"), "without a type"),
        (InputData(dtype="bf17", data="zeros"), "do not compute in bf17"),
        (InputData(dtype="bf16", data="nonsense(1)"), "nonsense"),
        (InputData(dtype="bf16", data='file("none.npy")'), "none.npy"),
    ],
)
def test_data_that_cannot_be_meant(data: InputData, said: str) -> None:
    with pytest.raises(InputError, match=said):
        input_fingerprint(data)


# The workload that multiplies matrices: its commands and answers, and its checks of outputs.


@pytest.fixture(scope="module")
def script() -> Any:
    return load("input_power")


class Player:
    """Counts its steps; one command may fail."""

    def __init__(self, error: Exception | None = None, *, usable: bool = True) -> None:
        self.error, self.is_usable = error, usable
        self.running, self.steps, self.stopped = False, 0, 0

    def ready(self) -> dict[str, Any]:
        return {"units": 66}

    def load(self, command: dict[str, Any]) -> dict[str, Any]:
        if self.error is not None:
            raise self.error
        self.running = True
        return {"of": command}

    def step(self) -> None:
        self.steps += 1

    def stop(self) -> dict[str, Any]:
        self.running, self.stopped = False, self.stopped + 1
        return {}

    def usable(self) -> bool:
        return self.is_usable


def answers(script: Any, player: Player, lines: list[str | None]) -> list[dict[str, Any]]:
    said, waits = io.StringIO(), list[bool]()

    def next_line(*, wait: bool) -> str | None:
        waits.append(wait)
        return lines.pop(0)

    script.serve(player, SimpleNamespace(next=next_line), said)
    assert waits[0]  # nothing runs yet
    return [json.loads(line) for line in said.getvalue().splitlines()]


def test_runs_what_was_loaded_until_the_next_command(script: Any) -> None:
    player = Player()
    lines = [json.dumps({"load": {"x": 1}}), None, None, json.dumps({"stop": True}), ""]
    assert answers(script, player, lines) == [
        {"ready": {"units": 66}}, {"loaded": {"of": {"x": 1}}}, {"stopped": {}},
    ]  # fmt: skip
    assert (player.steps, player.running) == (2, False)


def test_one_pair_that_fails_is_refused(script: Any) -> None:
    player = Player(RuntimeError("CUDA out of memory. Tried"))
    _, said = answers(script, player, [json.dumps({"load": {}}), ""])
    assert said["refused"]["memory"]
    assert player.stopped == 1


def test_device_that_is_lost_ends_the_program(script: Any) -> None:
    player = Player(RuntimeError("an illegal memory access"), usable=False)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        answers(script, player, [json.dumps({"load": {}})])


def test_commands_are_asked_for_without_waiting(script: Any) -> None:
    """A line may come in parts, and several at once."""
    read, write = os.pipe()
    commands = script.Commands(read)
    assert commands.next(wait=False) is None
    os.write(write, b'{"a": 1}\n{"b"')
    assert commands.next(wait=False) == '{"a": 1}'
    assert commands.next(wait=False) is None
    os.write(write, b": 2}\n")
    assert commands.next(wait=True) == '{"b": 2}'
    os.close(write)
    assert commands.next(wait=True) == ""
    os.close(read)


# where PyTorch is installed


@pytest.fixture
def multiplier(script: Any) -> Any:
    pytest.importorskip("torch")
    return script.Player("cpu")


def loaded(multiplier: Any, script: Any, folder: Path, dtype: str, a: Any, b: Any) -> Any:
    torch: Any = pytest.importorskip("torch")
    for name, values in (("a", a), ("b", b)):
        data = values.contiguous().view(torch.uint8).flatten().tolist()
        (folder / name).write_bytes(bytes(data))
    shape = (a.shape[0], b.shape[0], a.shape[1])
    asked = {"a": str(folder / "a"), "b": str(folder / "b"), "shape": shape, "dtype": dtype}
    return script.answer(multiplier, {"load": asked})["loaded"]["outputs"]


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp8", "int8", "tf32", "fp32"])
def test_products_are_right_and_nan_is_counted(
    multiplier: Any, script: Any, tmp_path: Path, dtype: str
) -> None:
    torch: Any = pytest.importorskip("torch")
    kind = script.torch_type(dtype)
    a, b = ((3 * torch.randn(size, 96)).round().to(kind) for size in (64, 48))
    found = loaded(multiplier, script, tmp_path, dtype, a, b)
    assert found["error"] <= found["allowed"]
    assert (found["nan"], found["infinite"], found["unwritten"], found["compared"]) == (
        0,
        0,
        0,
        8 * 48,
    )
    if dtype not in ("int8", "fp8"):
        a[0, 0] = float("nan")
        found = loaded(multiplier, script, tmp_path, dtype, a, b)
        assert (found["nan"], found["compared"]) == (48, 7 * 48)
