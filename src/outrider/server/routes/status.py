"""`/health`, `/ready` and `/metrics`."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import JSONResponse, Response

from outrider.server.metrics import CONTENT_TYPE, Metrics
from outrider.server.service import Service


def status_routes(service: Service, metrics: Metrics) -> APIRouter:
    """Return the routes for those who watch the server; none needs a key, none tells of prompts."""
    router = APIRouter()

    @router.get("/health", responses={503: {"description": "The engine has failed."}})
    async def health() -> JSONResponse:
        """Tell whether the engine works, or may yet."""
        return _status(service.state, is_good=service.state != "failed")

    @router.get("/ready", responses={503: {"description": "No requests are taken."}})
    async def ready() -> JSONResponse:
        """Tell whether requests are taken."""
        return _status(service.state, is_good=service.state == "ready")

    @router.get("/metrics", response_class=Response)
    async def show_metrics() -> Response:
        """Show counters, as Prometheus reads them."""
        return Response(metrics.text(), headers={"content-type": CONTENT_TYPE})

    return router


def _status(state: str, *, is_good: bool) -> JSONResponse:
    return JSONResponse({"status": state}, status_code=200 if is_good else 503)
