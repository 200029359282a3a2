"""The route that takes models."""

from typing import cast

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from snoozeml.errors import Cancelled, UnsupportedMediaType
from snoozeml.fronts.http.connection import STATE_KEY, Connection
from snoozeml.fronts.http.guard import Guard
from snoozeml.fronts.http.request import SCOPE_KEY
from snoozeml.fronts.http.request import Request as Head
from snoozeml.fronts.http.upload_form import MOST_FRAMING_BYTES, Form, read_form
from snoozeml.serving.auth import Action
from snoozeml.serving.uploads.drafts import Draft
from snoozeml.serving.uploads.uploads import Uploads


class UploadRoutes:
    """`/v1/models/upload`."""

    def __init__(self, guard: Guard, uploads: Uploads) -> None:
        self._guard = guard
        self._uploads = uploads

    def routes(self, infer: ASGIApp) -> list[Route]:
        return [self._guard.post("/v1/models/upload", Action.ADMIN, self._upload)]

    async def _upload(self, request: Request) -> Response:
        self._check_head(request)
        async with self._uploads.draft() as draft:
            form = await self._receive(request, draft)
            model = await self._uploads.register(draft, form.file_name, form.fields)
        return Response(msgspec.json.encode(model), media_type="application/json")

    def _check_head(self, request: Request) -> None:
        """Refuse what will certainly be refused before any of it has come."""
        announced_bytes = int(request.headers.get("content-length", 0))
        self._uploads.check_size(max(0, announced_bytes - MOST_FRAMING_BYTES))
        if request.headers.get("content-encoding", "identity").lower() != "identity":
            raise UnsupportedMediaType("send the form without content-encoding")

    async def _receive(self, request: Request, draft: Draft) -> Form:
        cast(Connection, request.scope["state"][STATE_KEY]).pass_body_on()
        kind, most_bytes = request.headers.get("content-type", ""), self._uploads.most_bytes
        try:
            form = await read_form(kind, request.stream(), draft.body, most_bytes)
        except ClientDisconnect:
            raise Cancelled("the client left before its upload was complete") from None
        cast(Head, request.scope[SCOPE_KEY]).is_read = True
        return form
