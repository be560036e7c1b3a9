"""The rule for names that become names of files: runs and models."""

import re

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

RULE = "letters, digits, '.', '_' and '-', the first a letter or digit, at most 100"
