"""The distribution that this is, and how pip installs more of it."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

DISTRIBUTION = "sm-advisor"
"""As pyproject.toml names it, which a test holds."""


def install(extra: str) -> str:
    """The command that brings an extra: of the checkout or file that this was installed from.

    No index need have the distribution, and one that has its name may have another's.
    """
    from importlib import metadata  # 20 ms of every start

    try:
        origin = metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        origin = None
    source: dict[str, Any] = json.loads(origin or "{}")
    url: str = source.get("url", "")
    path = Path(unquote(urlsplit(url).path))
    if not path.is_absolute() or not path.exists():
        return f"pip install '{DISTRIBUTION}[{extra}]'"
    editable = "-e " if source.get("dir_info", {}).get("editable") else ""
    return f"pip install {editable}'{path}[{extra}]'"
