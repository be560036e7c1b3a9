"""`advisor` of a Slurm node, which looks more often than a real one and does not wait long."""

from advisor_cli.app import main
from advisor_node import room
from advisor_profiling import attached

SETTLE_S = 1.0
"""Of the first seconds together, which are in no mean."""

if __name__ == "__main__":
    room.LOOK_S, room.SETTLE_S, attached.KEPT_S = 0.2, SETTLE_S, 2.0
    room.AGAIN_S = room.ASK_AGAIN_S = 0.5
    main()
