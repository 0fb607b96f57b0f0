"""The events of a stream: which one says that it is the last, and how often one is translated."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from switchroom.gateway.dispatch import StreamItem
from switchroom.gateway.v03.jsonrpc import JsonRpcWire
from switchroom.gateway.v03.rest import RestWire
from switchroom.gateway.v03.wire import V03Wire
from switchroom.protocol.event import decode, encode
from switchroom.protocol.methods import METHODS, Method
from switchroom.protocol.model import Json, TaskState

STREAM, SUBSCRIBE = METHODS["SendStreamingMessage"], METHODS["SubscribeToTask"]
TERMINAL = {"COMPLETED", "FAILED", "CANCELED", "REJECTED"}


def say(wire: V03Wire, method: Method, item: StreamItem) -> bytes:
    """What a stream that begins here says of an event."""
    return wire.events(method).say(item)


def status(state: str) -> StreamItem:
    update = {"taskId": "t", "contextId": "c", "status": {"state": f"TASK_STATE_{state}"}}
    return StreamItem(encode({"statusUpdate": update}), "7.abc")


def chunk(text: str, **more: bool) -> StreamItem:
    artifact = {"artifactId": "a", "parts": [{"text": text}]}
    update = {"taskId": "t", "contextId": "c", "artifact": artifact, **more}
    return StreamItem(encode({"artifactUpdate": update}), "8.abc")


def task(text: str, state: str = "WORKING") -> StreamItem:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}
    whole = {"id": "t", "contextId": "c", "status": {"state": f"TASK_STATE_{state}"}}
    return StreamItem(encode({"task": {**whole, "history": [message]}}), "8.abc")


@pytest.fixture
def translated(monkeypatch: pytest.MonkeyPatch) -> list[Json]:
    """The events that were translated, in order."""
    seen: list[Json] = []
    translate = V03Wire._said

    def watched(wire: V03Wire, method: Method, data: bytes) -> bytes:
        seen.append(decode(data))
        return translate(wire, method, data)

    monkeypatch.setattr(V03Wire, "_said", watched)
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
            said = decode(say(wire, method, status(state)))
            update = said.get("statusUpdate", said)
            assert update["final"] is (state in last)


@pytest.mark.parametrize("wire", [JsonRpcWire(), RestWire()])
@pytest.mark.parametrize(
    ("method", "state", "closes"),
    [
        (STREAM, "COMPLETED", True),
        (STREAM, "INPUT_REQUIRED", True),
        (SUBSCRIBE, "INPUT_REQUIRED", False),
        (STREAM, "WORKING", False),
    ],
)
def test_a_stream_that_ends_with_a_task_says_its_status_once_more(
    wire: V03Wire, method: Method, state: str, closes: bool
) -> None:
    for before in ([], [chunk("a")]):
        events = wire.events(method)
        assert events.last() is None
        for item in before:
            events.say(item)
        events.say(task("hi", state))
        last = events.last()
        assert (last is not None) is closes
        if last is not None:
            said = decode(events.say(last))
            assert said.get("statusUpdate", said)["final"] is True
            assert last.id == "8.abc"
            assert events.last() is None
    for known in (False, True):  # whether another stream has had the event before
        events = wire.events(method)
        events.say(task("hi", state))
        events.say(chunk("after"))
        assert events.last() is None, f"it did not end with the Task ({known=})"


@pytest.mark.parametrize("make", [JsonRpcWire, RestWire])
def test_an_event_is_translated_once_however_many_read_it(
    make: type[JsonRpcWire | RestWire], translated: list[Json]
) -> None:
    wire = make()
    events = [chunk("a"), status("WORKING"), chunk("b"), status("COMPLETED")]
    said = [say(wire, STREAM, event) for event in events]
    for _ in range(3):
        assert [say(wire, SUBSCRIBE, event) for event in events] == said
    assert len(translated) == 4


def test_what_is_of_one_client_only_is_not_kept(translated: list[Json]) -> None:
    """A Task may stand at the position of an event, and holds as much history as was asked for."""
    wire = JsonRpcWire()
    first = say(wire, STREAM, chunk("a"))
    for text in ("short", "long"):
        history = decode(say(wire, STREAM, task(text)))["history"]
        assert history[0]["parts"] == [{"kind": "text", "text": text}]
    say(wire, STREAM, task("long"))
    assert len(translated) == 4
    assert say(wire, STREAM, chunk("a")) == first


def test_what_is_kept_is_bounded_and_the_oldest_goes(translated: list[Json]) -> None:
    wire = JsonRpcWire()
    large = [chunk(f"{number}" * 500_000) for number in range(9)]
    for event in large:
        say(wire, STREAM, event)
    say(wire, STREAM, large[8])
    assert len(translated) == 9
    say(wire, STREAM, large[0])
    assert len(translated) == 10


TEXTS = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from('"\\{}[],:'), max_size=30
) | st.sampled_from(['"}]}}}', '"parts":[{"text":"', "\\", '\\"}]},"append":true}}'])
FREE = st.dictionaries(
    TEXTS | st.sampled_from(["parts", "append"]), TEXTS | st.just([{"text": "x"}])
)
UPDATES = st.fixed_dictionaries(
    {
        "taskId": st.just("t"),
        "contextId": TEXTS,
        "artifact": st.fixed_dictionaries(
            {"artifactId": TEXTS},
            optional={
                "name": TEXTS,
                "metadata": FREE,
                "parts": st.lists(
                    st.fixed_dictionaries({"data": FREE})
                    | st.fixed_dictionaries(
                        {"text": TEXTS}, optional={"mediaType": TEXTS, "metadata": FREE}
                    ),
                    min_size=1,
                    max_size=2,
                ),
            },
        ),
    },
    optional={"append": st.booleans(), "lastChunk": st.just(True), "metadata": FREE},
)


TEXT, DATA = (
    {"artifactId": "a", "parts": [{"text": "x"}]},
    {"artifactId": "a", "parts": [{"data": {}}]},
)


@example(  # ends as a chunk does, but the text is not the artifact's
    update={"taskId": "t", "artifact": DATA, "metadata": {"parts": [{"text": "x"}]}},
    order=Random(1),
)
@example(update={"taskId": "t", "append": True, "artifact": TEXT}, order=Random(1))
@given(update=UPDATES, order=st.randoms(use_true_random=False))
def test_a_chunk_is_said_as_any_other_event_is(update: Json, order: Random) -> None:
    """Also where members stand in another order than ours."""
    update["artifact"].setdefault("parts", [{"text": "only"}])
    shuffled = [update, dict(order.sample(sorted(update.items()), len(update)))]
    for each in shuffled:
        data = encode({"artifactUpdate": each})
        for wire in (JsonRpcWire(), RestWire()):
            said = say(wire, STREAM, StreamItem(data))
            assert decode(said) == wire._event(STREAM, decode(data))
            assert said.count(b'"append":') == encode(decode(said)).count(b'"append":'), "twice"


@pytest.mark.parametrize("make", [JsonRpcWire, RestWire])
def test_a_chunk_of_text_is_not_taken_apart(
    make: type[JsonRpcWire | RestWire], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(V03Wire, "_event")
    for update in ({}, {"append": True}, {"lastChunk": True}, {"append": True, "lastChunk": True}):
        item = chunk("some \u2028 words", **update)
        said = decode(say(make(), STREAM, item))
        assert said.get("artifactUpdate", said)["artifact"]["parts"][0]["text"].endswith("words")
