"""The scheduler extender: a pod whose GPU is chosen goes to that GPU's node and to no other.

Requests and replies have the names of Go's fields, capitalised (`k8s.io/kube-scheduler/extender/v1`
has no JSON tags there). With `nodeCacheCapable: true` the scheduler sends names of nodes, else the
nodes themselves; the reply has the same form.
"""

from collections.abc import Sequence

from advisor.errors import InputError
from advisor_kubernetes import names
from advisor_kubernetes.objects import Object, part, parts, word

_BEST = 10
"""Scores go from 0 to 10."""


def filter_nodes(asked: Object) -> Object:
    """An ExtenderFilterResult: the nodes on which a pod may run.

    Raises:
        InputError: this is no ExtenderArgs.
    """
    args = _args(asked)
    wanted = _node_of(args)
    hosts = _hosts(args)
    reason = f"advisor chose a GPU of {wanted}"
    others = {host: reason for host in hosts if wanted and host != wanted}
    fit = [host for host in hosts if host not in others]
    result: Object = {"Nodes": None, "NodeNames": None, "FailedNodes": {}, "Error": ""}
    # Not FailedNodes: evicting somebody there would not help.
    result["FailedAndUnresolvableNodes"] = others
    if args.get("nodenames") is not None:
        return {**result, "NodeNames": fit}
    items = [node for node in parts(args, "nodes", "items") if _name(node) in fit]
    return {**result, "Nodes": {**part(args, "nodes"), "items": items}}


def prioritize_nodes(asked: Object) -> list[Object]:
    """A HostPriorityList: the chosen node before all others; equal where none is chosen.

    Raises:
        InputError: this is no ExtenderArgs.
    """
    args = _args(asked)
    wanted = _node_of(args)
    return [{"Host": host, "Score": _BEST if host == wanted else 0} for host in _hosts(args)]


def _args(asked: Object) -> Object:
    """The arguments by names in lower case: a scheduler with JSON tags writes them so."""
    args = {key.lower(): value for key, value in asked.items()}
    if not isinstance(args.get("pod"), dict) or not (args.get("nodes") or "nodenames" in args):
        raise InputError("this is no ExtenderArgs", fix="send what kube-scheduler sends")
    return args


def _node_of(args: Object) -> str | None:
    return word(part(args, "pod", "metadata", "annotations"), names.NODE) or None


def _hosts(args: Object) -> Sequence[str]:
    given = args.get("nodenames")
    if given is None:
        return [_name(node) for node in parts(args, "nodes", "items")]
    if not (isinstance(given, list) and all(isinstance(host, str) for host in given)):  # pyright: ignore[reportUnknownVariableType]
        raise InputError("NodeNames is not a list of texts", fix="send what kube-scheduler sends")
    return given  # pyright: ignore[reportUnknownVariableType]


def _name(node: Object) -> str:
    return word(part(node, "metadata"), "name")
