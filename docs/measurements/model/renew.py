"""Trains the bundled model from the bundled points, evaluates it, and renews what is said of it.

    .venv/bin/python docs/measurements/model/renew.py

For new bundled points, features or settings; takes about ten minutes. Writes the model and the
tables of its card (models/advisor_models/bundled), the figures that `advisor evaluate --check`
compares (training/advisor_training/bundled_evaluation.json), and the summary and two tables that
`advisor evaluate` prints into docs/evaluation.md. Look at build/evaluation/evaluation.html and at
the sentences around these tables before committing.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

from card import facts, figures, front

from advisor_models.registry import named, read_artefact, write_artefact

ROOT = Path(__file__).resolve().parents[3]
BUNDLED = ROOT / "models/advisor_models/bundled"
EVALUATION = ROOT / "build/evaluation"
WIDTH = "140"
SHOWN = ("In ", "Jobs that were not seen: energy", "Errors for jobs")
"""How the parts of the evaluation begin that its page shows."""


def main() -> None:
    """Train, evaluate, and put the results where they are read."""
    advisor("train", "--out", str(BUNDLED), "--created-at", "newest")
    printed = advisor("evaluate", "--out", str(EVALUATION.relative_to(ROOT)))
    shown = "\n\n".join(part for part in printed.split("\n\n") if part.startswith(SHOWN))
    put(ROOT / "docs/evaluation.md", "printed by advisor evaluate", f"```text\n{shown}\n```")
    checked = ROOT / "training/advisor_training/bundled_evaluation.json"
    figures_of_check = json.loads((EVALUATION / "evaluation.json").read_text("utf-8"))["check"]
    checked.write_text(f"{json.dumps(figures_of_check, indent=2)}\n", "utf-8")
    attach(BUNDLED, EVALUATION / "evaluation.json")
    manifest = read_artefact(BUNDLED).manifest
    card = BUNDLED / "README.md"
    card.write_text(front(manifest) + "\n#" + card.read_text("utf-8").partition("\n#")[2], "utf-8")
    put(card, "from manifest.json", table(facts(manifest)))
    put(card, "figures", table(figures(manifest)))


def advisor(*arguments: str) -> str:
    """What the command prints, shown as well."""
    command = [sys.executable, "-m", "advisor_cli", *arguments]
    env = {**os.environ, "COLUMNS": WIDTH}
    done = subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True, check=True)
    print(done.stdout)
    return "\n".join(line.rstrip() for line in done.stdout.splitlines()) + "\n"


def attach(folder: Path, evaluation: Path) -> None:
    """Put what the evaluation says of each job into a model's folder: the service shows it."""
    found = json.loads(evaluation.read_text("utf-8"))
    jobs = json.dumps({"schema": found["schema"], "jobs": rounded(found["jobs"])}).encode()
    artefact = read_artefact(folder)
    files = {**artefact.files, evaluation.name: jobs}
    write_artefact(folder, named(artefact.manifest, files))


def rounded(value: Any) -> Any:
    """The same with three digits behind the point."""
    if isinstance(value, dict):
        return {name: rounded(item) for name, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [rounded(item) for item in cast("list[Any]", value)]
    return round(value, 3) if isinstance(value, float) else value


def put(file: Path, name: str, content: str) -> None:
    """Replace what stands between the markers of that name."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, _, rest = file.read_text("utf-8").partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        sys.exit(f"{file} has no markers {begin} .. {end}")
    file.write_text(f"{before}{begin}\n\n{content}\n\n{end}{after}", "utf-8")


def table(rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in [("what", "value"), ("---", "---"), *rows])


if __name__ == "__main__":
    main()
