"""Checks, sensors, kernels and inputs: measured on this host first, then what is bundled."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_up_bundle import FOLDER_OF_BUNDLED
from made_up_input_points import points
from unsafe_counts import checked_132, checked_with

from advisor.errors import InputError, StoreError
from advisor.formats.wire import write
from advisor.validity.safe_counts import keep_check
from advisor.validity.sensor_record import keep_record
from advisor_data import known
from advisor_data.known import (
    KERNEL_REPORTS,
    bundled_checks,
    bundled_input_points,
    bundled_kernels,
    bundled_name,
    bundled_recording,
    bundled_sensors,
    checked_counts,
    checks_stamp,
    input_points_sha256,
    input_points_text,
    known_checks,
    known_kernels,
    known_sensors,
    read_input_points,
)

POINT = points(groups=1)[0]
EDGES = {name: float(n % 2) for n, name in enumerate(POINT.features)}
NAME = next(iter(EDGES))
"""Of one feature."""


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of what comes with the package, into which nothing has been put yet."""
    monkeypatch.setattr(FOLDER_OF_BUNDLED, lambda: tmp_path / "bundled")
    return tmp_path / "bundled"


# counts


def test_the_check_of_a_model_is_found_by_its_sms(tmp_path: Path, bundle: Path) -> None:
    assert (checked_counts(tmp_path, "NVIDIA H200"), checks_stamp(tmp_path)) == (None, ())
    found = checked_132()
    keep_check(found, tmp_path)
    stamp = checks_stamp(tmp_path)
    assert [name for name, *_ in stamp] == ["nvidia-h200.json"]
    for units, expected in ((None, found), (132, found), (66, None)):
        assert checked_counts(tmp_path, "NVIDIA H200", units) == expected
    keep_check(checked_with(132, {8}), tmp_path)
    assert checks_stamp(tmp_path) != stamp


def test_what_was_wrong_elsewhere_is_wrong_where_it_was_not_tried(
    tmp_path: Path, bundle: Path
) -> None:
    """The own result of a count stays where there is one."""
    keep_check(checked_with(132, {26}), tmp_path)
    (check,) = known_checks(tmp_path)
    other = dataclasses.replace(
        check, gpu_model="NVIDIA H100", operations=("fft",), wrong={26: ("fft",), 38: ("fft",)}
    )
    (bundle / "checks").mkdir(parents=True)
    (bundle / "checks" / "other.json").write_text(write(other))
    (bundle / "checks" / "README").touch()
    counts = checked_counts(tmp_path, "NVIDIA H200")
    assert counts is not None
    assert counts.wrong == {26: check.wrong[26], 38: ("fft on NVIDIA H100",)}
    assert counts.checked == check.checked
    assert known_checks(tmp_path) == [check, other]


# sensors and kernels


def test_what_was_measured_here_goes_before_what_is_bundled(tmp_path: Path) -> None:
    assert known_checks(tmp_path) == bundled_checks()
    sensor, kernel = bundled_sensors()[-1], bundled_kernels()[0]
    own = dataclasses.replace(sensor, gpu_uuid="GPU-2", source="live")
    keep_record(own, tmp_path)
    KERNEL_REPORTS.keep(dataclasses.replace(kernel, source="live"), tmp_path, "one")
    assert known_sensors(tmp_path) == [own, *bundled_sensors()]
    assert [one.source for one in known_kernels(tmp_path)[:2]] == ["live", "bundled"]
    assert bundled_name(own) == f"nvidia-h200-2-{sensor.driver}"
    assert bundled_recording(sensor).startswith(b"{")


def test_a_package_without_measurements_has_none(tmp_path: Path, bundle: Path) -> None:
    read = (bundled_checks, bundled_sensors, bundled_kernels, bundled_input_points)
    assert [list(one()) for one in read] == [[]] * 4


@pytest.mark.parametrize(
    ("file", "read"),
    [
        ("sensors/h200.json", bundled_sensors),
        ("kernels/kernels.jsonl", bundled_kernels),
    ],
)
def test_a_damaged_package_names_the_file(bundle: Path, file: str, read: Callable[[], Any]) -> None:
    (bundle / file).parent.mkdir(parents=True)
    (bundle / file).write_text("{}")
    with pytest.raises(StoreError, match=rf"{Path(file).name} is missing or damaged.*install"):
        read()


# inputs


def test_input_points_are_the_same_in_any_order(tmp_path: Path) -> None:
    edge = dataclasses.replace(POINT, features=EDGES, shape=(1, 1, 1), reference_w=None)
    kept, file = [POINT, edge], tmp_path / "inputs.jsonl"
    text = input_points_text(kept)
    file.write_bytes(text.replace(b"\n", b"\n\n"))
    assert sorted(map(write, read_input_points(file))) == sorted(map(write, kept))
    assert (text, input_points_sha256(kept)) == (
        input_points_text(kept[::-1]),
        input_points_sha256(kept[::-1]),
    )
    assert input_points_sha256(kept[:1]) != input_points_sha256(kept)
    with pytest.raises(InputError, match=r"none\.jsonl cannot be read.*advisor power train"):
        read_input_points(tmp_path / "none.jsonl")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"features": {**EDGES, "new": 0.5}}, "features new are missing or unknown"),
        ({"features": {n: 0.5 for n in EDGES if n != NAME}}, f"features {NAME} are missing"),
        ({"features": {**EDGES, NAME: -0.1}}, f"{NAME} is -0.1"),
        ({"features": {**EDGES, NAME: 1.1}}, f"{NAME} is 1.1"),
        ({"idle_w": 0.0}, "and idle_w 0"),
        ({"power_w": POINT.idle_w}, f"power_w is {POINT.idle_w:g} and idle_w {POINT.idle_w:g}"),
        ({"flop_per_s": 0.0}, "flop_per_s is 0"),
        ({"clock_mhz": -1.0, "reference_w": 0.0}, "clock_mhz is -1, reference_w is 0"),
        ({"units": 0}, "units is 0"),
        ({"shape": (0, 8, 8)}, r"shape is \(0, 8, 8\)"),
        ({"watts": 3}, "watts"),
        ({"power_w": "400"}, "power_w"),
    ],
)
def test_an_input_point_that_cannot_be_is_named(
    bundle: Path, fields: dict[str, Any], said: str
) -> None:
    """By file and line, with every number that is outside of its range."""
    bundle.mkdir()
    text = (
        input_points_text([POINT]) + b"\n" + json.dumps(dataclasses.asdict(POINT) | fields).encode()
    )
    (bundle / known.INPUTS).write_bytes(text)
    with pytest.raises(InputError, match=rf"bundled inputs\.jsonl, line 3: .*{said}"):
        bundled_input_points()
