"""The contract of the service as JSON: `python -m advisor_api.openapi > api/openapi.json`."""

import json
import sys

from advisor.settings import read_settings
from advisor_api.app import create_app
from advisor_api.http.options import ServeOptions


def openapi_text() -> str:
    """OpenAPI of every route, as it is checked in."""
    app = create_app(read_settings({}), ServeOptions())
    return json.dumps(app.openapi(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(openapi_text())
