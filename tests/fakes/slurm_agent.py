"""`advisor` of a Slurm node, which looks more often than a real one and does not wait long."""

from advisor_cli.app import main
from advisor_node.metering import looking, references, reports

if __name__ == "__main__":
    looking.LOOK_S = 0.2
    reports.AGAIN_S = references.ASK_AGAIN_S = 0.5
    main()
