"""`advisor config`: what holds and why, and a file that only its user may have written."""

import json
import os
from pathlib import Path

import pytest
from command_line import Advisor
from other_user import mallory_does, shared_folder

from advisor.errors import UnsafeFileError
from advisor.settings import KEYS, read_settings


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "config/advisor").mkdir(parents=True)
    return tmp_path / "config/advisor/config.toml"


def test_environment_goes_before_the_file_and_that_before_the_default(
    advisor: Advisor, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An option goes before all three; programs read the same keys."""
    file.write_text(
        'min_speed = 0.99\nchance = 0.8\nkwh = 0.15\nkeep_audit_days = 0\njobs = "/else"\n'
    )
    monkeypatch.setenv("ADVISOR_KWH", "0.25")
    monkeypatch.setenv("ADVISOR_JOBS", "")
    answer = json.loads(advisor("config", "--json").out)
    assert answer["file"] == str(file)
    rows = {row.pop("name"): row for row in answer["settings"]}
    assert list(rows) == list(KEYS)
    assert {name: list(row.values()) for name, row in rows.items()}.items() > {
        "objective": ["cost", "default", "ADVISOR_OBJECTIVE"],
        "min_speed": [0.99, "file", "ADVISOR_MIN_SPEED"],
        "chance": [0.8, "file", "ADVISOR_CHANCE"],
        "kwh": [0.25, "environment", "ADVISOR_KWH"],
        "host_w": [0.0, "default", "ADVISOR_HOST_W"],
        "jobs": ["/else", "file", "ADVISOR_JOBS"],
    }.items()
    assert set(rows["home"]) == {"value", "set_by", "variable"}
    assert rows["keep_audit_days"]["value"] is None
    assert f"file, read: {file}" in advisor("config").out
    asked = ("recommend", "bert-serve-30", "triad")
    assert advisor(*asked).out.startswith("DO NOT SHARE")
    assert advisor(*asked, "--min-speed", "0").out.startswith("SHARE")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("min-speed = 0.5", "has no setting min-speed. write min_speed."),
        ("colour = 1", "has no setting colour. write home, runtime_dir,"),
        ("min_speed = 7", "config.toml is 7. give a number from 0 to 1."),
        ('objective = "max"', "config.toml is max. did you mean max-min? Else give one of"),
        ("kwh = true", "config.toml is True. write a number, or a text in quotes."),
        ("[kwh]", "config.toml is {}. write a number"),
        ("kwh = x", "config.toml cannot be read. Invalid value (at line 1, column 7)."),
        ("\xff", "config.toml cannot be read."),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused(
    advisor: Advisor, file: Path, text: str, said: str
) -> None:
    file.write_text(text, encoding="latin-1")
    for words in (("config",), ("jobs",)):
        done = advisor(*words)
        assert done.code == 2
        assert said in done.err


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        ("kwh = 1", 0o666, "others may write to it"),
        ('database_url = "sqlite:///x"', 0o644, "others may read its database_url"),
        ('database_url = "sqlite:///x"', 0o600, ""),
        ("kwh = 1", 0o644, ""),
    ],
)
def test_a_file_that_others_may_have_written_is_refused(
    file: Path, text: str, mode: int, said: str
) -> None:
    """It decides what runs, and a password in it is for nobody else."""
    file.write_text(text)
    file.chmod(mode)
    where = {"XDG_CONFIG_HOME": str(file.parents[1])}
    if not said:
        read_settings(where)
        return
    with pytest.raises(UnsafeFileError, match=said):
        read_settings(where)


def test_the_file_of_another_user_is_refused() -> None:
    with shared_folder() as shared:
        mallory_does("mkdir", "-p", shared / ".config/advisor")
        mallory_does("cp", os.devnull, shared / ".config/advisor/config.toml")
        with pytest.raises(UnsafeFileError, match="belongs to user"):
            read_settings({"HOME": str(shared)})
