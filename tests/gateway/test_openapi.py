"""The OpenAPI document is true: what it allows is understood, and answers are as it says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from switchroom.gateway.openapi import document
from switchroom.protocol.errors import ERRORS
from switchroom.protocol.methods import METHODS
from tests.conftest import SOAK
from tests.support.answering import Answering, answering
from tests.support.gateways import app_of, client_of

DOCUMENT = document("1.0.1")
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
OPERATIONS = [
    pytest.param(path, verb.upper(), id=operation["operationId"])
    for path, verbs in DOCUMENT["paths"].items()
    for verb, operation in verbs.items()
]
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


@pytest.fixture(scope="module")
def gateway() -> Iterator[Answering]:
    with answering() as gateway:
        yield gateway


def answered(gateway: Answering, case: schemathesis.Case) -> schemathesis.Response:
    """The answer to a generated request."""
    told = requests.Request(**case.as_transport_kwargs(base_url="http://gateway.test")).prepare()
    body = told.body.encode() if isinstance(told.body, str) else told.body or b""
    assert told.method
    answer = gateway.ask(told.method, told.path_url, body, dict(told.headers))
    headers = {name: [value] for name, value in answer.headers.items()}
    return schemathesis.Response(
        answer.status, headers, answer.body, request=told, elapsed=0, verify=False
    )


@pytest.mark.parametrize(("path", "verb"), OPERATIONS)
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_answers_are_as_described(
    gateway: Answering, path: str, verb: str, mode: GenerationMode
) -> None:
    """By what is allowed and by what is not; with ids of tasks, and with others."""
    operation = SCHEMA[path][verb]
    cases = operation.as_strategy(generation_mode=mode)
    known = st.sampled_from([None, gateway.done, gateway.open])

    @settings(
        max_examples=500 if SOAK else 20,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases, known=known)
    def run(case: schemathesis.Case, known: str | None) -> None:
        for name in ("id", "taskId"):
            if known and name in (case.path_parameters or {}):
                case.path_parameters[name] = known
        response = answered(gateway, case)
        case.validate_response(response, checks=CHECKS)
        if mode is GenerationMode.POSITIVE and response.status_code == 400:
            assert understood(json.loads(response.content)["error"]), response.content

    run()


def understood(error: Any) -> bool:
    """Whether the fault is one that no schema can tell of."""
    info, *more = error["details"]
    if info["reason"] != "INVALID_PARAMS":
        return info["reason"] != "INVALID_REQUEST"
    wrong = [violation["field"] for detail in more for violation in detail["fieldViolations"]]
    # Where a webhook may lead, and what a header can hold; a token from an earlier page.
    unsaid = ("url", "token", "authentication.scheme", "authentication.credentials", "pageToken")
    return all(field.endswith(unsaid) for field in wrong)


# -- its form


def test_it_has_every_operation_with_and_without_tenant() -> None:
    assert {path.values[0].removeprefix("/{tenant}") for path in OPERATIONS} == {
        path for row in METHODS.values() for _, path in row.rest
    }
    idents = [operation.id for operation in OPERATIONS]
    assert len(set(idents)) == len(idents) == 2 * sum(len(row.rest) for row in METHODS.values())


def test_every_reference_leads_somewhere() -> None:
    text = json.dumps(DOCUMENT)
    assert "$defs" not in text
    for reference in {part.split('"')[0] for part in text.split('"$ref": "')[1:]}:
        found: Any = DOCUMENT
        for step in reference.removeprefix("#/").split("/"):
            found = found[step]
        assert found


def test_statuses_are_those_of_the_error_table() -> None:
    for table in ("1.0.1", "1.0.0"):
        described = document(table)["components"]["responses"]  # type: ignore[arg-type]
        assert set(described) == {str(error().statuses(table)[0]) for error in ERRORS}  # type: ignore[arg-type]
    assert "`TASK_NOT_CANCELABLE`" in described["409"]["description"]


async def test_it_is_served(gateway: Answering) -> None:
    class Nobody:
        async def dispatch(self, method: str, params: Any, context: Any) -> Any:
            raise AssertionError

    async with client_of(app_of(Nobody())) as client:
        response = await client.get("/openapi.json")
        assert json.loads(response.content) == DOCUMENT
        assert response.headers["content-type"] == "application/json"
        assert (await client.post("/openapi.json")).status_code == 405
