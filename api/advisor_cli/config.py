"""`advisor config`: which settings hold, and why."""

import math
import os

from advisor.settings import KEYS, config_path, read_settings, variable_of, written
from advisor_cli.console import AsJson, as_json_text, plain_table, print_table, say


def config(as_json: AsJson = False) -> None:
    """Show the settings, and the source of each: environment, file or default.

    Options of a command override variables, variables the file, and the file the defaults.

    Example: advisor config
    """
    settings, kept, path = read_settings(), written(os.environ), config_path(os.environ)
    rows = list[dict[str, str | float | None]]()
    for name, value_of in KEYS.items():
        variable, value = variable_of(name), value_of(settings)
        plain = value if isinstance(value, float | None) else str(value)
        by_file = "file" if variable in kept else "default"
        set_by = "environment" if os.environ.get(variable) else by_file
        # None is nothing, or no bound.
        bound = None if plain == math.inf else plain
        rows.append({"name": name, "value": bound, "set_by": set_by, "variable": variable})
    if as_json:
        say(as_json_text({"file": path and str(path), "settings": rows}))
        return
    cells = [["-" if x is None else str(x) for x in row.values()] for row in rows]
    print_table(plain_table(("setting", "value", "set by", "variable"), cells))
    say(f"file, {'read' if path and path.is_file() else 'not there'}: {path}")
