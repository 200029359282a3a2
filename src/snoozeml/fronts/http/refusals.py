"""What a connection refuses by itself, before or beside its application."""

from collections.abc import Awaitable, Callable
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from snoozeml.errors import HeadTooLarge, InvalidInput, Overloaded, RequestTimeout
from snoozeml.fronts.http.limits import LARGEST_HEAD_BYTES
from snoozeml.fronts.http.replies import CLOSE, send_error
from snoozeml.fronts.limits import ClientLimits

_RETRY_AFTER_S: Final = 1.0

TOO_MANY: Final = Overloaded(
    "there are more connections than the limit (max_connections)", retry_after_s=_RETRY_AFTER_S
)
TOO_MUCH: Final = Overloaded(
    "the bodies of all requests together are larger than the limit (max_inflight_bytes)",
    retry_after_s=_RETRY_AFTER_S,
)
NOT_HTTP: Final = InvalidInput(
    "this is not a valid HTTP/1.1 request: check the request line, the header lines and the chunk "
    "sizes"
)
NO_UPGRADE: Final = InvalidInput(
    "this server speaks HTTP/1.1 only; send a request with a body without the Upgrade header"
)
NOT_ONE_HOST: Final = InvalidInput("a request of HTTP/1.1 has one Host header, no more and no less")
NOT_CHUNKED: Final = InvalidInput(
    "the only transfer-encoding that this server takes is chunked, once; to compress a body, use "
    "content-encoding"
)
HEAD_TOO_LARGE: Final = HeadTooLarge(
    f"what comes around the body (request line, headers, chunk sizes, trailers) is larger than the "
    f"limit of {LARGEST_HEAD_BYTES} bytes"
)


def slow_head(limits: ClientLimits) -> RequestTimeout:
    return RequestTimeout(
        "the request line and headers were not complete within "
        f"{limits.header_timeout_s:g} s (header_timeout_secs)"
    )


def slow_body(limits: ClientLimits) -> RequestTimeout:
    return RequestTimeout(
        f"the body was not complete within {limits.transfer_timeout_s:g} s (transfer_timeout_secs) "
        f"and a second for every {limits.bytes_per_s} bytes of it (min_transfer_rate)"
    )


def only_health(app: ASGIApp) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    """An application that answers questions about health, and refuses all others."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"].startswith("/health/"):
            await app(scope, receive, send)
        else:
            await send_error(send, TOO_MANY, None, [CLOSE])

    return answer
