"""Power by data from end to end without a GPU: learned, asked for by text, by tensor, over HTTP."""

import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import Advisor, answered, in_this_process, refusal
from in_process import Api, error_of, running
from made_up_input_points import points, references
from reading import answer_of
from rich.console import Console

from advisor.client import InputQuery
from advisor.errors import ModelError
from advisor.formats.wire import read
from advisor.wire.power import InputPredictions
from advisor_cli import progress
from advisor_cli.power.input import PREDICTED, predicted_table
from advisor_data.bundled import input_points_text
from advisor_power.data.predictor import load_input_model, model_folder, predictions, with_features
from advisor_training import learners

ROUTE = "/v1/power/input"
SMALL = [1024, 1024, 1024]
"""As far off what was measured as is answered."""


@pytest.fixture
def modelled(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, with_input_model: Path
) -> Advisor:
    return in_this_process(capsys, monkeypatch, with_input_model)


@pytest.fixture(scope="module")
def api(with_input_model: Path) -> Iterator[Api]:
    with running(with_input_model / "home") as api:
        yield api


def test_points_of_a_file_become_the_model_in_use(
    advisor: Advisor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(learners, "TREES", 3)
    file = tmp_path / "some.jsonl"
    # Few groups: each is left out once, which takes time.
    file.write_bytes(input_points_text([*points(groups=6), *references()]))
    found = answered(advisor, "power", "train", "--points", str(file))
    assert set(found) == {
        "version", "points", "held_back", "patterns", "dtypes", "left_out", "sha256", "coverage",
        "bounds", "figures", "files",
    }  # fmt: skip
    assert (found["points"], found["dtypes"]) == (52, {"bf16": 52})
    assert all(Path(name).exists() for name in found["files"])
    # Again from the points that stand next to it: the same model.
    kept = model_folder(tmp_path / "home") / "points.jsonl"
    again = advisor("power", "train", "--points", str(kept), "--out", "other")
    assert all(part in again.out for part in (f"model {found['version']}", "median"))
    answer = advisor("power", "input", "zeros", "--predict", "--shape", "1024x1024x1024", "--json")
    assert json.loads(answer.out)["model"] == found["version"]


@pytest.mark.usefixtures("no_bundled_model")
def test_without_points_or_a_model_it_says_how_to_get_them(
    advisor: Advisor, tmp_path: Path
) -> None:
    said = advisor("power", "train")
    assert (said.code, "there are no measured inputs" in said.err) == (2, True)
    said = advisor("power", "train", "--points", "none.jsonl")
    assert (said.code, "none.jsonl cannot be read" in said.err) == (2, True)
    (tmp_path / "odd.jsonl").write_text('{"case": 3}\n')
    said = advisor("power", "train", "--points", "odd.jsonl")
    assert "does not hold results of `advisor power input`" in said.err
    said = advisor("power", "input", "zeros", "--predict")
    assert said.code == ModelError.exit_code
    assert all(part in said.err for part in ("no model of power by data", "advisor power train"))


@pytest.mark.parametrize("units", ["0", "133"])
def test_more_sms_than_the_card_has_are_refused(modelled: Advisor, units: str) -> None:
    for words in (("input", "zeros", "--predict"), ("kernel", "gemm", "--gpu", "replay")):
        assert "Traceback" not in refusal(modelled("power", *words, "--units", units))
    if int(units) > 0:
        said = modelled("power", "input", "zeros", "--predict", "--units", units)
        assert "NVIDIA H200 has 1 to 132" in said.err


def test_a_terminal_cuts_no_number(with_input_model: Path) -> None:
    """Power, speed and energy with bounds need more than 80 columns."""
    text = "normal(0,1)|sparse(0.5)|scale(1024)"
    asked = InputQuery(operands=text, shape=(1024, 1024, 1024), dtype="bf16")
    model = load_input_model(with_input_model / "home")
    found = predictions(model, [with_features(asked)]).predictions
    drawn = io.StringIO()
    Console(width=140, file=drawn).print(predicted_table(found))
    assert "…" not in drawn.getvalue()
    for _, cell in PREDICTED:
        assert str(cell(found[0])) in drawn.getvalue()


def test_a_terminal_shows_how_many_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Matrices take seconds to fill."""
    drawn = io.StringIO()
    terminal = Console(file=drawn, force_terminal=True, width=100)

    def on_terminal(*, stderr: bool) -> Console:
        assert stderr
        return terminal

    monkeypatch.setattr(progress, "plain_console", on_terminal)
    assert list(progress.counted(iter("abc"), 3, "inputs")) == ["a", "b", "c"]
    assert all(part in drawn.getvalue() for part in ("3/3", "inputs, left"))


def test_data_that_are_no_numbers_are_told(modelled: Advisor) -> None:
    words = ("power", "input", "--predict", "--shape", "1024x1024x1024")
    assert "NaN or infinity" not in modelled(*words, "normal(0,1)").out
    assert "1 of these have NaN or infinity" in modelled(*words, "normal(0,1)|spoil(nan,0.5)").out


def test_expected_power_of_operands(modelled: Advisor) -> None:
    words = ("power", "input", "normal(0,1)", "zeros", "--predict", "--shape", "1024x1024x1024")
    found = json.loads(modelled(*words, "--json").out)
    for one in found["predictions"]:
        assert one["units"] == 132
        assert "shape" in one["unmeasured"]
    random, zeros = found["predictions"]
    assert zeros["power_w"]["value"] < random["power_w"]["value"] <= 400.001
    out = modelled(*words).out
    assert "expected of NVIDIA H200, 132 SMs, not measured" in out
    assert "this shape was never measured with this type" in out


def test_the_operands_are_told_apart_by_no_model(modelled: Advisor) -> None:
    """Nearly all that was measured had both alike: zeros in A draw what zeros in B do."""
    words = ("a=normal(0,1); b=zeros", "a=zeros; b=normal(0,1)", "--predict", "--json")
    told = answer_of(modelled("power", "input", *words, "--shape", "1024x1024x1024").out)
    of_b, of_a = told["predictions"]
    assert of_b["power_w"] == of_a["power_w"]
    assert "fingerprint" in of_a["unmeasured"]


def item(**of: Any) -> dict[str, Any]:
    return {"operands": "normal(0,1)", "shape": SMALL, "dtype": "bf16", **of}


def test_the_service_says_what_the_command_says(api: Api, modelled: Advisor) -> None:
    words = ("normal(0,1)", "zeros", "--predict", "--shape", "1024x1024x1024", "--json")
    told = answer_of(modelled("power", "input", *words).out)
    assert api.post(ROUTE, {"inputs": [item(), item(operands="zeros")]}) == told
    # Also as the type that a client has.
    assert len(read(InputPredictions, json.dumps(told)).predictions) == 2
    # A fingerprint as `advisor power input --predict --json` prints it.
    expected = told["predictions"][1]
    sent = {name: expected[name] for name in ("features", "shape", "dtype")}
    assert api.post(ROUTE, {"inputs": [sent]})["predictions"] == [{**expected, "operands": None}]


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ({"inputs": []}, "inputs"),
        ({"inputs": [item()] * 65}, "inputs"),
        ({"inputs": [item(operands="x" * 2001)]}, "operands"),
        ({"inputs": [item(operands='file("/etc/passwd")')]}, "a file cannot be named here"),
        ({"inputs": [item(shape=[0, 1, 1])]}, "shape"),
        ({"inputs": [item(shape=[1, 4096, 4096])]}, "a product of 1x4096x4096 is unlike all"),
        ({"inputs": [item(shape=[4096] * 3)] * 5}, "for one request at most"),
        ({"inputs": [item(dtype="fp8", shape=[64, 64, 64])]}, "no input of fp8 was measured"),
        ({"inputs": [item(path="x")]}, "path"),
    ],
)
def test_what_the_service_refuses(api: Api, body: dict[str, Any], what: str) -> None:
    status, _, message = error_of(api.ask("POST", ROUTE, json=body))
    assert status == 422
    assert what in message


@pytest.mark.usefixtures("no_bundled_model")
def test_a_service_without_a_model_says_so(with_input_model: Path, tmp_path: Path) -> None:
    with running(tmp_path / "home") as api:
        status, code, message = error_of(api.ask("POST", ROUTE, json={"inputs": [item()]}))
        assert (status, code) == (404, "not-found")
        assert "advisor power train" in message
        # It need not be started again for the model that is made now.
        shutil.copytree(
            with_input_model / "home/input-model",
            model_folder(tmp_path / "home"),
            dirs_exist_ok=True,
        )
        assert len(api.post(ROUTE, {"inputs": [item()]})["predictions"]) == 1


# Who asks nothing of power by kernels, inputs, sensors or components loads nothing of it.


FAKES = Path(__file__).parents[1] / "fakes"
PAIR = ("bert-infer", "triad")
GPU_MODEL = "NVIDIA H200"

SERVES = f"""
import sys
from pathlib import Path
from in_process import running
jobs = [{{"job": job}} for job in {PAIR!r}]
with running(Path("home")) as api:
    assert api.post("/v1/recommendations", {{"jobs": jobs, "gpu_model": {GPU_MODEL!r}}})["verdict"]
    assert api.post("/v1/placements", {{"jobs": jobs, "gpus": 1}})["sets"]
    assert api.get("/v1/profiles/triad")
    tell()
    # It does load the wing then: the check above can fail.
    asked = {{"operands": "zeros", "shape": [1024] * 3, "dtype": "bf16"}}
    assert api.post("/v1/power/input", {{"inputs": [asked]}})["predictions"]
tell()
"""

LAUNCHES = f"""
import sys
from advisor_cli.app import main
words = ["launch", *{PAIR!r}, "--dry-run", "--gpu-model", {GPU_MODEL!r}]
for how in (["--split", "50/50"], ["--min-speed", "0"]):
    sys.argv = ["advisor", *words, *how]
    try:
        main()
    except SystemExit as stopped:
        assert not stopped.code, stopped.code
    tell()
"""

TELL = """
import sys
def tell():
    of_power = [name for name in sys.modules if name.split(".")[0] == "advisor_power"]
    print("loaded:", *sorted(of_power))
"""


def loaded(folder: Path, code: str) -> list[list[str]]:
    """What a process of its own has loaded of the power wing whenever it tells."""
    (folder / "jobs").mkdir()
    for name in PAIR:
        text = '{command: "true", progress: {kind: counter, unit: steps}}'
        (folder / "jobs" / f"{name}.yaml").write_text(text)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA_", "ADVISOR_"))}
    home = {"ADVISOR_HOME": str(folder / "home"), "ADVISOR_JOBS": str(folder / "jobs")}
    done = subprocess.run(
        [sys.executable, "-c", TELL + code],
        cwd=folder,
        env={**kept, **home, "PYTHONPATH": str(FAKES)},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stdout.splitlines() if line.startswith("loaded:")]
    return [line.split()[1:] for line in told]


@pytest.mark.slow
def test_a_service(tmp_path: Path) -> None:
    before, after = loaded(tmp_path, SERVES)
    assert before == []
    assert "advisor_power.data.predictor" in after


@pytest.mark.slow
def test_a_launch(tmp_path: Path) -> None:
    assert loaded(tmp_path, LAUNCHES) == [[], []]
