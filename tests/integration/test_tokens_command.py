"""`advisor tokens` from outside."""

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from advisor.errors import InputError
from advisor_cli.app import app
from advisor_data.service.state import open_service_state


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path))
    monkeypatch.delenv("ADVISOR_DATABASE_URL", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def tokens(*arguments: str) -> str:
    """What a command says on stdout."""
    done = CliRunner().invoke(app, ["tokens", *arguments])
    if done.exception:
        raise done.exception
    return done.stdout


def test_a_secret_is_printed_once_alone_on_stdout(home: Path) -> None:
    """`SECRET=$(advisor tokens create ..)` works, and no other command shows it again."""
    secret = tokens("create", "ci", "--scope", "launch", "--scope", "read").strip()
    with open_service_state(None, home) as state:
        token = state.find_tokens([secret]).get(secret)
    assert token is not None
    assert (token.name, token.scopes, token.expires_at) == ("ci", ("read", "launch"), None)
    shown = tokens("list") + tokens("list", "--json")
    assert "ci" in shown
    assert secret not in shown
    assert secret.removeprefix("adv_") not in shown


def test_json_has_the_keys_that_programs_read(home: Path) -> None:
    """The same keys in both commands; only `create` has the secret."""
    made = json.loads(tokens("create", "ci", "--scope", "read", "--days", "90", "--json"))
    secret = made.pop("secret")
    assert list(made) == ["name", "scopes", "created_at", "expires_at", "revoked_at", "state"]
    assert json.loads(tokens("list", "--json")) == [made]
    end = datetime.fromisoformat(made["expires_at"])
    assert abs(end - datetime.now(UTC) - timedelta(days=90)) < timedelta(minutes=2)
    assert json.loads(tokens("revoke", "ci", "--json")) == {"revoked": "ci"}
    (listed,) = json.loads(tokens("list", "--json"))
    assert listed["state"] == "revoked"
    with open_service_state(None, home) as state:
        assert state.find_tokens([secret]).get(secret) is None


@pytest.mark.usefixtures("home")
def test_mistakes_have_their_remedy() -> None:
    """A name that is taken, a scope that is none, a token that is not there."""
    tokens("create", "ci", "--scope", "read")
    with pytest.raises(InputError, match="advisor tokens revoke ci"):
        tokens("create", "ci", "--scope", "read")
    with pytest.raises(InputError, match="read, write, launch, admin"):
        tokens("create", "other", "--scope", "everything")
    with pytest.raises(InputError, match="advisor tokens list"):
        tokens("revoke", "nobody")


@pytest.mark.usefixtures("home")
def test_an_empty_list_says_how_to_begin() -> None:
    """The first token is one command away."""
    assert "advisor tokens create" in tokens("list")
    assert json.loads(tokens("list", "--json")) == []


def test_making_and_revoking_is_audited(home: Path) -> None:
    """Who looks for the origin of a token finds the moment and the user."""
    secret = tokens("create", "ci", "--scope", "read").strip()
    tokens("revoke", "ci")
    with open_service_state(None, home) as state:
        log = state.audit_log()
    assert [(e.action, e.subject, e.outcome) for e in log] == [
        ("token.revoke", "ci", "ok"),
        ("token.create", "ci", "ok"),
    ]
    assert all(e.who.startswith("user id ") for e in log)
    assert secret not in str(log)


def test_a_node_without_sqlalchemy_says_what_to_install(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message has the pip command, and importing the module loads nothing of it."""
    modules = "sys, advisor_cli.manage.tokens, advisor_cli.manage.data"
    code = f"import {modules}; print('sqlalchemy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    with pytest.raises(InputError, match=r"pip install 'sm-advisor\[data\]'"):
        tokens("list")
    assert list(home.iterdir()) == []
