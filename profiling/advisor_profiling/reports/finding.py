"""One line of what `advisor doctor` reports."""

from dataclasses import dataclass
from typing import Literal

from advisor.errors import AdvisorError

FindingLevel = Literal["ok", "warning", "missing"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's report; `fix` is empty where all is well."""

    check: str
    verdict: FindingLevel
    found: str
    fix: str = ""


def ok_if(good: bool, check: str, found: str, fix: str) -> Finding:
    """What was found; a warning with its `fix` where it is not good."""
    return Finding(check, "ok", found) if good else Finding(check, "warning", found, fix)


def missing(check: str, error: AdvisorError) -> Finding:
    """Something is missing, and says itself how to mend that."""
    found = error.what + (f" ({error.why})" if error.why else "")
    return Finding(check, "missing", found, error.fix)
