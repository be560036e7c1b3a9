"""Tables that others measured: answers, rules and learners beside them."""

import csv
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from advisor.errors import InputError, StoreError
from advisor_training.public import SHIPPED, TABLES, PublicFigures, evaluate_public


@pytest.fixture(scope="module")
def bundled() -> list[PublicFigures]:
    return [*evaluate_public((), None)]


def test_the_bundled_tables_are_the_four_that_may_be_passed_on(
    bundled: list[PublicFigures],
) -> None:
    assert [(one.table, one.gpu, one.values) for one in bundled] == [
        ("parvagpu", "A100", 326),
        *(("gavel", gpu, n) for gpu, n in (("V100", 633), ("P100", 650), ("K80", 575))
          for _ in range(2)),
        ("miso", "A100", 113),
        ("miso", "A100", 64),
        *(("zeus", gpu, n) for gpu, n in (("V100", 408), ("A40", 400), ("P100", 225),
                                          ("RTX6000", 358))),
    ]  # fmt: skip


def test_no_rule_is_nearer_than_the_answer(bundled: list[PublicFigures]) -> None:
    """Of each table; where nothing is known of a job, it is a rule."""
    for one in bundled:
        rules = [off.percent for who, off in one.off.items() if who != SHIPPED]
        assert one.off[SHIPPED].percent <= min(rules) + 1e-9
    assert bundled[0].off[SHIPPED].percent < 6.1


def test_rules_and_learners_are_off_by_what_they_were(bundled: list[PublicFigures]) -> None:
    """By the tables' own readings, so a change of either is one of the table or of its reading."""
    off = {who: of.percent for one in bundled for who, of in one.off.items() if one.gpu == "A100"}
    assert off["min(1, slice / GPU busy)"] == pytest.approx(15.5, abs=0.1)
    assert [one.learned.percent for one in bundled if one.learned] == pytest.approx(
        [4.1, 24.1, 9.5, 20.6, 10.1, 19.3, 4.2, 16.6, 7.3, 4.8, 6.0, 2.9, 5.3], rel=0.1
    )


def test_a_file_of_a_clone_must_be_that_of_its_commit(tmp_path: Path) -> None:
    file = tmp_path / "leaderboard/public/data/tasks/lm-arena-chat.json"
    for folder in (None, tmp_path):
        with pytest.raises(InputError, match=r"chat.json is not there.*licence") as found:
            next(evaluate_public(["ml.energy"], folder))
        assert "git -C DIR/leaderboard checkout 0cd52dab" in str(found.value)
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    with pytest.raises(InputError, match=r"is not that of 0cd52dab.*SHA-256 begins with 44136fa3"):
        next(evaluate_public(["ml.energy"], tmp_path))
    with pytest.raises(InputError, match="called zeus2"):
        next(evaluate_public(["zeus2"], tmp_path))


def test_a_damaged_table_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bundled/public").mkdir(parents=True)
    monkeypatch.setattr("advisor_data.bundled.resources.files", {"advisor_data": tmp_path}.get)
    for data in (b"gpu,job", b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xff\xff"):
        (tmp_path / "bundled/public/zeus.csv.gz").write_bytes(data)
        with pytest.raises(StoreError, match=r"zeus.csv.gz is missing or damaged"):
            next(evaluate_public(["zeus"], None))


def test_jobs_known_by_gpu_busy_alone_take_turns() -> None:
    jobs = [(f"{name}Net", "CIFAR", 32, 0) for name in "ABCD"]
    alone = table("model dataset batchsize amp gpu_util", [(*job, 60) for job in jobs])
    names = "model{0} dataset{0} batchsize{0} amp{0} speed{0}"
    pairs = [(*one, 1 / (1 + 0.36**2), *other, 1.0) for one in jobs for other in jobs]
    [found] = TABLES["lucid"].judge(alone, table(f"{names.format(1)} {names.format(2)}", pairs))
    assert (found.values, found.off["no loss"].points) == (32, pytest.approx(5.74, abs=0.01))
    # Half of what was measured is what two that pause keep.
    assert found.off[SHIPPED].percent == pytest.approx(11.5 / 2, abs=0.1)


def test_a_p99_counts_by_its_factor() -> None:
    alone = table("exp_key gpu_util", [("server", 45), ("bert", 98)])
    both = [f"{of}_{way}_throughput" for of in ("high_priority", "best_effort")
            for way in ("mps", "time_slicing")]  # fmt: skip
    ways = [f"high_priority_{way}_99th_latency" for way in ("orig", "mps", "time_slicing")]
    columns = " ".join(["high_priority_job best_effort_job", *both, *ways])
    pairs = table(columns, [("server", "bert", 1, 1, 0.5, 0.5, 4, 16, 8)])
    found = [*TABLES["tally"].judge(alone, pairs)]
    assert [one.what for one in found][2::3] == ["p99, MPS", "p99, time-sliced"]
    assert found[2].off["as alone"].percent == pytest.approx(300)
    assert found[5].off["twice as alone"].percent == pytest.approx(0)


def test_limits_and_engines_are_read() -> None:
    ms = {"20": 5.0, "50": 2.0, "80": 1.25}
    models = ("alexnet", "bert", "resnet50", "vgg19")
    known = [{model: {"latency": {"1": ms}}} for model in models]
    together = [
        [a, b, 1, 1, limit, ms[str(limit)] * 1.1, ms[str(100 - limit)]]
        for a in models for b in models for limit in (20, 50)
    ]  # fmt: skip
    lines = [*known, {"interference": {"latency": together}}]
    [limits] = TABLES["igniter"].judge("\n".join(map(json.dumps, lines)))
    assert limits.off["no loss"].percent == pytest.approx(5)
    engines = [
        {"gpu_model": gpu, "nickname": name, "num_gpus": 1, "max_num_seqs": 8 * n,
         "avg_power_watts": 300 + 100 * n**0.5}
        for gpu in ("H100", "B200") for name in ("Llama 8B", "Qwen 8B") for n in (1, 4)
    ]  # fmt: skip
    for found in TABLES["ml.energy"].judge(json.dumps({"configurations": engines})):
        assert found.off["as at the largest"].percent == pytest.approx(25)
        assert found.learned
        assert found.learned.percent == pytest.approx(0, abs=0.5)


def table(columns: str, rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows([columns.split(), *rows])
    return text.getvalue()
