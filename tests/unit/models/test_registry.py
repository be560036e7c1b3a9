"""The registry: whole versions, one champion, a history that outlives a kill; and manifests."""

import dataclasses
import json
import math
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_model
from hypothesis import given, strategies as st
from small_model import POWER_TREES, SPEED_TREES, changed_head, free_names, save_model

from advisor.errors import ModelError
from advisor_models.model_predictor import LEAF, NODE
from advisor_models.registry import (
    BUNDLED,
    LIMITED,
    MANIFEST,
    SPLIT,
    UNCAPPED,
    Artefact,
    LogBounds,
    Registry,
    bounds_of_stratum,
    check_version,
    hashes,
    named,
    on_gpu_model,
    place_of,
    read_artefact,
    sha256,
    wider,
    write_artefact,
)

FAKES = Path(small_model.__file__).parent


@pytest.fixture(autouse=True)
def _named(request: pytest.FixtureRequest) -> Generator[None]:
    with nullcontext() if "own_names" in request.fixturenames else free_names():
        yield


@pytest.fixture
def own_names() -> None:
    """Models are named by their content."""


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "models", save_model(tmp_path / "bundled", version="bundled-1"))


@pytest.fixture
def added(registry: Registry, tmp_path: Path) -> Registry:
    for number, version in enumerate(("v1", "v2", "v3")):
        figures = {"fraction_of_oracle": 0.9 + number / 100}
        registry.add(save_model(tmp_path / version, version=version, figures=figures))
    return registry


def test_added_is_a_copy(registry: Registry, tmp_path: Path) -> None:
    source = save_model(tmp_path / "v1", version="v1")
    (source / "notes.txt").write_text("mine")
    manifest = registry.add(source)
    for path in source.iterdir():
        path.unlink()
    copy = registry.folder("v1")
    assert read_artefact(copy).manifest == manifest
    assert {path.name for path in copy.iterdir()} == {MANIFEST, SPEED_TREES, POWER_TREES}


