"""`python -m advisor_cli`, where the `advisor` script is not on the PATH."""

from advisor_cli import main

main()
