"""GPUs of a node whose agent is silent are given to nobody."""

from dataclasses import replace

from advisor_kubernetes.chooser.chooser import SILENT_S, Agents
from advisor_kubernetes.chooser.places import Node, NodeGpu

GPU = NodeGpu(uuid="GPU-1", model="H100")
NODE = Node(name="one", labels={}, taints=(), gpus=(GPU,), checked_at="10:00")


def test_an_agent_that_renews_is_heard() -> None:
    """What counts is that the text changes, whatever the node's clock says."""
    agents = Agents()
    for turn in range(10):
        node = replace(NODE, checked_at=f"09:0{turn}")
        assert agents.heard([node], turn * SILENT_S) == [node]


def test_an_agent_that_is_gone_is_not() -> None:
    """It is believed for two minutes after it was last seen to say something."""
    agents = Agents()
    assert agents.heard([NODE], 1000) == [NODE]
    assert agents.heard([NODE], 1000 + SILENT_S) == [NODE]
    assert agents.heard([NODE], 1001 + SILENT_S) == []
    back = replace(NODE, checked_at="10:09")
    assert agents.heard([back], 1002 + SILENT_S) == [back]


def test_a_node_that_was_away_begins_again() -> None:
    agents = Agents()
    agents.heard([NODE], 0)
    assert agents.heard([], SILENT_S) == []
    assert agents.heard([NODE], 5 * SILENT_S) == [NODE]


def test_gpus_that_nobody_renews_stay() -> None:
    """A site may write the annotation itself."""
    agents, own = Agents(), replace(NODE, checked_at="")
    assert agents.heard([own], 0) == agents.heard([own], 9 * SILENT_S) == [own]
