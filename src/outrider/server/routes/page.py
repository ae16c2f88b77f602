"""`/`: a page on which to watch a text being written; its parts come with the package."""

from __future__ import annotations

from importlib.resources import files

from fastapi import APIRouter
from starlette.responses import Response

_PARTS = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/favicon.svg": ("favicon.svg", "image/svg+xml"),
}
_HEADERS = {
    "cache-control": "no-cache",
    # Nothing of the page comes from elsewhere, and no other page may put it in a frame.
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
}


def page_routes() -> APIRouter:
    """Return a route for each part of the page."""
    router = APIRouter(include_in_schema=False)
    for path, (name, kind) in _PARTS.items():
        _add(router, path, name, kind)
    return router


def _add(router: APIRouter, path: str, name: str, kind: str) -> None:
    body = files("outrider.server").joinpath("page", name).read_bytes()

    async def part() -> Response:
        return Response(body, headers={"content-type": kind, **_HEADERS})

    router.add_api_route(path, part, methods=["GET"], name=name)
