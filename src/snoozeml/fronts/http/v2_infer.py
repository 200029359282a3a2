"""`POST /v2/models/{name}[/versions/{version}]/infer`: JSON, and binary tensors that follow it."""

import asyncio
import time
from collections.abc import Sequence
from typing import Final

from starlette.types import Receive, Scope, Send

from snoozeml.core.names import as_model_id
from snoozeml.core.request import Codec, InferenceRequest
from snoozeml.errors import InvalidInput
from snoozeml.fronts.http.answers import connection_of, result_headers, send_at_once
from snoozeml.fronts.http.body import BodyReader
from snoozeml.fronts.http.compression import compressed, encoding_for
from snoozeml.fronts.http.priority import priority_in
from snoozeml.fronts.http.replies import JSON, Headers
from snoozeml.fronts.http.request import BINARY, Request, check_media_type
from snoozeml.fronts.http.time_limits import IN_V2
from snoozeml.fronts.manners import fails_fast
from snoozeml.lifecycle.registry import Registry
from snoozeml.serving.auth import Action, Authoriser
from snoozeml.serving.inference import Serving
from snoozeml.serving.versions import check_version
from snoozeml.wire.oip_framing import mark, unmarked

_MODELS: Final = "/v2/models/"
_VERSIONS: Final = "/versions/"
_INFER: Final = "/infer"
_JSON_BYTES: Final = b"inference-header-content-length"
_LONGEST_NUMBER: Final = 20


class V2Infer:
    def __init__(
        self, serving: Serving, registry: Registry, authoriser: Authoriser, bodies: BodyReader
    ) -> None:
        self._serving = serving
        self._registry = registry
        self._authoriser = authoriser
        self._bodies = bodies

    @staticmethod
    def takes(path: str) -> bool:
        return path.startswith(_MODELS) and path.endswith(_INFER)

    async def answer(self, request: Request, scope: Scope, receive: Receive, send: Send) -> None:
        named = scope["path"][len(_MODELS) : -len(_INFER)]
        name, _, version = named.partition(_VERSIONS)
        model_id = as_model_id(name)
        caller = self._authoriser.check(request.credentials, Action.INFERENCE, model_id)
        config = self._registry.get(model_id, caller.may_use).config
        check_version(model_id, version)
        check_media_type(request, may_be_binary=True)
        body = await self._bodies.read(request, receive)
        arrived_at = time.monotonic()
        json_bytes = _json_bytes(request, sum(map(len, body)))
        text = _beginning(body, json_bytes)
        asked_s = IN_V2.asked_for(request, text)
        connection = connection_of(scope)
        inference = InferenceRequest(
            model_id,
            Codec.OIP_REST,
            (mark(json_bytes), *body),
            arrived_at,
            arrived_at + (asked_s or config.request_timeout_secs),
            priority=priority_in(text),
            fail_fast=fails_fast("header X-Snooze-Cold", request.cold),
        )
        result = await self._serving.infer(inference, connection)
        json_bytes, content = unmarked(result.body)
        headers = _content_headers(json_bytes) + result_headers(result, request.id)
        encoding = encoding_for(request.accept_encoding, len(content))
        if encoding is not None:
            smaller = await asyncio.to_thread(compressed, content, encoding)
            if smaller is not None:
                content = memoryview(smaller)
                headers.append((b"content-encoding", encoding))
        await send_at_once(connection, send, content, headers)


def _json_bytes(request: Request, body_bytes: int) -> int | None:
    """How much of the body is JSON; None: all of it.

    Raises:
        InvalidInput: the header that says so cannot be true.
    """
    given = request.json_bytes
    if given is None:
        return None
    if given.isdigit() and len(given) <= _LONGEST_NUMBER and int(given) <= body_bytes:
        return int(given)
    raise InvalidInput(
        "header Inference-Header-Content-Length must be the number of bytes of JSON at the"
        f" beginning of the body, which has {body_bytes}, not {given.decode('latin-1')!r:.60}"
    )


def _beginning(body: Sequence[bytes], size_bytes: int | None) -> Sequence[bytes]:
    """The first so many bytes of a body; None: all of them."""
    if size_bytes is None:
        return body
    beginning: list[bytes] = []
    for piece in body:
        beginning.append(piece[:size_bytes])
        size_bytes -= len(beginning[-1])
        if not size_bytes:
            break
    return beginning


def _content_headers(json_bytes: int | None) -> Headers:
    if json_bytes is None:
        return [JSON]
    return [(b"content-type", BINARY), (_JSON_BYTES, b"%d" % json_bytes)]
