"""Finds the program that a command line comes to, behind shells, interpreters and wrappers."""

import re
import shlex
from collections.abc import Sequence

_PYTHON = re.compile(r"(python|pypy)[\d.]*t?")
_SHELLS = ("sh", "bash", "dash", "zsh", "ksh")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_PUNCTUATION = frozenset("();<>|&")

_WRAPPERS: dict[str, tuple[int, str]] = {
    "chrt": (1, "-T -P -D"),
    "command": (0, ""),
    "conda run": (0, "-n --name -p --prefix --cwd"),
    "dumb-init": (0, "-r --rewrite"),
    "env": (0, "-u --unset -C --chdir"),
    "exec": (0, "-a"),
    "ionice": (0, "-c --class -n --classdata"),
    "mamba run": (0, "-n --name -p --prefix --cwd"),
    "micromamba run": (0, "-n --name -p --prefix --cwd"),
    "nice": (0, "-n --adjustment"),
    "nohup": (0, ""),
    "numactl": (
        0,
        "-i --interleave -p --preferred -P --preferred-many -m --membind -N --cpunodebind "
        "-C --physcpubind",
    ),
    "pipenv run": (0, ""),
    "pixi run": (0, "-e --environment --manifest-path"),
    "poetry run": (0, ""),
    "setsid": (0, ""),
    "stdbuf": (0, "-i --input -o --output -e --error"),
    "sudo": (0, "-u --user -g --group -D --chdir"),
    "taskset": (1, ""),
    "time": (0, "-f --format -o --output"),
    "timeout": (1, "-s --signal -k --kill-after"),
    "tini": (0, "-p -e"),
    "trtllm-llmapi-launch": (0, ""),
    "uv run": (0, "--with --extra --group --package -p --python --project --directory --env-file"),
    "uvx": (0, "--with --from -p --python"),
}
"""Programs that run another one: how many words stand before it, and which options take a value."""


def program_of(command: Sequence[str]) -> tuple[str, list[str]]:
    """The program or module that a command line comes to, and its arguments; "" for none."""
    words = [*command]
    while words:
        if _ASSIGNMENT.fullmatch(words[0]):
            words = words[1:]
            continue
        name = words[0].rpartition("/")[2].lstrip("-")
        with_subcommand = " ".join((name, *words[1:2]))
        if _PYTHON.fullmatch(name):
            return _of_python(words[1:])
        if name in _SHELLS:
            words = _of_shell(words[1:])
        elif name in _WRAPPERS:
            words = _behind(words[1:], *_WRAPPERS[name])
        elif with_subcommand in _WRAPPERS:
            words = _behind(words[2:], *_WRAPPERS[with_subcommand])
        else:
            return words[0], words[1:]
    return "", []


def _behind(words: list[str], before: int, valued: str) -> list[str]:
    """What stands behind a wrapper's own options and its first words."""
    words, takes_value = [*words], valued.split()
    while words and words[0].startswith("-"):
        option = words.pop(0)
        if option == "--":
            break
        if option in takes_value:
            words = words[1:]
    return words[before:]


def _of_python(words: list[str]) -> tuple[str, list[str]]:
    """The script or module that an interpreter runs, and its arguments."""
    words = [*words]
    while words:
        word = words.pop(0)
        if not word.startswith("-"):
            return word, words
        if word == "--check-hash-based-pycs":
            words = words[1:]
        letters = "" if word.startswith("--") else word[1:]
        # One word may hold several options, of which the last one takes the rest or the next word.
        if (n := next((n for n, letter in enumerate(letters) if letter in "cmWX"), None)) is None:
            continue
        value = letters[n + 1 :] or (words.pop(0) if words else "")
        if letters[n] in "cm":
            return (value if letters[n] == "m" else ""), words
    return "", []


def _of_shell(words: list[str]) -> list[str]:
    """The last command of `sh -c SCRIPT`, up to what is done with its output; [] for a file."""
    words = [*words]
    while words and words[0][:1] in ("-", "+"):
        option = words.pop(0)
        if "c" in option and not option.startswith("--"):
            break
        if option.endswith("o"):  # as in -euo pipefail
            words = words[1:]
    else:
        return []
    while words and words[0].startswith("-"):
        words = words[1:]
    script = words[0] if words else ""
    lexer = shlex.shlex(
        script.replace("\\\n", " ").replace("\n", ";"), posix=True, punctuation_chars=True
    )
    lexer.whitespace_split, lexer.commenters = True, ""
    command, ended = list[str](), False
    try:
        for token in lexer:
            if token in ("&&", ";"):
                command, ended = [], False
            elif token and _PUNCTUATION.issuperset(token):
                ended = True
            elif not ended:
                command.append(token)
    except ValueError:  # an open quote
        return []
    return command
