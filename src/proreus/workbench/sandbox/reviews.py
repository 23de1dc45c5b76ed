"""Authentication, TokenReview and SubjectAccessReview.

There are tokens but no roles: the holder of one of the sandbox's tokens may do everything, any
other client nothing.
"""

from typing import Any

from proreus.workbench.sandbox.resources import ServedResource

JsonObject = dict[str, Any]

ADMINISTRATORS = "system:masters"


class Users:
    """User names by bearer token. All users are administrators."""

    def __init__(self, tokens: dict[str, str]) -> None:
        self._names = tokens

    def name_of(self, authorization: str) -> str | None:
        """Return the user that an ``Authorization`` header identifies, or None."""
        kind, _, token = authorization.partition(" ")
        return self._names.get(token.strip()) if kind.lower() == "bearer" else None

    def review(self, served: ServedResource, review: JsonObject) -> JsonObject:
        """Return a TokenReview or (Self)SubjectAccessReview with its status filled in."""
        spec = review.get("spec") or {}
        if served.kind == "TokenReview":
            return review | {"status": self._review_token(str(spec.get("token", "")))}
        if served.kind == "SelfSubjectAccessReview":
            allowed = True
        else:
            known = spec.get("user") in self._names.values()
            allowed = known or ADMINISTRATORS in (spec.get("groups") or ())
        reason = "" if allowed else "the sandbox knows no such user"
        return review | {"status": {"allowed": allowed, "reason": reason}}

    def _review_token(self, token: str) -> JsonObject:
        name = self._names.get(token)
        if name is None:
            return {"authenticated": False, "error": "the sandbox has not issued this token"}
        groups = [ADMINISTRATORS, "system:authenticated"]
        return {"authenticated": True, "user": {"username": name, "uid": name, "groups": groups}}
