"""How events make a task: a task is the fold of its events, and nothing else."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchroom.protocol.errors import InvalidAgentResponse
from switchroom.protocol.lifecycle import fold, receive, submitted, with_history
from switchroom.protocol.model import Json, Task

AT = 1_767_323_045_678
TIME = "2026-01-02T03:04:05.678Z"


def message(ident: str, **more: Any) -> Json:
    return {"messageId": ident, "role": "ROLE_USER", "parts": [{"text": ident}], **more}


def new_task(**more: Any) -> Json:
    return submitted(task_id="t", context_id="c", message=message("m1"), at=AT, **more)


def status(state: str, say: Json | None = None, **more: Any) -> Json:
    inner: Json = {"state": f"TASK_STATE_{state}", "timestamp": TIME}
    if say is not None:
        inner["message"] = say
    return {"statusUpdate": {"taskId": "t", "contextId": "c", "status": inner, **more}}


def chunk(ident: str, *texts: str, append: bool | None = None, **more: Any) -> Json:
    artifact = {"artifactId": ident, "parts": [{"text": t} for t in texts]}
    artifact |= {k: more.pop(k) for k in ("name", "metadata") if k in more}
    event = {"taskId": "t", "contextId": "c", "artifact": artifact, **more}
    if append is not None:
        event["append"] = append
    return {"artifactUpdate": event}


def texts(task: Json) -> dict[str, list[str]]:
    return {a["artifactId"]: [p["text"] for p in a["parts"]] for a in task.get("artifacts", [])}


def ids(messages: list[Json]) -> list[str]:
    return [m["messageId"] for m in messages]


class TestSubmitted:
    def test_a_new_task_holds_its_message_with_the_ids_resolved_for_it(self) -> None:
        given_message = message("m1", metadata={"n": 2**70})
        task = submitted(task_id="t", context_id="c", message=given_message, at=AT)
        assert task == {
            "id": "t",
            "contextId": "c",
            "status": {"state": "TASK_STATE_SUBMITTED", "timestamp": TIME},
            "history": [{**given_message, "taskId": "t", "contextId": "c"}],
        }
        assert "taskId" not in given_message
        assert type(task["status"]["state"]) is str
        assert Task.model_validate(task).to_dict() == task

    def test_metadata_is_kept_and_not_shared(self) -> None:
        metadata = {"a": 1}
        task = new_task(metadata=metadata)
        fold(task, status("WORKING", metadata={"b": 2}))
        assert task["metadata"] == {"a": 1, "b": 2}
        assert metadata == {"a": 1}

    @pytest.mark.parametrize("metadata", [None, {}])
    def test_no_metadata_no_key(self, metadata: Json | None) -> None:
        assert "metadata" not in new_task(metadata=metadata)


class TestStatus:
    def test_it_replaces_the_status(self) -> None:
        task = fold(new_task(), status("WORKING"))
        assert task["status"] == {"state": "TASK_STATE_WORKING", "timestamp": TIME}

    def test_the_old_message_moves_to_the_end_of_the_history_exactly_once(self) -> None:
        task = new_task()
        for event in (
            status("WORKING", message("s1")),
            status("WORKING", message("s2")),
            status("WORKING"),
            status("WORKING"),
            status("COMPLETED", message("s3")),
        ):
            fold(task, event)
        assert ids(task["history"]) == ["m1", "s1", "s2"]
        assert task["status"]["message"]["messageId"] == "s3"

    def test_metadata_merges_key_by_key(self) -> None:
        task = new_task()
        fold(task, status("WORKING", metadata={"a": 1, "b": {"x": 1}}))
        fold(task, status("WORKING", metadata={"b": {"y": 2}, "c": 3}))
        assert task["metadata"] == {"a": 1, "b": {"y": 2}, "c": 3}

    def test_it_works_in_place(self) -> None:
        task = new_task()
        assert fold(task, status("WORKING")) is task


class TestArtifact:
    def test_a_new_one_is_added_at_the_end(self) -> None:
        task = new_task()
        fold(task, chunk("a", "1"))
        fold(task, chunk("b", "2", append=False))
        assert texts(task) == {"a": ["1"], "b": ["2"]}
        assert list(texts(task)) == ["a", "b"]

    def test_a_known_one_is_replaced_where_it_stands(self) -> None:
        task = new_task()
        for event in (chunk("a", "1", name="x"), chunk("b", "2"), chunk("a", "3")):
            fold(task, event)
        assert [a["artifactId"] for a in task["artifacts"]] == ["a", "b"]
        assert task["artifacts"][0] == {"artifactId": "a", "parts": [{"text": "3"}]}

    def test_append_adds_parts_and_merges_metadata_and_leaves_the_rest(self) -> None:
        task = new_task()
        fold(task, chunk("a", "1", name="x", metadata={"k": 1, "l": 1}))
        fold(task, chunk("a", "2", "3", append=True, name="y", metadata={"l": 2}))
        assert task["artifacts"] == [
            {
                "artifactId": "a",
                "name": "x",
                "parts": [{"text": "1"}, {"text": "2"}, {"text": "3"}],
                "metadata": {"k": 1, "l": 2},
            }
        ]

    def test_append_finds_an_artifact_begun_long_before(self) -> None:
        task = new_task()
        for i in range(5):
            fold(task, chunk(str(i), "x"))
        fold(task, chunk("0", "y", append=True))
        assert texts(task)["0"] == ["x", "y"]

    def test_append_to_one_that_is_not_there_is_the_agents_fault(self) -> None:
        task = new_task()
        with pytest.raises(InvalidAgentResponse):
            fold(task, chunk("a", "1", append=True))
        assert task == new_task()
        fold(task, chunk("b", "1"))
        with pytest.raises(InvalidAgentResponse):
            fold(task, chunk("a", "1", append=True, lastChunk=True))

    def test_a_closing_chunk_adds_nothing(self) -> None:
        task = new_task()
        fold(task, chunk("a", "1"))
        fold(task, chunk("a", "", append=True, lastChunk=True))
        assert texts(task) == {"a": ["1"]}

    @pytest.mark.parametrize(
        ("event", "expected"),
        [
            (chunk("a", "", append=True), ["1", ""]),
            (chunk("a", "", append=True, lastChunk=False), ["1", ""]),
            (chunk("a", "", append=False, lastChunk=True), [""]),
            (chunk("a", "2", append=True, lastChunk=True), ["1", "2"]),
            (chunk("a", "", "", append=True, lastChunk=True), ["1", "", ""]),
        ],
    )
    def test_only_that_very_chunk_is_a_closing_one(self, event: Json, expected: list[str]) -> None:
        task = fold(new_task(), chunk("a", "1"))
        assert texts(fold(task, event)) == {"a": expected}

    def test_an_empty_text_with_something_beside_it_is_content(self) -> None:
        task = fold(new_task(), chunk("a", "1"))
        event = chunk("a", "", append=True, lastChunk=True)
        event["artifactUpdate"]["artifact"]["parts"][0]["metadata"] = {"k": 1}
        fold(task, event)
        assert len(task["artifacts"][0]["parts"]) == 2

    def test_the_status_stays(self) -> None:
        assert fold(new_task(), chunk("a", "1"))["status"] == new_task()["status"]


class TestTask:
    def test_it_replaces_everything(self) -> None:
        task = fold(new_task(), chunk("a", "1"))
        whole = {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}
        assert fold(task, {"task": whole}) is task
        assert task == whole

    def test_even_with_itself(self) -> None:
        task = new_task()
        assert fold(task, {"task": task}) == new_task()


def test_a_message_has_no_place_in_a_task() -> None:
    with pytest.raises(InvalidAgentResponse):
        fold(new_task(), {"message": message("m2")})


class TestReceive:
    def test_what_the_agent_last_said_comes_before_the_new_message(self) -> None:
        task = fold(new_task(), status("INPUT_REQUIRED", message("ask")))
        before = copy.deepcopy(task)
        after = receive(task, message("m2"), AT + 1)
        assert ids(after["history"]) == ["m1", "ask", "m2"]
        assert after["status"] == {
            "state": "TASK_STATE_WORKING",
            "timestamp": "2026-01-02T03:04:05.679Z",
        }
        assert (after["history"][-1]["taskId"], after["history"][-1]["contextId"]) == ("t", "c")
        assert task == before

    def test_what_follows_does_not_reach_back(self) -> None:
        task = fold(new_task(metadata={"a": 1}), chunk("a", "1", metadata={"k": 1}))
        before = copy.deepcopy(task)
        after = receive(task, message("m2"), AT)
        fold(after, chunk("a", "2", append=True, metadata={"l": 1}))
        fold(after, status("COMPLETED", message("s"), metadata={"b": 1}))
        assert task == before

    def test_a_task_without_history(self) -> None:
        task = {"id": "t", "status": {"state": "TASK_STATE_INPUT_REQUIRED"}}
        after = receive(task, message("m2"), AT)
        assert after["history"] == [message("m2", taskId="t")]


class TestWithHistory:
    @pytest.mark.parametrize(
        ("length", "expected"),
        [(None, ["1", "2", "3"]), (1, ["3"]), (2, ["2", "3"]), (3, ["1", "2", "3"]), (9, None)],
    )
    def test_the_newest_in_order(self, length: int | None, expected: list[str] | None) -> None:
        task = {"id": "t", "history": [message("1"), message("2"), message("3")]}
        assert ids(with_history(task, length)["history"]) == (expected or ["1", "2", "3"])

    def test_none_at_all(self) -> None:
        task = {"id": "t", "history": [message("1")]}
        assert with_history(task, 0) == {"id": "t"}
        assert len(task["history"]) == 1

    @pytest.mark.parametrize("length", [None, 0, 1])
    def test_where_there_is_none(self, length: int | None) -> None:
        assert with_history({"id": "t"}, length) == {"id": "t"}


names = st.sampled_from("ab")
flags = st.none() | st.booleans()
events = st.one_of(
    st.builds(
        lambda i, t, a, m: chunk(i, *t, append=a, **({"metadata": m} if m else {})),
        names,
        st.lists(st.sampled_from(["", "x"]), min_size=1, max_size=3),
        flags,
        st.dictionaries(names, st.integers()),
    ),
    st.builds(
        lambda s, say, m: status(
            s, message(say) if say else None, **({"metadata": m} if m else {})
        ),
        st.sampled_from(["WORKING", "INPUT_REQUIRED", "COMPLETED"]),
        st.none() | names,
        st.dictionaries(names, st.integers()),
    ),
    st.builds(lambda m: {"task": {**new_task(metadata=m)}}, st.dictionaries(names, st.integers())),
)


@given(st.lists(events, max_size=12), st.integers(0, 12))
def test_events_stay_as_they_were_and_a_snapshot_and_its_tail_are_the_whole(
    log: list[Json], at: int
) -> None:
    task, applied = new_task(), []
    kept = copy.deepcopy(log)
    snapshot = None
    for i, event in enumerate(log):
        if i == at:
            snapshot = copy.deepcopy(task)
        try:
            fold(task, event)
        except InvalidAgentResponse:
            continue
        if i >= at:
            applied.append(event)
    assert log == kept
    if snapshot is not None:
        for event in applied:
            fold(snapshot, event)
        assert snapshot == task
    assert Task.model_validate(task).to_dict() == task
