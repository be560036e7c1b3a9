"""The errors that callers handle. Each message says what happened, why, and what to do next.

`install` is what to do where an extra of the distribution is missing.
"""

import json
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit


class AdvisorError(Exception):
    """Base of every error raised on purpose.

    Args:
        what: What happened, with the value that caused it.
        why: The cause, where it is known.
        fix: What the reader should do next.
        steps: The same as commands, one after the other.

    Attributes:
        code: Stable name of the kind of error, for JSON and exit codes.
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1

    def __init_subclass__(cls, *, code: str | None = None, exit_code: int | None = None) -> None:
        # A kind that says neither has those of the kind above it.
        cls.code, cls.exit_code = code or cls.code, exit_code or cls.exit_code

    def __init__(
        self, what: str, *, why: str = "", fix: str = "", steps: Sequence[str] = ()
    ) -> None:
        # A name of a file may have several lines, of which one could pass for another message.
        self.what, *lines = (text.replace("\n", r"\n") for text in (what, *steps))
        self.why, self.fix = why, fix
        self.steps = tuple(f"{n}. {step}" for n, step in enumerate(lines, start=1))
        super().__init__(_sentences(self.what, why, "; ".join(self.steps), fix))

    def lines(self) -> list[str]:
        """The same with each step in a line of its own."""
        if not self.steps:
            return [str(self)]
        texts = [_sentences(self.what, self.why), *(f"  {step}" for step in self.steps)]
        return [*texts, _sentences(self.fix)] if self.fix else texts

    @classmethod
    @contextmanager
    def instead_of(
        cls,
        caught: type[Exception] | tuple[type[Exception], ...],
        what: str,
        *,
        why: str | None = None,
        fix: str = "",
    ) -> Generator[None]:
        """Raises this error for one of the system or of a library, whose words are the cause.

        Give a cause where those words say nothing to a reader, or may hold a secret.
        """
        try:
            yield
        except caught as error:
            said = (isinstance(error, OSError) and error.strerror) or str(error)
            raise cls(what, why=said if why is None else why, fix=fix) from error


class InputError(AdvisorError, code="bad-input", exit_code=2):
    """A job file, option, share or imported table that cannot be used as it is."""


class LimitNotProvenError(AdvisorError, code="limit-not-proven", exit_code=3):
    """The share asked for could not be shown to be in force; the job was not run."""


class PartitionError(AdvisorError, code="partition", exit_code=4):
    """The MPS daemon or the CU mask cannot be used: not there, refused, gone or full."""


class JobError(AdvisorError, code="job", exit_code=5):
    """The job exited, hung, made no progress or ran out of memory."""


class SourceError(AdvisorError, code="source", exit_code=6):
    """A telemetry source is missing, unreachable, too slow, or answered nonsense."""


class TooMuchError(SourceError):
    """It sent more, or took longer, than is waited for at once."""


class StoreError(AdvisorError, code="store", exit_code=7):
    """Points could not be written or read: disk full, database gone, newer schema."""


class BusyError(AdvisorError, code="busy", exit_code=8):
    """Another advisor process is measuring on this GPU."""


class DisputedError(AdvisorError, code="disputed", exit_code=16):
    """Another sender gave other values of the same window, or owns the points to replace."""


class ModelError(AdvisorError, code="model", exit_code=9):
    """A model is missing, damaged, made for other features or GPUs, or not to be gone back to."""


class NoSplitError(AdvisorError, code="no-split", exit_code=10):
    """No way of sharing a GPU keeps every limit that was asked for."""


class IdempotencyError(AdvisorError, code="idempotency-conflict", exit_code=11):
    """A request came again under the same idempotency key, but is another one."""


class UnsafeCountError(AdvisorError, code="unsafe-count", exit_code=12):
    """A number of compute units was asked for at which results are wrong."""


class UnsafeFileError(AdvisorError, code="unsafe-file", exit_code=13):
    """Another user of the host could read, change or swap a file or folder that must be ours."""


class SurvivorsError(AdvisorError, code="survivors", exit_code=14):
    """Processes of a job do not end, so nothing may be started next to them."""


class LimitBrokenError(AdvisorError, code="limit-broken", exit_code=15):
    """Something computed on the GPU that was not under its limit.

    Attributes:
        jobs: Names of the jobs whose processes did; empty: strangers did.
    """

    def __init__(
        self, what: str, *, why: str = "", fix: str = "", jobs: frozenset[str] = frozenset()
    ) -> None:
        super().__init__(what, why=why, fix=fix)
        self.jobs = jobs


# Exit codes as a shell has them, 128 + signal: of a command that Ctrl-C ended.
STOPPED = 130

# Of one whose reader is gone.
BROKEN_PIPE = 141


def exit_codes() -> list[tuple[int, str, str]]:
    """All exit codes of commands, with the `code` of the error in JSON, and what they mean."""
    errors = [error for error in AdvisorError.__subclasses__() if error.__module__ == __name__]
    return [
        (0, "", 'It did what was asked; "do not share" is an answer.'),
        (1, AdvisorError.code, "Another fault; `doctor`: something is missing."),
        *sorted((e.exit_code, e.code, (e.__doc__ or "").splitlines()[0]) for e in errors),
        (STOPPED, "", "Stopped by Ctrl-C or SIGTERM; what was measured by then is kept."),
        (BROKEN_PIPE, "", "The reader of the output is gone."),
    ]


def _sentences(*parts: str) -> str:
    sentences = (part.rstrip(".") for part in parts if part)
    # What a library says may be a question.
    return " ".join(part if part.endswith("?") else f"{part}." for part in sentences)


@contextmanager
def placed(where: str) -> Generator[None]:
    """Says before an `InputError` of the block where that is: `line 3: rate is -1, below 0`."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{where}: {error.what}", why=error.why, fix=error.fix) from error


@contextmanager
def undone_by(undo: Callable[[], object]) -> Generator[None]:
    """Undoes what was begun where the block does not come to its end."""
    try:
        yield
    except BaseException:  # Ctrl-C too: no other code removes it
        undo()
        raise


DISTRIBUTION = "sm-advisor"
"""As pyproject.toml names it, which a test holds."""


def install(extra: str) -> str:
    """The command that brings an extra: of the checkout or file that this was installed from.

    No index need have the distribution, and one that has its name may have another's.
    """
    from importlib import metadata  # 20 ms of every start

    try:
        origin = metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        origin = None
    source: dict[str, Any] = json.loads(origin or "{}")
    url: str = source.get("url", "")
    path = Path(unquote(urlsplit(url).path))
    if not path.is_absolute() or not path.exists():
        return f"pip install '{DISTRIBUTION}[{extra}]'"
    editable = "-e " if source.get("dir_info", {}).get("editable") else ""
    return f"pip install {editable}'{path}[{extra}]'"
