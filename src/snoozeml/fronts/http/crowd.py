"""All clients of a server together: who is too slow, and who must leave when there are too many."""

import asyncio
from collections.abc import Collection
from typing import Final, Protocol

from snoozeml.fronts.http.limits import Stage, Transfer
from snoozeml.fronts.limits import ClientLimits
from snoozeml.lifecycle.alarm import Alarm

_LOOK_EVERY_S: Final = 1.0
_PATIENCE_S: Final = 1.0  # nobody who began to send just now is in anybody's way
_AT_ONCE: Final = 64
"""One in so many connections leaves when room is made: to find them, all are looked at."""

RESERVE: Final = 64
"""Connections beyond the limit, for questions about health."""


class Client(Protocol):
    """A connection as its crowd sees it.

    Attributes:
        transfer: what it is in the middle of sending or being sent; None: nothing.
        idle_until: when it will be closed unless it asks something; None: it is not idle.
    """

    transfer: Transfer | None

    @property
    def idle_until(self) -> float | None: ...

    def due_at(self, now: float) -> float:
        """When the time for its transfer is up."""

    def expire(self) -> None:
        """The time for its transfer is up."""

    def give_way(self) -> None:
        """Leave, so that somebody else may come."""

    def give_up_body(self) -> None:
        """Give back what has come of a body that is not complete."""


class Crowd:
    """See the module.

    Slow clients are looked at once a second while there are any; whoever sends a request in one
    piece and reads its answer is never among them, and costs no timer.
    """

    def __init__(self, limits: ClientLimits, clients: Collection[Client]) -> None:
        """`clients` are all that are connected, those that leave included."""
        self.limits: Final = limits
        self._clients = clients
        self._leaving: set[Client] = set()
        self._slow: dict[Client, None] = {}
        self._held_bytes = 0
        self._loop = asyncio.get_running_loop()
        self._alarm = Alarm(self._look)

    # Slow clients

    def watch(self, client: Client) -> None:
        """Look after a client with a transfer, until `forget`."""
        self._slow[client] = None
        self._alarm.ring_by(self._loop.time() + _LOOK_EVERY_S)

    def forget(self, client: Client) -> None:
        self._slow.pop(client, None)

    def _look(self) -> None:
        now = self._loop.time()
        for client in list(self._slow):
            # Whoever was found too slow may have freed another one meanwhile.
            if client in self._slow and client.due_at(now) <= now:
                client.expire()
        if self._slow:
            self._alarm.ring_by(now + _LOOK_EVERY_S)

    # Too many clients

    def welcome(self) -> bool:
        """Make room for a client that has just come.

        Returns:
            whether there is room. If not, all the others are being served.
        """
        if len(self._clients) - len(self._leaving) <= self.limits.connections:
            return True
        victims = self._dispensable()[: max(1, self.limits.connections // _AT_ONCE)]
        for client in victims:
            self._leaving.add(client)
            client.give_way()
        return bool(victims)

    @property
    def is_full(self) -> bool:
        """Whether the reserve is taken, too."""
        return len(self._clients) - len(self._leaving) > self.limits.connections + RESERVE

    def left(self, client: Client) -> None:
        self._leaving.discard(client)
        self.forget(client)

    def _dispensable(self) -> list[Client]:
        """Who may be sent away: the slow before the idle, in each group the longest first."""
        now = self._loop.time()
        ranked: list[tuple[bool, float, int, Client]] = []
        for number, client in enumerate(self._clients):
            if client in self._leaving:
                continue
            transfer, idle_until = client.transfer, client.idle_until
            if transfer is not None and transfer.since < now - _PATIENCE_S:
                ranked.append((False, transfer.since, number, client))
            elif transfer is None and idle_until is not None:
                ranked.append((True, idle_until, number, client))
        return [client for *_, client in sorted(ranked)]

    # Bodies

    def hold(self, client: Client, size_bytes: int) -> None:
        """Count a piece of a client's body, and make room for it.

        The body that has been on its way longest is given up first, since a slow client would else
        keep everybody out; if there is none but this client's, it is this one. Bodies that are
        complete stay.
        """
        self._held_bytes += size_bytes
        while self._held_bytes > self.limits.inflight_bytes:
            victim = next(filter(_sends_body, self._slow), client)
            victim.give_up_body()
            if victim is client:
                return

    def release(self, size_bytes: int) -> None:
        self._held_bytes -= size_bytes


def _sends_body(client: Client) -> bool:
    return client.transfer is not None and client.transfer.stage is Stage.BODY