@pytest.mark.parametrize(
    ("trap", "why"),
    [
        ("fifo", "not a regular file"), ("sparse", "larger than"), ("link", "is a link"),
        ("other", "SHA-256|is not a model manifest"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", [SPEED_TREES, MANIFEST])
def test_what_is_not_whole_or_no_plain_file_is_not_added(
    registry: Registry, tmp_path: Path, name: str, trap: str, why: str
) -> None:
    """Nothing hangs, nothing fills the memory, and nothing of elsewhere is taken in."""
    file = save_model(tmp_path / "v1", version="v1") / name
    content = file.read_bytes()
    file.unlink()
    match trap:
        case "fifo":
            os.mkfifo(file)
        case "sparse":
            with file.open("wb") as sparse:
                sparse.truncate(30 << 30)
        case "link":
            (tmp_path / "elsewhere").write_bytes(content)
            file.symlink_to(tmp_path / "elsewhere")
        case _:
            file.write_bytes(b"other")
    with pytest.raises(ModelError, match=why):
        registry.add(tmp_path / "v1")
    assert registry.versions() == []


def test_what_cannot_be_promoted_is_not_added(registry: Registry, tmp_path: Path) -> None:
    """A refused model would stay in the list of those that can be chosen."""
    figures = {"rate_coverage_percent": 20.0, "rate_mean_error_percent": 30.0}
    with pytest.raises(ModelError, match="cannot be relied on"):
        registry.add(save_model(tmp_path / "v1", version="v1", figures=figures))
    with pytest.raises(ModelError, match="it is cut off"):
        registry.add(save_model(tmp_path / "v2", speed=b"no trees", version="v2"))
    assert registry.versions() == []


@pytest.mark.usefixtures("own_names")
def test_no_model_passes_for_another_or_for_a_better_one(tmp_path: Path) -> None:
    """Trees that answer e^5 come with the hashes and the figures of the bundled model."""
    made, true = Registry(tmp_path / "models"), read_artefact(BUNDLED)
    files = {**true.files, SPEED_TREES: np.array([(LEAF, 5.0)], NODE).tobytes()}
    passing = Artefact(dataclasses.replace(true.manifest, files=hashes(files)), files)
    for name, model in (("a", passing), ("b", named(true.manifest, files))):
        (tmp_path / name).mkdir()
        write_artefact(tmp_path / name, model)
    with pytest.raises(ModelError, match="by its content it is"):
        made.add(tmp_path / "a")
    version = made.add(tmp_path / "b").version
    with pytest.raises(ModelError, match=r"for 90 % held .* % of the measured rates"):
        made.promote(version)
    assert made.champion() == "bundled"
    own = named(dataclasses.replace(true.manifest, figures={}), true.files)
    (tmp_path / "c").mkdir()
    write_artefact(tmp_path / "c", own)
    made.promote(made.add(tmp_path / "c").version)
    figures = made.history()[-1].figures
    assert figures.keys() >= {"bundled_rate_mean_error_percent", "bundled_power_coverage_percent"}
    assert 0 < figures["bundled_rate_mean_error_percent"] < 10


def test_added_twice(added: Registry, tmp_path: Path) -> None:
    before = added.folder("v1").stat().st_ino
    added.add(tmp_path / "v1")
    with pytest.raises(ModelError, match="another model v1"):
        added.add(save_model(tmp_path / "other", version="v1", figures={"x": 1.0}))
    assert (added.folder("v1").stat().st_ino, added.versions()) == (before, ["v1", "v2", "v3"])


def test_promote_and_roll_back(added: Registry) -> None:
    for version in ("v1", "v2", "v3"):
        added.promote(version)
    assert added.champion() == "v3"
    assert [added.rollback().version for _ in range(3)] == ["v2", "v1", "bundled-1"]
    with pytest.raises(ModelError, match="no model to go back to"):
        added.rollback()
    # The package's model can be gone back to in one step, and from there back again.
    added.promote("v1")
    assert added.promote("bundled").version == added.open_champion().manifest.version == "bundled-1"
    assert added.rollback().version == "v1"


def test_history(added: Registry, tmp_path: Path) -> None:
    for version in ("v1", "v1", "v2"):
        added.promote(version)
    added.rollback()
    assert [(c.action, c.version, c.replaced, dict(c.figures)) for c in added.history()] == [
        ("promote", "v1", "bundled", {"fraction_of_oracle": 0.9}),
        ("promote", "v2", "v1", {"fraction_of_oracle": 0.91}),
        ("rollback", "v1", "v2", {"fraction_of_oracle": 0.9}),
    ]
    assert all(change.at.endswith("+00:00") for change in added.history())


@pytest.mark.parametrize("version", ["v9", "../v1", "", ".", "v1/../v2"])
def test_unknown_versions(added: Registry, version: str) -> None:
    with pytest.raises(ModelError):
        added.promote(version)
    assert added.history() == []


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            {"heads": changed_head("speed", features=("x",), ranges=((0.0, 1.0),))},
            "trained on other features",
        ),
        ({"speed": b"no trees"}, "it is cut off"),
        (None, "SHA-256"),
    ],
)
def test_what_cannot_be_opened_is_not_used(
    added: Registry, changes: dict[str, Any] | None, why: str
) -> None:
    """A version that this installation cannot predict with is not promoted or gone back to.

    It came in with another advisor: its files have the hashes of its manifest. Or it was damaged
    since; a champion that is damaged is told.
    """
    added.promote("v1")
    added.promote("v2")
    for version in ("v1", "v3"):
        if changes is None:
            (added.folder(version) / SPEED_TREES).write_bytes(b"other")
        else:
            save_model(added.folder(version), version=version, **changes)
    with pytest.raises(ModelError, match=why):
        added.promote("v3")
    with pytest.raises(ModelError, match=why):
        added.rollback()
    assert [change.version for change in added.history()] == ["v1", "v2"]
    assert added.open_champion().manifest.version == "v2"
    (added.folder("v2") / SPEED_TREES).unlink()
    with pytest.raises(ModelError, match="cannot be read"):
        added.open_champion()


def test_damaged_history(added: Registry, tmp_path: Path) -> None:
    """A line that is no change is refused; where a crash cut the last one, it does not count."""
    added.promote("v1")
    path = tmp_path / "models/history.jsonl"
    old = path.read_bytes()
    added.promote("v2")
    new = path.read_bytes()
    for length in range(len(old), len(new)):
        path.write_bytes(new[:length])
        assert added.champion() == "v1"
    added.promote("v3")
    assert path.read_bytes().startswith(old)
    assert [change.version for change in added.history()] == ["v1", "v3"]
    with path.open("a") as file:
        file.write('{"action": "delete"}\n')
    with pytest.raises(ModelError, match=r"line \d is not a change"):
        added.champion()


