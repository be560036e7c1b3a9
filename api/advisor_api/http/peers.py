"""Who is at the other end of a Unix socket: the kernel says, so no token has to."""

import os
import socket
import struct
from dataclasses import dataclass

from advisor_api.http.access import ALL_SCOPES, Caller

_CREDENTIALS = struct.Struct("3i")
"""Process, user and group (`struct ucred` of Linux)."""

_SO_PEERGROUPS = 59
"""From asm-generic/socket.h; Python has no name for it."""

_GROUPS_BYTES = 1024
"""256 groups; Python asks for no more."""

_OF_GROUP = frozenset({"read", "write", "launch"})


@dataclass(frozen=True, slots=True)
class Peer:
    """A process of this host as it was when it connected."""

    uid: int
    gids: frozenset[int]

    @property
    def name(self) -> str:
        """As logs have it; no token can have this name."""
        return f"uid:{self.uid}"


def peer_of(connection: int) -> Peer:
    """Who opened a connection; it is the file descriptor of a Unix socket that was accepted.

    Raises:
        OSError: it is none.
    """
    with socket.socket(fileno=os.dup(connection)) as ours:
        found = ours.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        _, uid, gid = _CREDENTIALS.unpack(found)
        return Peer(uid, _groups(ours) | {gid})


def _groups(connection: socket.socket) -> frozenset[int]:
    """All but the first; none where there are too many, or the kernel does not say."""
    try:
        found = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _GROUPS_BYTES)
    except OSError:
        return frozenset()
    return frozenset(struct.unpack(f"{len(found) // 4}I", found))


def caller_of_peer(peer: Peer, group: int | None) -> Caller | None:
    """What a process of this host may do without a token; None: as much as anybody.

    Members of the group may read, write and launch.
    """
    if peer.uid in (0, os.geteuid()):
        return Caller(name=peer.name, scopes=ALL_SCOPES)
    if group in peer.gids:
        return Caller(name=peer.name, scopes=_OF_GROUP)
    return None
