"""`/v1/models`: the one model there is."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from outrider.server.auth import Gate
from outrider.server.errors import ApiError
from outrider.server.schema import responses
from outrider.server.service import Service


def model_routes(service: Service, gate: Gate) -> APIRouter:
    """Return the routes that tell of models; both wait until the model is loaded."""
    router = APIRouter()

    @router.get("/v1/models", responses=responses(401, 500, 503))
    async def models(request: Request) -> dict[str, Any]:
        gate.enter(request)
        return {"object": "list", "data": [_model(service)]}

    @router.get("/v1/models/{name:path}", responses=responses(401, 404, 500, 503))
    async def model(request: Request, name: str) -> dict[str, Any]:
        gate.enter(request)
        if name != service.settings.model:
            raise ApiError(
                404, f"there is no model {name!r} here", param="model", code="model_not_found"
            )
        return _model(service)

    return router


def _model(service: Service) -> dict[str, Any]:
    service.require_ready()
    preparer = service.preparer
    return {
        "id": service.settings.model,
        "object": "model",
        "created": service.created,
        "owned_by": "outrider",
        "outrider": preparer.description,
    }
