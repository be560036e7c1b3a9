"""`python -m advisor.cli`, where the `advisor` script is not on the PATH."""

from advisor.cli.app import main

main()
