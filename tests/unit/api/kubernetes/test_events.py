"""How often a pod is told what it waits for."""

from typing import Any, cast

import pytest
from kube_serving import admitted, pod_of

from advisor_kubernetes.chooser import chooser
from advisor_kubernetes.chooser.chooser import Events
from advisor_kubernetes.chooser.pods import Pod, read_pod
from advisor_kubernetes.cluster import Cluster


class Said:
    """An API server that keeps the messages of events."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def post(self, _path: str, body: dict[str, Any]) -> None:
        self.messages.append(body["message"])


def pod(name: str) -> Pod:
    made = admitted(pod_of(name, name))
    made["metadata"] |= {"uid": name}
    return read_pod(made)


def test_reasons_that_change_all_the_time_are_no_flood(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many kinds of pods others are looked at each second, so each second another one is why."""
    said = Said()
    told = Events(cast("Cluster", said))
    monkeypatch.setattr(chooser, "_WITHIN_S", 3600.0)
    for turn in range(100):
        told.say_it_waits(pod("a"), f"not beside {turn % 7}", held_up=False)
    assert said.messages == [f"not beside {turn}" for turn in range(5)]
    told.say_it_waits(pod("b"), "waits", held_up=True)
    told.say(pod("a"), "GotGpu", "50 %")
    assert said.messages[5:] == ["waits", "50 %"]
    monkeypatch.setattr(chooser, "_WITHIN_S", 0.0)
    told.say_it_waits(pod("a"), "after a while", held_up=False)
    told.forget({"b"})
    assert said.messages[7:] == ["after a while"]
