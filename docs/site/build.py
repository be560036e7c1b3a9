"""The pages as a site: build/site, searched without a server; fails at a link that leads nowhere.

    make docs
    python docs/site/build.py FOLDER [PAGE ...]    # looks at all, writes those alone

What is on the left of the site is what the lists of pages link (docs/README.md and other README.md
files), in their order: a page that none of them names fails the build, too.
"""

import gc
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import reference
from sphinx.cmd.build import build_main

ROOT = Path(__file__).parents[2]
FRONT, LIST = "index", "docs/README"
_LINK = re.compile(r"\]\(([^)#:\s]+?)\.md(?:#[^)]*)?\)")


def main(out: Path, pages: Sequence[str] = ()) -> int:
    """Exit code of Sphinx; of some pages, it looks at all and writes those, in half the time."""
    gc.disable()  # nodes of pages stay: to look for garbage among them takes a third of the time
    staged = out.with_name(f"{out.name}-pages")
    shutil.rmtree(staged, ignore_errors=True)
    for path in _sources():
        (staged / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, staged / path)
    (staged / "README.md").rename(staged / f"{FRONT}.md")
    for name, text in reference.pages().items():
        (staged / "reference").mkdir(exist_ok=True)
        (staged / f"reference/{name}.md").write_text(text)
    _add_contents(staged)
    settings = ["-c", str(Path(__file__).parent), "-D", f"root_doc={FRONT}"]
    settings += ["-D", f"written_pages={','.join(pages)}", "-d", str(staged / ".doctrees")]
    return build_main(["-q", "--fail-on-warning", "--keep-going", *settings, str(staged), str(out)])


def _sources() -> Iterator[Path]:
    """Pages and pictures, by their paths in the checkout."""
    for folder in (
        "docs",
        "deploy",
        "examples",
        "jobs",
        "data/advisor_data/bundled",
        "models/advisor_models/bundled",
        "requirements",
    ):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in {".md", ".png", ".svg"}:
                yield path.relative_to(ROOT)
    yield from (path.relative_to(ROOT) for path in sorted(ROOT.glob("*.md")))


def _add_contents(staged: Path) -> None:
    """Behind each list of pages what it names first, below its headings."""
    seen = {FRONT, LIST}
    trees = [("Start", [LIST])]
    parts = (staged / f"{LIST}.md").read_text().split("\n## ")[1:]
    trees += [(part.partition("\n")[0], _linked(staged, LIST, part, seen)) for part in parts]
    trees.append(("Reference", [f"reference/{name}" for name in ("cli", "python", "http", "keys")]))
    _append(staged / f"{FRONT}.md", "".join(_tree(head, pages) for head, pages in trees if pages))
    for page in sorted(seen):
        if page.endswith("README") and page != LIST:
            below = _linked(staged, page, (staged / f"{page}.md").read_text(), seen)
            _append(staged / f"{page}.md", _tree("", below) if below else "")


def _linked(staged: Path, page: str, text: str, seen: set[str]) -> list[str]:
    """Pages that a text links and no list has named before."""
    found = list[str]()
    for target in _LINK.findall(text):
        path = (staged / f"{page}.md").parent / f"{target}.md"
        name = path.resolve().relative_to(staged.resolve()).with_suffix("").as_posix()
        if path.is_file() and name not in seen:
            seen.add(name)
            found.append(name)
    return found


def _tree(head: str, pages: list[str]) -> str:
    named = "".join(f"/{page}\n" for page in pages)
    caption = f":caption: {head}\n" if head else ""
    return f"\n```{{toctree}}\n:hidden:\n{caption}\n{named}```\n"


def _append(page: Path, text: str) -> None:
    with page.open("a") as file:
        file.write(text)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build/site", sys.argv[2:]))
