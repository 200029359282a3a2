"""What an operator should know about how open the daemon is."""

import contextlib
from collections.abc import Iterator
from ipaddress import ip_address

from snoozeml.config.schema import Configuration


def concerns(configuration: Configuration) -> Iterator[str]:
    """One sentence for each thing that may be more open than it was meant to be."""
    yield from configuration.auth.warnings
    host = configuration.server.host
    if _is_loopback(host):
        return
    if not configuration.auth.enabled:
        yield (
            f"whoever can reach {host} may ask, load and unload every model: set SNOOZE_API_KEY to "
            "a key of your own, or write [auth], to ask for credentials"
        )
    elif configuration.server.tls_cert is None:
        yield (
            f"credentials travel to {host} unencrypted, unless something in front of it speaks "
            "TLS; --tls-cert and --tls-key do"
        )


def _is_loopback(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ip_address(host.partition("%")[0]).is_loopback
    return host == "localhost"
