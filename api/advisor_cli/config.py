"""`advisor config`: which settings hold, and why."""

import math
import os
from dataclasses import asdict, dataclass

from advisor.files.config_file import config_path
from advisor.settings import KEYS, read_settings, variable_of, written
from advisor_cli.console import plain_table, print_table
from advisor_cli.options import AsJson
from advisor_cli.say import as_json_text, say


@dataclass(frozen=True, slots=True)
class _Setting:
    """What holds; None: nothing, or no bound. It was set by `environment`, `file` or `default`."""

    name: str
    value: str | float | None
    set_by: str
    variable: str


def config(as_json: AsJson = False) -> None:
    """Show which settings hold, and what set each: environment, file or default.

    Options of a command go before variables, these before the file, that before defaults.

    Example: advisor config
    """
    settings, path = _in_force(), config_path(os.environ)
    if as_json:
        rows = [asdict(row) for row in settings]
        say(as_json_text({"file": path and str(path), "settings": rows}))
        return
    cells = [["-" if x is None else str(x) for x in asdict(row).values()] for row in settings]
    print_table(plain_table(("setting", "value", "set by", "variable"), cells))
    say(f"file, {'read' if path and path.is_file() else 'not there'}: {path}")


def _in_force() -> list[_Setting]:
    settings, kept = read_settings(), written(os.environ)
    found = list[_Setting]()
    for name, value_of in KEYS.items():
        variable, value = variable_of(name), value_of(settings)
        plain = value if isinstance(value, float | None) else str(value)
        set_by = "file" if variable in kept else "default"
        if os.environ.get(variable):
            set_by = "environment"
        found.append(_Setting(name, None if plain == math.inf else plain, set_by, variable))
    return found
