"""`POST /v1/models/{id}/infer`, as short as it can be."""

import time
from typing import Final

from starlette.types import Receive, Scope, Send

from snoozeml.core.names import as_model_id
from snoozeml.core.request import Codec, InferenceRequest
from snoozeml.fronts.http.answers import connection_of, result_headers, send_at_once
from snoozeml.fronts.http.body import BodyReader
from snoozeml.fronts.http.replies import JSON
from snoozeml.fronts.http.request import Request, check_media_type
from snoozeml.fronts.http.time_limits import IN_V1
from snoozeml.fronts.manners import fails_fast
from snoozeml.lifecycle.registry import Registry
from snoozeml.serving.auth import Action, Authoriser
from snoozeml.serving.inference import Serving

_MODELS: Final = "/v1/models/"
_INFER: Final = "/infer"


class V1Infer:
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
        model_id = as_model_id(scope["path"][len(_MODELS) : -len(_INFER)])
        caller = self._authoriser.check(request.credentials, Action.INFERENCE, model_id)
        config = self._registry.get(model_id, caller.may_use).config
        check_media_type(request)
        body = await self._bodies.read(request, receive)
        arrived_at = time.monotonic()
        timeout_s = IN_V1.asked_for(request, body) or config.request_timeout_secs
        connection = connection_of(scope)
        inference = InferenceRequest(
            model_id,
            Codec.JSON_V1,
            body,
            arrived_at,
            arrived_at + timeout_s,
            fail_fast=fails_fast("header X-Snooze-Cold", request.cold),
        )
        result = await self._serving.infer(inference, connection)
        headers = [JSON, *result_headers(result, request.id)]
        await send_at_once(connection, send, result.body, headers)
