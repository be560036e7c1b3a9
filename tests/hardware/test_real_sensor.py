"""`advisor power sensor` on a real NVIDIA GPU: about four minutes. No setting of it is changed."""

from pathlib import Path

import pytest
from real_gpu import GPU, nobody_computes, run_json, the_gpu

from advisor.validity.sensor_record import SENSOR_RECORDS

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(400)]


def test_sensor_of_this_card_is_found_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path))
    answer = run_json("power", "sensor", "--gpu", GPU)
    print(answer)
    assert answer["gpu_uuid"] == the_gpu().uuid
    assert answer["seconds"] <= 240
    assert answer["accepted"]
    named = {channel["name"] for channel in answer["channels"]} | set(answer["absent"])
    assert named >= {"instant", "average", "memory"}
    for channel in answer["channels"]:
        reasons = [r for r in answer["reasons"] if r.startswith(f"{channel['name']}: ")]
        assert channel["accepted"] != bool(reasons)
    (kept,) = SENSOR_RECORDS.read(tmp_path)
    assert kept.gpu_uuid == answer["gpu_uuid"]
    assert nobody_computes()
    (recording,) = (tmp_path / "sensors/recordings").glob("*.jsonl")
    again = run_json("power", "sensor", "--trace", str(recording))
    assert again["channels"] == answer["channels"]
