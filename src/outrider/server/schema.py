"""What `/openapi.json` says of bodies and errors."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from outrider.server.bodies import Chat, Completion, Generation
from outrider.server.refusals import CHAT, COMPLETION, MESSAGE, Refusals

_REFERENCE = "#/components/schemas/{model}"
_MEANINGS = {
    400: "A field is unknown, not supported, or has a value out of its range.",
    401: "The API key is missing or wrong.",
    404: "There is no such model.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    429: "The queue is full; Retry-After tells when to come again.",
    500: "The server has a fault.",
    503: "The server is starting or shutting down.",
}


def _error_schema() -> dict[str, Any]:
    text: dict[str, Any] = {"type": "string"}
    optional: dict[str, Any] = {"type": ["string", "null"]}
    fields = {"message": text, "type": text, "param": optional, "code": optional}
    error = {"type": "object", "required": list(fields), "properties": fields}
    return {"type": "object", "required": ["error"], "properties": {"error": error}}


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return what is documented of answers with these statuses."""
    content = {"application/json": {"schema": {"$ref": _REFERENCE.format(model="Error")}}}
    return {status: {"description": _MEANINGS[status], "content": content} for status in statuses}


def body_of(kind: type[Generation]) -> dict[str, Any]:
    """Return what is documented of a request with such a body."""
    schema = {"$ref": _REFERENCE.format(model=kind.__name__)}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def documented(app: FastAPI, model: str) -> dict[str, Any]:
    """Return the description of the interface of an application with one model, made once."""
    if app.openapi_schema is None:
        found = get_openapi(title=app.title, version=app.version, routes=app.routes)
        schemas = found.setdefault("components", {}).setdefault("schemas", {})
        schemas |= _bodies(model) | {"Error": _error_schema()}
        _forget_validation(found)
        app.openapi_schema = found
    return app.openapi_schema


def _forget_validation(found: dict[str, Any]) -> None:
    """Leave out the status of FastAPI's own validation: what is wrong is answered with 400 here."""
    for methods in found["paths"].values():
        for operation in methods.values():
            operation["responses"].pop("422", None)
    for name in ("HTTPValidationError", "ValidationError"):
        found["components"]["schemas"].pop(name, None)


def _bodies(model: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for kind, refusals in ((Completion, COMPLETION), (Chat, CHAT)):
        schema = kind.model_json_schema(ref_template=_REFERENCE)
        found |= schema.pop("$defs")
        found[kind.__name__] = _narrowed(schema, refusals)
        schema["properties"]["model"]["enum"] = [model]
    found["Message"] = _narrowed(found["Message"], MESSAGE)
    return found


def _narrowed(schema: dict[str, Any], refusals: Refusals) -> dict[str, Any]:
    """Leave the fields that are refused with the values they may have."""
    for name, neutral in refusals.items():
        schema["properties"][name] = {"enum": [None, *neutral], "default": None}
    return schema
