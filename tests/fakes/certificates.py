"""Certificates for 127.0.0.1 that sign themselves, made by the program openssl."""

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest


class Made(NamedTuple):
    certificate: Path
    key: Path


def make_certificate(folder: Path, name: str = "tls") -> Made:
    """A certificate, and its key; the test is skipped where openssl is missing."""
    if (openssl := shutil.which("openssl")) is None:
        pytest.skip("needs the program openssl")
    folder.mkdir(exist_ok=True)
    made = Made(folder / f"{name}.crt", folder / f"{name}.key")
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "2", "-subj", f"/CN={name}", "-addext"]
    command += ["subjectAltName=IP:127.0.0.1", "-out", str(made.certificate)]
    command += ["-keyout", str(made.key)]
    subprocess.run(command, check=True, capture_output=True)
    return made
