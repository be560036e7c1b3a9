"""The settings that a user has written down: `$XDG_CONFIG_HOME/advisor/config.toml`."""

import difflib
import os
import stat
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path

from advisor.errors import InputError, UnsafeFileError
from advisor.files.safe_files import open_file

LONGEST_B = 65_536
"""Fourteen settings take a thousandth of it."""


def config_path(environment: Mapping[str, str]) -> Path | None:
    """Where the file is, or would be; None: the environment names no folder for it."""
    home = environment.get("HOME")
    config = environment.get("XDG_CONFIG_HOME") or (home and f"{home}/.config")
    return Path(config) / "advisor/config.toml" if config else None


def read_config(path: Path, known: Collection[str], secret: Collection[str]) -> dict[str, str]:
    """The values of a file, as text; a key that is unknown is refused.

    Args:
        path: The file; where it is not there, nothing is set.
        known: Names that it may set.
        secret: Those for which nobody else may read it.

    Raises:
        UnsafeFileError: another user may have written it, or may read a secret in it.
        InputError: it cannot be read, or says what cannot be meant.
    """
    with InputError.instead_of((OSError, ValueError), f"{path} cannot be read"):
        try:
            # What a link of a collection of dotfiles points to is looked at, as everything is.
            descriptor = open_file(path.resolve(), os.O_RDONLY)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        with os.fdopen(descriptor, "rb") as file:
            found = os.fstat(file.fileno())
            values = tomllib.loads(file.read(LONGEST_B).decode())
    if found.st_uid not in (0, os.geteuid()) or found.st_mode & stat.S_IWOTH:
        raise _unsafe(path, found, "write to it, and it decides what runs as you", "0644")
    if found.st_mode & 0o077 and (kept := [key for key in values if key in secret]):
        raise _unsafe(path, found, f"read its {kept[0]}", "0600")
    for key, value in values.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, 1) or [", ".join(known)]
            raise InputError(f"{path} has no setting {key}", fix=f"write {near[0]}")
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise InputError(
                f"{key} in {path} is {value}", fix="write a number, or a text in quotes"
            )
    return {key: str(value) for key, value in values.items()}


def _unsafe(path: Path, found: os.stat_result, may: str, mode: str) -> UnsafeFileError:
    return UnsafeFileError(
        f"{path} is not taken",
        why=f"it belongs to user {found.st_uid} and has mode {stat.S_IMODE(found.st_mode):04o}, so "
        f"others may {may}",
        fix=f"look at it, then: chown {os.geteuid()} {path} && chmod {mode} {path}",
    )
