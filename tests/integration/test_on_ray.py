"""`--on ray` on a real Ray cluster on loopback, a node killed in mid-run; GPUs are fakes."""

import json
import signal

import pytest
from fanned_out import PATIENCE_S, PLAN, answer_of, each_once, of_shards, stored, two_gpus, until
from host import OTHER_UUID, UUID, FakeHost
from ray_cluster import ray_cluster

from advisor.core.records import PairPoint

pytestmark = pytest.mark.ray

COLOCATE = ("colocate", *PLAN, "--on", "ray", "--shards", "2", "--json")


def test_a_node_that_is_killed_loses_no_point_and_none_is_measured_twice(host: FakeHost) -> None:
    """Ray starts its shard again on the other node, where it goes on behind its last point."""
    with (
        ray_cluster(host.environment(**two_gpus(host))) as cluster,
        host.start_advisor(*COLOCATE, **cluster.environment) as process,
    ):
        until(lambda: on_card(host, UUID) and on_card(host, OTHER_UUID), process)
        cluster.lose_first_gpu()
        kept = on_card(host, UUID)
        answer = answer_of(process)
    points = stored(host)
    assert each_once(points)
    assert all(point in points for point in kept)
    assert answer["windows"] == 4
    assert {point.gpu_uuid for point in points if point not in kept} == {OTHER_UUID}
    assert not (host.folder / "home/fanout/night").exists()


@pytest.mark.nightly
def test_ctrl_c_ends_the_tasks_and_keeps_points(host: FakeHost) -> None:
    """The same command, on this host too, goes on from there."""
    variables = two_gpus(host)
    with (
        ray_cluster(host.environment(**variables)) as cluster,
        host.start_advisor(*COLOCATE, **cluster.environment) as process,
    ):
        until(lambda: on_card(host, UUID) and on_card(host, OTHER_UUID), process)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 130, errors
        assert "the same command goes on from here" in errors
        assert host.control("get_server_list") == ""
    kept = stored(host)
    assert len(kept) >= 2
    answer = json.loads(host.advisor("colocate", *PLAN, "--dry-run", "--json", **variables).stdout)
    assert (answer["windows"], answer["to_measure"]) == (4, 4 - len(kept))


def on_card(host: FakeHost, uuid: str) -> list[PairPoint]:
    return [point for point in of_shards(host) if point.gpu_uuid == uuid]
