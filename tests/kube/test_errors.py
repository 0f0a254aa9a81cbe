"""Error responses to exceptions."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from hekla.kube import errors
from hekla.kube.errors import error_from_status


def status(code: int, reason: str = "", **more: Any) -> bytes:
    body = {"kind": "Status", "code": code, "reason": reason, "message": "because", **more}
    return json.dumps(body).encode()


WANT_CLASSES = {
    (400, "BadRequest"): errors.BadRequest,
    (401, "Unauthorized"): errors.Unauthorized,
    (403, "Forbidden"): errors.Forbidden,
    (404, "NotFound"): errors.NotFound,
    (405, "MethodNotAllowed"): errors.MethodNotAllowed,
    (409, "Conflict"): errors.Conflict,
    (409, "AlreadyExists"): errors.AlreadyExists,
    (410, "Expired"): errors.Gone,
    (413, "RequestEntityTooLarge"): errors.TooLarge,
    (422, "Invalid"): errors.Invalid,
    (429, "TooManyRequests"): errors.TooManyRequests,
    (500, "InternalError"): errors.ServerError,
    (504, "Timeout"): errors.ServerError,
    (418, ""): errors.ApiError,
}


@pytest.mark.parametrize(("code", "reason"), WANT_CLASSES)
def test_each_status_has_its_error_class(code: int, reason: str) -> None:
    error = error_from_status(status(code, reason), http_status=code, what="GET /x")
    assert type(error) is WANT_CLASSES[code, reason]
    assert (error.status, error.reason, error.message) == (code, reason, "because")


def test_status_inside_a_stream_has_its_own_code() -> None:
    assert isinstance(error_from_status(status(410, "Expired"), what="watch"), errors.Gone)
    assert isinstance(error_from_status(status(0, "Expired"), what="watch"), errors.Gone)


def test_message_has_reason_and_status_code() -> None:
    error = error_from_status(status(404, "NotFound"), http_status=404, what="GET /x")
    assert str(error) == "because (404 NotFound)"


def test_field_errors_are_listed() -> None:
    causes = [{"field": "spec.x", "message": "must be positive"}, {"message": "no"}, "odd"]
    error = error_from_status(
        status(422, "Invalid", details={"causes": causes}), http_status=422, what="POST /x"
    )
    assert error.causes == ["spec.x: must be positive", "no"]


def test_retry_after_comes_from_the_header_or_the_body() -> None:
    def wait(body: bytes, header: str | None) -> float | None:
        return error_from_status(body, http_status=429, retry_after=header, what="x").retry_after_s

    assert wait(status(429), "5") == 5
    assert wait(status(429, details={"retryAfterSeconds": 3}), None) == 3
    assert wait(status(429, details={"retryAfterSeconds": 0}), None) is None
    assert wait(status(429), "Wed, 21 Oct 2026 07:28:00 GMT") is None
    assert wait(status(429), "nan") is None
    assert wait(status(429), "-1") is None


def test_html_page_of_a_proxy_is_truncated_and_made_printable() -> None:
    page = b"<html>\x00\x1b[31m" + b"secret " * 10_000
    error = error_from_status(page, http_status=502, what="GET /x")
    assert isinstance(error, errors.ServerError)
    assert len(str(error)) < 400
    assert str(error).isprintable()
    assert "GET /x" in str(error)


def test_empty_error_response_names_the_request() -> None:
    error = error_from_status(b"", http_status=403, what="GET /x")
    assert "GET /x: the server gave no reason" in str(error)


def test_json_that_is_not_a_status_is_quoted() -> None:
    error = error_from_status(b'{"code": 404, "kind": "Pod"}', http_status=500, what="GET /x")
    assert error.status == 500
    assert "not a Kubernetes Status" in str(error)


def test_a_message_is_bounded() -> None:
    error = error_from_status(status(500, message="x" * 100_000), http_status=500, what="GET /x")
    assert len(error.message) == errors.MAX_MESSAGE_CHARS


def test_errors_survive_pickling() -> None:
    error = error_from_status(
        status(409, "AlreadyExists", details={"name": "a"}), http_status=409, what="POST /x"
    )
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is errors.AlreadyExists
    assert (again.details, str(again)) == ({"name": "a"}, str(error))


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    shown = {line.split("──")[1].split()[0] for line in errors.__doc__.splitlines() if "──" in line}
    real = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.KubeError)
    }
    assert real - {"KubeError"} == shown
