"""What a client may cost, whatever its transport."""

from typing import NamedTuple, Self

from snoozeml.config.schema import ServerConfig


class ClientLimits(NamedTuple):
    """The settings, in seconds and bytes; see their descriptions in the configuration."""

    request_bytes: int = 64 * 2**20
    inflight_bytes: int = 256 * 2**20
    connections: int = 4096
    keep_alive_s: float = 60.0
    header_timeout_s: float = 10.0
    transfer_timeout_s: float = 30.0
    bytes_per_s: float = 16 * 2**10

    @classmethod
    def of(cls, config: ServerConfig, connections: int) -> Self:
        """Those that are configured.

        Args:
            connections: what `max_connections` has come to.
        """
        return cls(
            request_bytes=config.max_request_bytes,
            inflight_bytes=max(config.max_inflight_bytes, config.max_request_bytes),
            connections=connections,
            keep_alive_s=config.keep_alive_secs,
            header_timeout_s=config.header_timeout_secs,
            transfer_timeout_s=config.transfer_timeout_secs,
            bytes_per_s=config.min_transfer_rate,
        )

    def transfer_s(self, size_bytes: int) -> float:
        """How long so many bytes may take to pass.

        What moves buys time, so that any size can pass over a slow line; but a trickle does not.
        """
        return self.transfer_timeout_s + size_bytes / self.bytes_per_s