@pytest.mark.slow
def test_killed_at_every_step(tmp_path: Path) -> None:
    for version in ("old", "new"):
        save_model(tmp_path / version, version=version)
    done = subprocess.run(
        [sys.executable, str(FAKES / "killed_registry.py"), str(tmp_path)],
        # Threads of a numerical library do not outlive a fork.
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    both = ["new", "old"]
    assert found["add"]["seen"] == [[["old"], "bundled"], [both, "bundled"]]
    assert found["promote"]["seen"] == [[both, "old"], [both, "new"]]
    assert found["rollback"]["seen"] == [[both, "new"], [both, "old"]]
    assert all(act["steps"] > 20 for act in found.values())


def test_two_at_once(added: Registry) -> None:
    threads = [threading.Thread(target=added.promote, args=(v,)) for v in ("v1", "v2", "v3") * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    changes = added.history()
    assert [c.replaced for c in changes] == ["bundled", *(c.version for c in changes[:-1])]


def test_full_disk_leaves_no_half_model(
    added: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = save_model(tmp_path / "v4", version="v4")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        added.add(source)
    with pytest.raises(OSError, match="No space"):
        added.promote("v1")
    monkeypatch.undo()
    assert {p.name for p in (tmp_path / "models/versions").iterdir()} == {"v1", "v2", "v3"}
    assert added.champion() == "bundled"


Edit = Callable[[dict[str, Any]], object]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return small_model.save_model(tmp_path / "model", speed=b"trees")


def edited(folder: Path, edit: Edit) -> Path:
    """The folder with its manifest changed by hand."""
    text = json.loads((folder / MANIFEST).read_text())
    edit(text)
    (folder / MANIFEST).write_text(json.dumps(text))
    return folder


def test_written_is_read(model: Path) -> None:
    """A manifest as it was written, and the bytes that were hashed; what it does not name is not.

    Nothing is left beside them.
    """
    files = {**small_model.trees(), SPEED_TREES: b"trees"}
    (model / "notes.txt").write_text("mine")
    found = read_artefact(model)
    assert (found.manifest, found.files) == (small_model.make_manifest(files), files)
    assert not list(model.glob(".*"))


@pytest.mark.parametrize("name", [SPEED_TREES, "notes.json"])
@pytest.mark.parametrize("damage", [b"tree", b"treeS", b"", b"trees ", None])
def test_every_named_file_is_checked(tmp_path: Path, name: str, damage: bytes | None) -> None:
    """Also one that serving does not use; one bit or one byte less is enough."""
    folder = small_model.save_model(tmp_path / "m")
    files = {**small_model.trees(), name: b"trees"}
    write_artefact(folder, Artefact(small_model.make_manifest(files), files))
    assert read_artefact(folder).files == files
    (folder / name).unlink()
    why = f"{name} cannot be read. No such file"
    if damage is not None:
        (folder / name).write_bytes(damage)
        why = f"{name} is not the file that was written. its SHA-256 differs"
    with pytest.raises(ModelError, match=why):
        read_artefact(folder)


def test_a_folder_without_a_manifest_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"manifest\.json cannot be read"):
        read_artefact(tmp_path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"\xff\xfe", "Invalid JSON"),
        (b"[]", "it should be a JSON object, not an array"),
        (b"[" * 100_000, "recursion limit"),
        (b'{"schema": 5}', "version: it is missing; learner: it is missing"),
    ],
)
def test_no_manifest(model: Path, text: bytes, why: str) -> None:
    (model / MANIFEST).write_bytes(text)
    with pytest.raises(ModelError, match=why):
        read_artefact(model)


