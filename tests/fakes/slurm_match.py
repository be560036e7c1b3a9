"""`advisor slurm match` that looks more often than a real one, and gathers jobs for less time."""

from advisor_cli.app import main
from advisor_node.slurm import matching

GATHER_S = 1.0

if __name__ == "__main__":
    matching.GATHER_S, matching.LOOK_S, matching.SITE_S = GATHER_S, 0.3, 2.0
    main()
