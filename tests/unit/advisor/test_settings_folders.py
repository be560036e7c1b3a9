"""Where sockets and locks go when nobody says, and the policy of variables."""

import math
import os
import pwd
from pathlib import Path

import pytest
from other_user import mallory_does, shared_folder

from advisor import settings
from advisor.core.objectives import POLICY, Policy, Prices
from advisor.errors import InputError
from advisor.settings import (
    AUDIT_DAYS,
    LAUNCH_DAYS,
    LAUNCH_GIB,
    OUTPUT_MIB,
    output_bytes,
    read_settings,
)

OWN = f"/tmp/advisor-{os.getuid()}"


@pytest.fixture
def no_host_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(settings, "HOST_FOLDER", tmp_path / "run-advisor")
    return tmp_path / "run-advisor"


def test_a_file_of_brackets_is_refused_plainly(tmp_path: Path) -> None:
    (tmp_path / "advisor").mkdir()
    (tmp_path / "advisor/config.toml").write_text("home = " + "[" * 30_000)
    with pytest.raises(InputError, match="brackets in brackets"):
        read_settings({"XDG_CONFIG_HOME": str(tmp_path)})


@pytest.mark.usefixtures("no_host_folder")
def test_a_session_has_its_runtime_folder_and_its_user_one_lock_folder(tmp_path: Path) -> None:
    """A cron job and a login of one user keep off each other's GPU."""
    session = read_settings({"XDG_RUNTIME_DIR": str(tmp_path)})
    cron = read_settings({})
    assert (session.runtime_dir, cron.runtime_dir) == (tmp_path / "advisor", Path(OWN))
    assert session.lock_dir == cron.lock_dir == Path(OWN) / "locks"


@pytest.mark.usefixtures("no_host_folder")
def test_the_runtime_folder_of_another_session_is_not_taken() -> None:
    """`su` and `sudo -E` keep the variable."""
    with shared_folder() as shared:
        mallory_does("mkdir", shared / "hers")
        assert read_settings({"XDG_RUNTIME_DIR": str(shared / "hers")}).runtime_dir == Path(OWN)


def test_who_takes_the_name_of_our_folder_blocks_no_gpu(
    no_host_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The locks are with the sockets then."""
    with shared_folder() as shared:
        mallory_does("mkdir", shared / "taken")
        monkeypatch.setattr(settings, "_last_resort", lambda: shared / "taken")
        found = read_settings({"XDG_RUNTIME_DIR": str(no_host_folder.parent)})
        assert found.lock_dir == no_host_folder.parent / "advisor/locks"


def test_the_packaged_folder_is_used_where_root_has_made_it(no_host_folder: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, whose folder it is")
    (no_host_folder / "locks").mkdir(parents=True)
    found = read_settings({})
    assert found.runtime_dir == no_host_folder / str(os.getuid())
    assert found.lock_dir == no_host_folder / "locks"


def test_what_is_said_goes_before(tmp_path: Path) -> None:
    given = {"ADVISOR_RUNTIME_DIR": str(tmp_path / "r"), "ADVISOR_LOCK_DIR": str(tmp_path / "l")}
    found = read_settings({**given, "XDG_RUNTIME_DIR": str(tmp_path)})
    assert (found.runtime_dir, found.lock_dir) == (tmp_path / "r", tmp_path / "l")


def test_no_job_sees_a_secret() -> None:
    secrets = {"PGPASSWORD": "p", "ADVISOR_TOKEN": "t", "ADVISOR_DATABASE_URL": "sqlite:///x"}
    found = read_settings({**secrets, "PATH": "/bin", "CUDA_MPS_PIPE_DIRECTORY": "/x"})
    assert set(found.job_environment()) == {"PATH", "ADVISOR_RUNTIME_DIR"}
    assert found.secrets() == secrets


def test_an_empty_home_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """As some cron and containers set it: points went to /.local/share."""
    own = Path(pwd.getpwuid(os.getuid()).pw_dir) / ".local/share/advisor"
    assert read_settings({"HOME": ""}).home == read_settings({}).home == own
    assert read_settings({"HOME": "/h"}).home == Path("/h/.local/share/advisor")

    def nobody(uid: int) -> pwd.struct_passwd:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    with pytest.raises(InputError, match="set ADVISOR_HOME"):
        read_settings({"HOME": ""})
    assert read_settings({"ADVISOR_HOME": "/a"}).home == Path("/a")


def test_variables_replace_fields_of_the_policy() -> None:
    values = {
        "ADVISOR_OBJECTIVE": "throughput",
        "ADVISOR_MIN_SPEED": "0.5",
        "ADVISOR_P99_TIMES_ALONE": "3",
        "ADVISOR_MIN_GAIN": "0.1",
        "ADVISOR_CHANCE": "0.8",
        "ADVISOR_KWH": "0.2",
    }
    wanted = Policy(
        objective="throughput", min_speed=0.5, p99_times_alone=3, min_gain=0.1, chance=0.8,
        prices=Prices(kwh=0.2),
    )  # fmt: skip
    assert (read_settings(values).policy, read_settings({}).policy) == (wanted, POLICY)
    with pytest.raises(InputError, match=r"ADVISOR_CHANCE is 0\.3\. give a number from 0\.5"):
        read_settings({"ADVISOR_CHANCE": "0.3"})


# The bounds of what grows by itself, as the environment sets them.


def test_without_a_word_there_are_bounds() -> None:
    found = read_settings({}).retention
    assert (found.launch_days, found.launch_gib, found.audit_days) == (90, 20, 365)
    assert output_bytes({}) == 32 * 2**20


def test_nought_is_no_bound() -> None:
    found = read_settings({LAUNCH_DAYS: "0", LAUNCH_GIB: "0", AUDIT_DAYS: "0"}).retention
    assert found.launch_days == found.launch_gib == found.audit_days == math.inf


def test_what_is_set_counts() -> None:
    found = read_settings({LAUNCH_DAYS: "0.5", OUTPUT_MIB: "10"}).retention
    assert (found.launch_days, found.output_mib) == (0.5, 10)
    assert output_bytes({OUTPUT_MIB: "10"}) == 5 * 2**20


@pytest.mark.parametrize("name", [LAUNCH_DAYS, LAUNCH_GIB, AUDIT_DAYS, OUTPUT_MIB])
@pytest.mark.parametrize("value", ["-1", "nan", "inf", "a week"])
def test_what_is_no_number_is_refused(name: str, value: str) -> None:
    with pytest.raises(InputError, match=f"{name} is {value}"):
        read_settings({name: value})
    with pytest.raises(InputError, match="2 or more"):
        read_settings({OUTPUT_MIB: "0"})
