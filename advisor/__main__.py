"""`python -m advisor`, where the script is not on the PATH, or another tool has its name."""

import runpy

# By name: the command line stands above this package.
runpy.run_module("advisor_cli", run_name="__main__")
