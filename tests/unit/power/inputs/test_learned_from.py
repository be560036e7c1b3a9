"""Which results a model of power by data learns from, and fingerprints of what is asked."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_up_inputs import OUTPUTS, SMALL, case, result

from advisor.errors import InputError
from advisor.wire.power import FEATURES, InputAsked
from advisor_data.known import input_points_text, read_input_points
from advisor_power.data.fill import fill_pair
from advisor_power.data.fingerprint import Fingerprint, fingerprint
from advisor_power.data.language import SWEEPS, parse_operands
from advisor_power.data.predictor import with_features, with_sent_features
from advisor_power.data.result import InputPower, input_lines, read_kept
from advisor_power.data.training import kept_points, pattern_of, points_of


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
    assert len({name for found in patterns.values() for name in found}) == len(SWEEPS) - 2
    assert patterns[5] == {"unique|randomize(low)"}
    assert patterns[8] == {"normal|sort(rows); align=false"}
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
    found, _ = kept_points(tmp_path)
    assert [p.gpu_uuid for p in found] == ["GPU-1", "GPU-2"]
    assert path.read_bytes() == before
    assert len(read_kept(path)) == 1
    assert kept_points(tmp_path / "none") == ((), {})


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
