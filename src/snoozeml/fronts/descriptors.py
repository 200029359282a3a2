"""Each connection takes a file descriptor, of which a process may have only so many."""

import logging
import resource
from typing import Final

from snoozeml.config.keys import ConfigError
from snoozeml.fronts.http.crowd import RESERVE

_log = logging.getLogger("snoozeml.http")

_OTHERS: Final = 1024 + RESERVE
"""What is left for workers (a socket and a pipe each), model files and the reserve of clients."""

_LEAST: Final = 64
"""Twenty are taken when nothing is loaded, and a load needs a dozen for a moment."""


def affordable(connections: int, fronts: int) -> int:
    """Raise the limit of this process as far as so many connections need and the system allows.

    Args:
        connections: how many each front is to have.

    Returns:
        how many each front may have; fewer than asked for with a warning.

    Raises:
        ConfigError: the limit is too low to load a model.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = fronts * connections + _OTHERS
    # RLIM_INFINITY is -1 in Python.
    if soft in range(needed):
        soft = needed if hard not in range(needed) else hard
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft not in range(needed):
        return connections
    if soft < _LEAST:
        raise ConfigError(
            f"the limit of {soft} file descriptors is too low to serve a model: it must be "
            f"{_LEAST} at least, and better {needed}; raise it with ulimit -Hn or LimitNOFILE"
        )
    # Half for connections where there are not even enough for the others.
    fewer = max(soft - _OTHERS, soft // 2) // fronts
    _log.warning(
        "max_connections = %d needs %d file descriptors, but the limit is %d: taking no more than "
        "%d connections; raise it with ulimit -Hn or LimitNOFILE",
        connections,
        needed,
        soft,
        fewer,
    )
    return fewer