EDITS: list[tuple[Edit, str]] = [
    (lambda m: m.update(extra=1), "extra: there is no such key"),
    (lambda m: m.pop("fill"), "fill: it is missing"),
    (lambda m: m["heads"][1]["intervals"].pop("split"), "intervals of power are of uncapped"),
    (
        lambda m: m["heads"][1]["intervals"].update({"half on Card": {"low": 0, "high": 0}}),
        "intervals of power are of split, uncapped, half on Card",
    ),
    (
        lambda m: m["heads"][0]["intervals"].update({"10": {"low": 0, "high": 0}}),
        "of speed are of",
    ),
    (lambda m: m["heads"][0]["intervals"].clear(), "intervals of speed are of nothing"),
    (lambda m: m["heads"][0].update(of="card"), "of: it should be 'job' or 'pair'"),
    (lambda m: m["heads"].append(m["heads"][0]), "heads are speed, power, speed"),
    (lambda m: m.update(heads=[]), "heads are none"),
    (lambda m: m.update(schema=0), "has schema 0"),
    (lambda m: m.update(gpu_models=[]), "gpu_models is empty"),
    (lambda m: m["fill"].update(sm_clock_mhz=math.nan), "finite number, not NaN"),
    (lambda m: m["fill"].update(sm_clock_mhz=10**400), "finite"),
    (lambda m: m["heads"][0]["ranges"].pop(), "a feature of speed has no range"),
    (lambda m: m["heads"][1]["features"].append("more"), "a feature of power has no range"),
    (lambda m: m["heads"][1]["ranges"][0].reverse(), "of power, a low is above its high"),
    (lambda m: m.update(coverage=1.0), "coverage is 1.0"),
    (lambda m: m.update(efficiency={"split": {"low": 1, "high": 0}}), "efficiency, a low is above"),
    (lambda m: m["other_gpu"]["widening"].update(power=0.9), "another GPU model are narrower"),
    (lambda m: m["other_gpu"]["widening"].pop("power"), "widened of other heads"),
    (lambda m: m.update(no_counters={"speed": 0.9, "power": 1}), "without counters are narrower"),
    (lambda m: m.update(no_counters={"speed": 1.5}), "widened of other heads"),
    (lambda m: m["heads"][0]["intervals"]["split"].update(low=9.0), "of speed, a low is above"),
    (lambda m: m.update(created_at="yesterday"), "not a moment in UTC"),
    (lambda m: m.update(created_at="2026-01-31T12:00:00+01:00"), "not a moment in UTC"),
    (lambda m: m["files"].pop(POWER_TREES), r"power\.trees has no hash"),
    (lambda m: m["files"].update({SPEED_TREES: "abc"}), "not a SHA-256"),
    (lambda m: m.update(version="../other"), "is not a model version"),
    (lambda m: m.update(version=""), "is not a model version"),
    (lambda m: m.update(version="bundled"), "bundled is the package's own"),
]


@pytest.mark.parametrize(("edit", "why"), EDITS)
def test_wrong_fields(model: Path, edit: Edit, why: str) -> None:
    with pytest.raises(ModelError, match=why):
        read_artefact(edited(model, edit))


@pytest.mark.parametrize(
    "name", ["../secret", "/etc/passwd", "a/b", "..", ".", "", "a\\b", "a\0", MANIFEST, ".hidden"]
)
def test_names_of_files_stay_in_the_folder(model: Path, name: str) -> None:
    (model.parent / "secret").write_bytes(b"secret")
    edited(model, lambda m: m["files"].update({name: sha256(b"secret")}))
    with pytest.raises(ModelError, match="a path for a name"):
        read_artefact(model)


@pytest.mark.parametrize(
    ("schema", "remedy"),
    [
        (6, r"has schema 6\. .*install a newer advisor"),
        *((old, r"advisor train; or .*: advisor models promote bundled") for old in (3, 4)),
    ],
)
def test_another_schema_says_what_to_do(model: Path, schema: int, remedy: str) -> None:
    edited(model, lambda m: m.update(schema=schema, more={"deep": []}))
    with pytest.raises(ModelError, match=remedy):
        read_artefact(model)


@pytest.mark.usefixtures("own_names")
def test_the_name_of_a_model_is_that_of_all_it_is() -> None:
    """Another byte of a file, or another figure, is another model; another hour is the same one."""
    made = named(small_model.make_manifest({}), small_model.trees())
    assert re.fullmatch(r"20260131-[0-9a-f]{12}", made.manifest.version)
    assert made.manifest.files == hashes(small_model.trees())
    again = dataclasses.replace(made.manifest, created_at="2026-01-31T13:00:00+00:00")
    assert named(again, made.files).manifest.version == made.manifest.version
    others = [
        named(dataclasses.replace(made.manifest, figures={"fraction_of_oracle": 0.5}), made.files),
        named(made.manifest, {**made.files, SPEED_TREES: made.files[POWER_TREES]}),
        named(made.manifest, {**made.files, "notes.json": b""}),
    ]
    assert len({made.manifest.version, *(one.manifest.version for one in others)}) == 4


