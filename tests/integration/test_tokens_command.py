"""`advisor tokens` from outside."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from command_line import Advisor, refusal
from reading import answer_of

from advisor_data.state import open_service_state


@pytest.fixture
def tokens(advisor: Advisor) -> Callable[..., str]:
    """Runs `advisor tokens` with these words; what it says on stdout, or on stderr if it fails."""

    def call(*words: str) -> str:
        done = advisor("tokens", *words)
        return done.err if done.code else done.out

    return call


def test_a_secret_is_printed_once_alone_on_stdout(
    tokens: Callable[..., str], tmp_path: Path
) -> None:
    """`SECRET=$(advisor tokens create ..)` works, and no other command shows it again."""
    secret = tokens("create", "ci", "--scope", "launch", "--scope", "read").strip()
    shown = tokens("list") + tokens("list", "--json")
    assert ("ci" in shown, secret.removeprefix("adv_") in shown) == (True, False)
    with open_service_state(None, tmp_path / "home") as state:
        token, (entry,) = state.find_tokens([secret])[secret], state.audit_log()
    assert (token.name, token.scopes, token.expires_at) == ("ci", ("read", "launch"), None)
    assert (entry.action, entry.subject, entry.outcome) == ("token.create", "ci", "ok")
    assert (entry.who.startswith("user id "), secret in str(entry)) == (True, False)


def test_json_has_the_keys_that_programs_read(tokens: Callable[..., str], tmp_path: Path) -> None:
    """The same keys in both commands; only `create` has the secret."""
    assert answer_of(tokens("list", "--json")) == {"tokens": []}
    assert "advisor tokens create" in tokens("list")
    made = answer_of(tokens("create", "ci", "--scope", "read", "--days", "90", "--json"))
    secret = made.pop("secret")
    assert list(made) == ["name", "scopes", "created_at", "expires_at", "revoked_at", "state"]
    assert answer_of(tokens("list", "--json")) == {"tokens": [made]}
    end = datetime.fromisoformat(made["expires_at"])
    assert abs(end - datetime.now(UTC) - timedelta(days=90)) < timedelta(minutes=2)
    assert answer_of(tokens("revoke", "ci", "--json")) == {"revoked": "ci"}
    (listed,) = answer_of(tokens("list", "--json"))["tokens"]
    assert listed["state"] == "revoked"
    with open_service_state(None, tmp_path / "home") as state:
        assert state.find_tokens([secret]).get(secret) is None
        assert state.audit_log()[0].action == "token.revoke"


def test_mistakes_have_their_remedy(tokens: Callable[..., str]) -> None:
    """A name that is taken, a scope that is none, a token that is not there."""
    tokens("create", "ci", "--scope", "read")
    assert "advisor tokens revoke ci" in tokens("create", "ci", "--scope", "read")
    assert "read, write, launch, admin" in tokens("create", "other", "--scope", "everything")
    assert "advisor tokens list" in tokens("revoke", "nobody")


def test_a_token_comes_back_with_a_copy(
    advisor: Advisor, tokens: Callable[..., str], tmp_path: Path
) -> None:
    """As docs/state.md says: a backup, a refusal, and a restore with its flag."""
    copy = tmp_path / "copy.db"
    secret = tokens("create", "ci", "--scope", "read").strip()
    said = advisor("data", "backup", "copy.db").out
    assert said == f"{copy.stat().st_size} bytes written to copy.db\n"
    tokens("revoke", "ci")
    assert "--overwrite" in refusal(advisor("data", "restore", "copy.db"))
    done = advisor("data", "restore", "copy.db", "--overwrite", "--json")
    assert answer_of(done.out) == {"restored": "copy.db"}
    with open_service_state(None, tmp_path / "home") as state:
        assert state.find_tokens([secret]).get(secret) is not None
