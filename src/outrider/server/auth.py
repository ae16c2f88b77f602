"""Who may send requests: those who bear one of the server's keys, or all if it has none."""

from __future__ import annotations

import hmac

from fastapi import Request

from outrider.server.errors import ApiError
from outrider.server.settings import ServerSettings


class Gate:
    """Lets requests in, and tells from whom they are."""

    def __init__(self, settings: ServerSettings) -> None:
        self._keys = [key.encode() for key in settings.api_keys]

    def enter(self, request: Request) -> str:
        """Return a word for the sender: which key it bears, or else its address.

        Raises ApiError with status 401.
        """
        if not self._keys:
            return request.client.host if request.client else ""
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        given = key.strip().encode() if scheme.lower() == "bearer" else b""
        # All are compared, each in a time that does not depend on how much of it is right.
        matches = [hmac.compare_digest(given, known) for known in self._keys]
        if not any(matches):
            what = "is not one of this server's" if given else "is missing"
            raise ApiError(
                401,
                f"the API key {what}; send it as 'Authorization: Bearer KEY'",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )
        return f"key {matches.index(True)}"
