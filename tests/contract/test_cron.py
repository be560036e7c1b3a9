"""The files of training/cron/: what a scheduler takes, and what `advisor retrain` takes."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner

from advisor_cli.learn.train import retrain

CRON = Path(__file__).parents[2] / "training/cron"
COMMAND = "/opt/advisor/bin/advisor retrain"


def options_of(text: str) -> set[str]:
    """Options that a line gives to `advisor retrain`."""
    return set(re.findall(r"--[a-z-]+", text.partition("advisor retrain")[2]))


def unit(name: str) -> dict[str, str]:
    lines = (CRON / name).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def manifest() -> Any:
    return yaml.safe_load((CRON / "cronjob.yaml").read_text())


def container() -> Any:
    [found] = manifest()["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    return found


def systemd_analyze(*words: str | Path) -> str:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("needs systemd-analyze (Debian package systemd)")
    done = subprocess.run(
        [program, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_every_option_is_one_of_the_command() -> None:
    """A scheduler finds out at night."""
    app = typer.Typer()
    app.command()(retrain)
    known = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200", "NO_COLOR": "1"}).output
    [line] = [line for line in (CRON / "crontab").read_text().splitlines() if COMMAND in line]
    given = [line, unit("advisor-retrain.service")["ExecStart"], " ".join(container()["command"])]
    for text in given:
        assert options_of(text)
        assert options_of(text) <= set(re.findall(r"--[a-z-]+", known))


def test_the_crontab_is_five_times_and_a_command() -> None:
    lines = [line for line in (CRON / "crontab").read_text().splitlines() if line]
    [job] = [line for line in lines if not line.startswith("#") and not re.match(r"\w+=", line)]
    assert all(re.fullmatch(r"[0-9*/,-]+", time) for time in job.split()[:5])
    assert COMMAND in job
    assert "%" not in job  # cron makes a new line of it


def test_systemd_understands_the_units(tmp_path: Path) -> None:
    for name in ("advisor-retrain.service", "advisor-retrain.timer"):
        text = (CRON / name).read_text().replace("/opt/advisor/bin/advisor", "/bin/true")
        (tmp_path / name).write_text(text)
    assert systemd_analyze("verify", "--man=no", *sorted(tmp_path.iterdir())) == ""


def test_the_unit_stays_hardened() -> None:
    said = systemd_analyze(
        "security", "--offline=yes", "--threshold=20", CRON / "advisor-retrain.service"
    )
    assert "Overall exposure level" in said
    assert unit("advisor-retrain.service")["SuccessExitStatus"] == "8", "a busy run is no failure"


def test_the_cronjob_runs_one_at_a_time_as_nobody() -> None:
    spec = manifest()["spec"]
    assert (manifest()["kind"], spec["concurrencyPolicy"]) == ("CronJob", "Forbid")
    pod = spec["jobTemplate"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsUser"] == 10001
    assert container()["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    mounts = {mount["name"] for mount in container()["volumeMounts"]}
    assert mounts == {volume["name"] for volume in pod["volumes"]}
