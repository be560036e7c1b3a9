"""`advisor recommend` of three jobs and more, from outside, with the bundled profiles."""

from pathlib import Path

import pytest
from recommending import as_json, error, recommend

from advisor.errors import InputError

H100 = ("--gpu-model", "h100")
SERVERS = ("bert-serve-10*3", *H100)
MIXED = ("bert-serve-10*2", "resnet50-train-b2", "bert-infer", *H100, "--min-speed", "0.3")

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who has stored nothing, before a terminal of 80 columns."""
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("ADVISOR_DATABASE_URL", raising=False)


def test_order_of_the_names_does_not_matter() -> None:
    there = as_json("bert-serve-10", "resnet50-train-b2", "bert-infer", *H100, "--min-speed", "0.3")
    back = as_json("bert-infer", "bert-serve-10", "resnet50-train-b2", *H100, "--min-speed", "0.3")
    assert there["choice"].split("/")[-1] == back["choice"].split("/")[0]
    assert there["searched"] == back["searched"]


def test_a_near_miss_says_what_accepts_it() -> None:
    """And that accepts it."""
    told = " ".join(recommend(*MIXED[:-2], "--min-speed", "bert-infer=0.5").split())
    assert told.startswith("A CARD EACH")
    option = told.partition("accept it with --min-speed ")[2].split()[0]
    assert option.startswith("bert-infer=0.3")
    assert as_json(*MIXED[:-2], "--min-speed", option)["verdict"] == "share"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("fft*8",), "8 jobs"),
        (("fft*0",), "A\\*3"),
        (("*3", "fft"), "A\\*3"),
        (("fft*3", "--work", "3h"), "work says nothing of 3 jobs"),
        (("fft*3", "--fine"), "--fine says nothing of three jobs"),
        (("fft", "--isolate"), "--isolate says nothing of 1 job"),
        (("fft*3", "--min-speed", "gemm=0.5"), "gemm"),
    ],
)
def test_mistakes_are_told(options: tuple[str, ...], said: str) -> None:
    assert said.replace("\\", "") in error(InputError, *options)


def test_a_pair_by_count_is_the_pair() -> None:
    """`A*2` is A beside A, by the model."""
    assert recommend("fft*2") == recommend("fft", "fft")
