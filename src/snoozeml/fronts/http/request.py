"""What the daemon heeds in the head of a request."""

from typing import Final

from starlette.types import Scope

from snoozeml.errors import UnsupportedMediaType
from snoozeml.fronts.manners import usable_request_id
from snoozeml.serving.auth import CREDENTIAL_HEADERS

SCOPE_KEY: Final = "snoozeml.request"
"""Where routes that Starlette calls find the request in their scope."""

BINARY: Final = b"application/octet-stream"

_AS_THEY_ARE: Final = {
    b"accept-encoding": "accept_encoding",
    b"content-length": "content_length",
    b"inference-header-content-length": "json_bytes",
    b"x-request-timeout-ms": "timeout_ms",
    b"x-snooze-cold": "cold",
}
"""Headers that need no looking at yet, and the attribute that each becomes."""


class Request:
    """The headers of one request, read once.

    Attributes:
        cold: what the client wishes if the model sleeps.
        encoding: how the body is compressed; empty: not at all.
        json_bytes: how much of the body is JSON, where the client says that.
        is_read: the body has been read to its end.
    """

    __slots__ = (
        "accept_encoding", "cold", "content_length", "credentials", "encoding", "id", "is_read",
        "json_bytes", "media_type", "timeout_ms",
    )  # fmt: skip

    def __init__(self, scope: Scope) -> None:
        self.accept_encoding = self.content_length = self.encoding = self.media_type = b""
        self.cold = b"wait"
        self.credentials: list[tuple[bytes, bytes]] = []
        self.is_read = False
        self.json_bytes: bytes | None = None
        self.timeout_ms: bytes | None = None
        self.id: str | None = None
        for name, value in scope["headers"]:
            if (attribute := _AS_THEY_ARE.get(name)) is not None:
                setattr(self, attribute, value)
            elif name in CREDENTIAL_HEADERS:
                self.credentials.append((name, value))
            elif name == b"content-type":
                self.media_type = value.partition(b";")[0].strip().lower()
            elif name == b"content-encoding":
                self.encoding = value.lower().removeprefix(b"identity")
            elif name == b"x-request-id" and usable_request_id(value):
                self.id = value.decode()


def check_media_type(request: Request, *, may_be_binary: bool = False) -> None:
    """Refuse what is certainly not JSON; a client that says nothing is believed.

    Raises:
        UnsupportedMediaType: with what would be right.
    """
    media_type = request.media_type
    if (
        media_type
        and media_type != b"application/json"
        and not media_type.endswith(b"+json")
        and not (may_be_binary and media_type == BINARY)
    ):
        right = "application/json" + (" or application/octet-stream" if may_be_binary else "")
        given = media_type.decode("latin-1")
        raise UnsupportedMediaType(f"send content-type {right}, not {given}")
