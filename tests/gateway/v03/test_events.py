"""The events of a stream: which one says that it is the last, and how often one is translated."""

from __future__ import annotations

import pytest

from switchroom.gateway.dispatch import StreamItem
from switchroom.gateway.v03 import wire as module
from switchroom.gateway.v03.wire import JsonRpcWire, RestWire
from switchroom.protocol.event import decode, encode
from switchroom.protocol.methods import METHODS, Method
from switchroom.protocol.model import Json, TaskState

STREAM, SUBSCRIBE = METHODS["SendStreamingMessage"], METHODS["SubscribeToTask"]
TERMINAL = {"COMPLETED", "FAILED", "CANCELED", "REJECTED"}
Wire = JsonRpcWire | RestWire


def status(state: str) -> StreamItem:
    update = {"taskId": "t", "contextId": "c", "status": {"state": f"TASK_STATE_{state}"}}
    return StreamItem(encode({"statusUpdate": update}), "7.abc")


def chunk(text: str) -> StreamItem:
    artifact = {"artifactId": "a", "parts": [{"text": text}]}
    update = {"taskId": "t", "contextId": "c", "artifact": artifact}
    return StreamItem(encode({"artifactUpdate": update}), "8.abc")


def task(text: str) -> StreamItem:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}
    whole = {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}
    return StreamItem(encode({"task": {**whole, "history": [message]}}), "8.abc")


@pytest.fixture
def translated(monkeypatch: pytest.MonkeyPatch) -> list[Json]:
    """The events that were translated, in order."""
    seen: list[Json] = []
    translate = module._Wire._event

    def watched(wire: module._Wire, method: Method, event: Json) -> Json:
        seen.append(event)
        return translate(wire, method, event)

    monkeypatch.setattr(module._Wire, "_event", watched)
    return seen


@pytest.mark.parametrize(
    "state", [state.name for state in TaskState if state.name != "UNSPECIFIED"]
)
def test_final_says_that_the_stream_ends_here(state: str) -> None:
    """A message's stream ends where the agent asks; who follows the task is told what comes."""
    for wire in (JsonRpcWire(), RestWire()):
        for method, last in (
            (STREAM, {*TERMINAL, "INPUT_REQUIRED"}),
            (SUBSCRIBE, TERMINAL),
            (STREAM, {*TERMINAL, "INPUT_REQUIRED"}),
        ):
            said = decode(wire.event(method, status(state)).data)
            update = said.get("statusUpdate", said)
            assert update["final"] is (state in last)


def test_an_item_keeps_its_position_and_an_empty_one_stays_empty() -> None:
    wire = JsonRpcWire()
    assert wire.event(STREAM, chunk("x")).id == "8.abc"
    assert wire.event(STREAM, StreamItem(b"", "9.abc")) == StreamItem(b"", "9.abc")


@pytest.mark.parametrize("wire", [JsonRpcWire(), RestWire()])
def test_an_event_is_translated_once_however_many_read_it(
    wire: Wire, translated: list[Json]
) -> None:
    events = [chunk("a"), status("WORKING"), chunk("b"), status("COMPLETED")]
    said = [wire.event(STREAM, event) for event in events]
    for _ in range(3):
        assert [wire.event(SUBSCRIBE, event) for event in events] == said
    assert len(translated) == 4


def test_what_is_of_one_client_only_is_not_kept(translated: list[Json]) -> None:
    """A Task may stand at the position of an event, and holds as much history as was asked for."""
    wire = JsonRpcWire()
    first = wire.event(STREAM, chunk("a"))
    for text in ("short", "long"):
        history = decode(wire.event(STREAM, task(text)).data)["history"]
        assert history[0]["parts"] == [{"kind": "text", "text": text}]
    wire.event(STREAM, task("long"))
    assert len(translated) == 4
    assert wire.event(STREAM, chunk("a")) == first


def test_what_is_kept_is_bounded_and_the_oldest_goes(translated: list[Json]) -> None:
    wire = JsonRpcWire()
    large = [chunk(f"{number}" * 500_000) for number in range(9)]
    for event in large:
        wire.event(STREAM, event)
    wire.event(STREAM, large[8])
    assert len(translated) == 9
    wire.event(STREAM, large[0])
    assert len(translated) == 10
