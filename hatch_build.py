"""The README in the package's metadata, whose links must be whole where they are shown."""

import re
from collections.abc import Mapping
from os import environ
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:)([^)\s]+)\)")


def source_address(variables: Mapping[str, str]) -> str | None:
    """Where this version's files are read, ending in `/`: known to who builds a release there."""
    names = ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_REF_NAME")
    server, repository, version = (variables.get(name) for name in names)
    return f"{server}/{repository}/blob/{version}/" if server and repository and version else None


def whole_links(text: str, address: str | None) -> str:
    """Links to files as whole addresses; without an address their texts alone, and no pictures."""

    def replace(found: re.Match[str]) -> str:
        picture, shown, target = found.groups()
        if address:
            raw = "?raw=true" if picture else ""
            return f"{picture}[{shown}]({address}{target}{raw})"
        return "" if picture else shown

    return _LINK.sub(replace, text)


class Readme(MetadataHookInterface):
    """Sets the description, and the addresses of the project where there are any."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Change what pyproject.toml says."""
        address = source_address(environ)
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": whole_links(text, address)}
        if address:
            home = address.partition("/blob/")[0]
            metadata["urls"] = {"Source": home, "Changes": f"{address}CHANGELOG.md"}
