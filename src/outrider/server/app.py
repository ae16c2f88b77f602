"""The application: routes and what stands around them, over a service."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse

from outrider import __version__
from outrider.server.auth import Gate
from outrider.server.errors import ApiError, api_error
from outrider.server.metrics import Metrics
from outrider.server.observe import Observe
from outrider.server.record import record_of
from outrider.server.routes.generation import generation_routes
from outrider.server.routes.models import model_routes
from outrider.server.routes.page import page_routes
from outrider.server.routes.status import status_routes
from outrider.server.schema import documented
from outrider.server.service import Service


def create_app(service: Service) -> Observe:
    """Return the ASGI application that serves a service, and starts it with itself."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        service.start()
        yield

    metrics = Metrics(lambda: service.snapshot, lambda: service.lossy)
    gate = Gate(service.settings)
    # Pages for the documentation would come from elsewhere: there is the description alone.
    app = FastAPI(
        title="outrider",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    app.openapi = lambda: documented(app, service.settings.model)  # type: ignore[method-assign]
    for router in (
        generation_routes(service, gate),
        model_routes(service, gate),
        status_routes(service, metrics),
        page_routes(),
    ):
        app.include_router(router)
    app.add_exception_handler(ApiError, _refuse)
    app.add_exception_handler(HTTPException, _refuse_http)
    app.add_exception_handler(Exception, _refuse)
    if service.settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=service.settings.cors_origins,
            allow_methods=("GET", "POST"),
            allow_headers=("*",),
            expose_headers=("x-request-id", "retry-after"),
        )
    return Observe(app, metrics)


async def _refuse(request: Request, error: Exception) -> JSONResponse:
    found = api_error(error)
    record_of(request.scope).error = found.message
    return JSONResponse(found.to_dict(), found.status, headers=found.headers)


async def _refuse_http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    path, method = request.url.path, request.method
    message = {404: f"there is no {path} here", 405: f"{path} does not take {method}"}
    found = ApiError(error.status_code, message.get(error.status_code, str(error.detail)))
    return JSONResponse(found.to_dict(), found.status, headers=error.headers)