def test_nothing_unreadable_is_written(model: Path) -> None:
    before = (model / MANIFEST).read_bytes()
    bad = small_model.make_manifest(small_model.trees(), figures={"error": math.nan})
    with pytest.raises(ModelError, match="NaN"):
        write_artefact(model, Artefact(bad, {}))
    assert (model / MANIFEST).read_bytes() == before


@given(st.text("./\\\0-_ aZ9", max_size=8))
def test_versions_can_be_folders(text: str) -> None:
    with suppress(ModelError):
        version = check_version(text)
        assert (Path(version).parts, version[0] == ".") == ((version,), False)


SPEED = {
    SPLIT: LogBounds(-0.3, 0.2),
    f"{SPLIT}, server": LogBounds(-0.5, 0.1),
    f"{SPLIT}, launch-bound": LogBounds(-0.1, 0.4),
    UNCAPPED: LogBounds(-0.9, 0.9),
}
POWER = {SPLIT: LogBounds(-0.1, 0.1), UNCAPPED: LogBounds(0.1, 0.2)}


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        (f"{SPLIT}, server", -0.5, 0.1),
        (f"{SPLIT}, launch-bound", -0.1, 0.4),
        (f"{SPLIT}, filling beside server", -0.5, 0.4),
        (f"{UNCAPPED}, server", -0.9, 0.9),
        (f"{LIMITED}, server", -0.5, 0.1),
    ],
)
def test_bounds_of_a_situation(name: str, low: float, high: float) -> None:
    """One that was not measured has the widest of its place; without those of the limit splits'."""
    assert bounds_of_stratum(SPEED, name) == LogBounds(low, high)


@pytest.mark.parametrize("name", [SPLIT, LIMITED, UNCAPPED])
def test_a_gpu_model_has_its_own_bounds_where_it_has_some(name: str) -> None:
    """With those of all, of both the wider; without those of the limit splits' hold there, too."""
    assert bounds_of_stratum(POWER, LIMITED, "A") == POWER[SPLIT]
    own = LogBounds(-0.3, 0.02)
    strata = {**POWER, LIMITED: LogBounds(-0.01, 0.01)}
    with_own = {**strata, on_gpu_model(name, "GPU on air"): own}
    assert place_of(on_gpu_model(f"{name}, server", "GPU on air")) == place_of(name) == name
    both = LogBounds(min(own.low, strata[name].low), max(own.high, strata[name].high))
    for model, expected in (("GPU on air", {**strata, name: both}), ("Another GPU", strata)):
        assert {of: bounds_of_stratum(with_own, of, model) for of in strata} == expected


def test_wider_bounds_hold_what_the_others_hold() -> None:
    assert wider(SPEED, 4)[f"{SPLIT}, server"] == LogBounds(-2.0, 0.4)
    assert wider(POWER, 2)[UNCAPPED] == LogBounds(0.1, 0.4)


@pytest.mark.usefixtures("own_names")
def test_nothing_is_unpickled(tmp_path: Path) -> None:
    folder = small_model.save_model(tmp_path / "m")
    files = {**small_model.trees(), "more.joblib": b"cos\nsystem\n(S'false'\ntR."}
    (folder / "more.joblib").write_bytes(files["more.joblib"])
    model = named(small_model.make_manifest(files), files)
    write_artefact(folder, model)
    code = f"""
import pickle, sys
def refuse(*args, **kwargs): raise AssertionError("unpickled")
pickle.load = pickle.loads = pickle.Unpickler = refuse
from pathlib import Path
from advisor_models.registry import Registry
registry = Registry(Path({str(tmp_path / "home")!r}))
registry.promote(registry.add(Path({str(folder)!r})).version)
print(registry.open_champion().manifest.version)
print(*sorted({{"sklearn", "joblib"}} & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [model.manifest.version]
