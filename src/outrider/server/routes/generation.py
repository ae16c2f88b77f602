"""`/v1/completions` and `/v1/chat/completions`."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from outrider.server.answering import Answering
from outrider.server.auth import Gate
from outrider.server.bodies import Chat, Completion
from outrider.server.objects import ChatObjects, CompletionObjects
from outrider.server.schema import body_of, responses
from outrider.server.service import Service


def generation_routes(service: Service, gate: Gate) -> APIRouter:
    """Return the routes that answer with text."""
    router = APIRouter()
    _add(router, "/v1/completions", Answering(service, Completion, CompletionObjects), gate)
    _add(router, "/v1/chat/completions", Answering(service, Chat, ChatObjects), gate)
    return router


def _add(router: APIRouter, path: str, answering: Answering, gate: Gate) -> None:
    async def answer(request: Request) -> Response:
        return await answering.answer(request, gate.enter(request))

    router.add_api_route(
        path,
        answer,
        methods=["POST"],
        name=path,
        response_class=Response,
        responses=responses(400, 401, 404, 408, 413, 415, 429, 500, 503),
        openapi_extra=body_of(answering.body_kind),
    )
