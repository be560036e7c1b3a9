"""The size of the project under a ceiling that only falls.

    python docs/measurements/ceiling.py            # fail where a count is above its ceiling
    python docs/measurements/ceiling.py --lower    # lower each ceiling to what is there

Ceilings: `[tool.ceiling]` of pyproject.toml. Source is the Python below `SOURCE`; statements
are those of `ast`; public names are functions and classes of modules without an underscore in
front; measuring scripts are the Python below docs/. Files that git ignores do not count.
"""

import argparse
import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ("advisor/", "api/", "data/", "models/", "profiling/", "training/")
Defined = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def counts(root: Path) -> dict[str, int]:
    """Every count of a checkout by the name of its ceiling."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=root, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    texts = {
        name: (root / name).read_text("utf-8")
        for name in listed.splitlines()
        if re.search(r"\.(py|js|lua|sh|md)$", name) and (root / name).is_file()
    }
    python = {name: ast.parse(text) for name, text in texts.items() if name.endswith(".py")}
    source = [tree for name, tree in python.items() if name.startswith(SOURCE)]
    tests = [tree for name, tree in python.items() if name.startswith("tests/")]
    nodes = [node for tree in source for node in ast.walk(tree)]
    return {
        "statements": sum(isinstance(node, ast.stmt) for node in nodes),
        "classes": sum(isinstance(node, ast.ClassDef) for node in nodes),
        "modules": len(source),
        "public_names": sum(
            isinstance(node, Defined) and not node.name.startswith("_")
            for tree in source
            for node in tree.body
        ),
        "script_lines_of_other_languages": sum(
            text.count("\n")
            for name, text in texts.items()
            if name.endswith((".js", ".lua", ".sh")) and not name.startswith("docs/")
        ),
        "test_statements": sum(
            isinstance(node, ast.stmt) for tree in tests for node in ast.walk(tree)
        ),
        "measuring_lines": sum(
            texts[name].count("\n") for name in python if name.startswith("docs/")
        ),
        "words_of_docs": sum(
            len(text.split())
            for name, text in texts.items()
            if name.endswith(".md") and (name.startswith("docs/") or "/" not in name)
        ),
    }


def main() -> None:
    """Compare with the ceilings, or lower them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--lower", action="store_true")
    lower = parser.parse_args().lower
    path = ROOT / "pyproject.toml"
    text = path.read_text("utf-8")
    ceilings: dict[str, int] = tomllib.loads(text)["tool"]["ceiling"]
    found, above = counts(ROOT), list[str]()
    for name, ceiling in ceilings.items():
        print(f"{name.replace('_', ' '):<34}{found[name]:>8} of {ceiling}")
        if found[name] > ceiling:
            above.append(f"{name} is {found[name]}, above {ceiling}")
        elif lower:
            text = re.sub(rf"(?m)^{name} = \d+$", f"{name} = {found[name]}", text)
    if lower:
        path.write_text(text, "utf-8")
    if above:
        sys.exit(
            f"{'; '.join(above)}. Take as much away elsewhere; to raise a ceiling, write the line "
            "of docs/decisions.md that says what left for it."
        )


if __name__ == "__main__":
    main()
