"""`advisor config`: which settings hold, and why."""

import math
import os

from advisor.settings import KEYS, config_path, read_settings, variable_of, written
from advisor_cli.console import AsJson, as_json_text, plain_table, print_table, say


def config(as_json: AsJson = False) -> None:
    """Show which settings hold, and what set each: environment, file or default.

    Options of a command go before variables, these before the file, that before defaults.

    Example: advisor config
    """
    settings, path = _in_force(), config_path(os.environ)
    if as_json:
        say(as_json_text({"file": path and str(path), "settings": settings}))
        return
    cells = [["-" if x is None else str(x) for x in row.values()] for row in settings]
    print_table(plain_table(("setting", "value", "set by", "variable"), cells))
    say(f"file, {'read' if path and path.is_file() else 'not there'}: {path}")


def _in_force() -> list[dict[str, str | float | None]]:
    """Each setting; a value of None is nothing, or no bound."""
    settings, kept = read_settings(), written(os.environ)
    rows = list[dict[str, str | float | None]]()
    for name, value_of in KEYS.items():
        variable, value = variable_of(name), value_of(settings)
        plain = value if isinstance(value, float | None) else str(value)
        by_file = "file" if variable in kept else "default"
        set_by = "environment" if os.environ.get(variable) else by_file
        bound = None if plain == math.inf else plain
        rows.append({"name": name, "value": bound, "set_by": set_by, "variable": variable})
    return rows
