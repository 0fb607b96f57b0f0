"""The checker finds what it is there for: each promise, broken in a made-up history, is found."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import pytest

from tests.chaos.checker import Breach, check
from tests.chaos.dump import Key
from tests.chaos.marks import AgentRun
from tests.chaos.records import Cancel, Event, Records, Segment, Send, View

TASK, CONTEXT, KEY, NAME, RUN = "t1", "c1", "k1", "a1", "mark2"
HASH, LOG = f"switchroom:{{{TASK}}}:task", f"switchroom:{{{TASK}}}:log"
OPEN = "switchroom:open:main"
TTL = 60_000
TEXT = f"work {KEY} 3 10"
ANSWER = "".join(f"{NAME}.{n} " for n in range(3))


def status(state: str, text: str = "") -> Any:
    said: Any = {"state": f"TASK_STATE_{state}"}
    if text:
        said["message"] = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": text}]}
    return {"statusUpdate": {"taskId": TASK, "contextId": CONTEXT, "status": said}}


def chunk(number: int, name: str = NAME) -> Any:
    artifact = {"artifactId": "1-1", "parts": [{"text": f"{name}.{number} "}]}
    update = {"taskId": TASK, "contextId": CONTEXT, "artifact": artifact}
    return {"artifactUpdate": update | ({"append": True} if number else {})}


def task(state: str = "SUBMITTED", **more: Any) -> Any:
    asked = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": TEXT}]}
    status = {"state": f"TASK_STATE_{state}"}
    return {"id": TASK, "contextId": CONTEXT, "status": status, "history": [asked], **more}


WHOLE = task("COMPLETED", artifacts=[{"artifactId": "1-1", "parts": [{"text": ANSWER}]}])


class History:
    """One task of three chunks that went well, as it is stored, marked and seen; a test breaks it.

    log: rows of (mark, kind, event); the rest is made of it.
    """

    def __init__(self) -> None:
        self.log: list[tuple[str, str, Any]] = [
            ("mark1", "task", {"task": task()}),
            (RUN, "status", status("WORKING", f"{NAME} begins")),
            *((RUN, "artifact", chunk(number)) for number in range(3)),
            (RUN, "status", status("COMPLETED")),
        ]
        self.fields = {"owner": "/", "ctx": CONTEXT, "turn": "1", "shown": "1"}
        self.fields["base"] = json.dumps(WHOLE)
        self.extra: dict[str, Key] = {}
        self.lost_rows: set[int] = set()
        self.runs = {NAME: AgentRun(NAME, KEY, TASK, 1, 1, 9, 0.0, 3, "ended")}
        self.send = Send(KEY, 1, TEXT, "1.0", tasks={TASK}, settled=True)
        self.cancels: list[Cancel] = []
        self.view = View(KEY, "1.0", 1, True, TASK, [Segment("", True, self.events())], True)
        self.listed = [TASK]
        self.lapsed = set[str]()

    def events(self, first: int = 1) -> list[Event]:
        """What a reader is told from entry number `first` on."""
        rows = list(enumerate(self.log, 1))[first - 1 :]
        return [Event(f"{seq}.{mark}", event) for seq, (mark, _, event) in rows]

    def dump(self) -> dict[str, Key]:
        rows, state = [], ""
        for seq, (mark, kind, event) in enumerate(self.log, 1):
            inner = next(iter(event.values()))
            now = inner.get("status", {}).get("state", "") if kind in ("task", "status") else ""
            state = now or state
            fields = {"e": json.dumps(event), "k": kind, "s": now, "t": "1", "m": mark}
            if seq not in self.lost_rows:
                rows.append((f"{seq}-0", fields))
        told = {"seq": str(len(self.log)), "mark": self.log[-1][0], "state": state}
        context = blake2b(CONTEXT.encode(), digest_size=16).hexdigest()
        ended = not state.endswith(("WORKING", "REQUIRED"))
        lists = ("tasks", f"ctx:{context}", f"state:{state}")
        return {
            HASH: Key("hash", TTL, {**told, **self.fields}),
            LOG: Key("stream", TTL, rows),
            OPEN: Key("zset", -1, {} if ended else {TASK: 1.0}),
            "switchroom:cursor-secret": Key("string", -1, "x"),
            "switchroom:claim:{/}:abc": Key("string", TTL, f"{TASK} params"),
            **{f"switchroom:{{/}}:{name}": Key("zset", TTL, {TASK: 1.0}) for name in lists},
            **self.extra,
        }

    def breaches(self) -> list[Breach]:
        records = Records([self.send], [self.view], self.cancels, listed=self.listed)
        records.looks = {TASK: [json.loads(self.fields["base"])] * 2}
        return check(self.dump(), self.runs, records, lapsed=self.lapsed)

    def kinds(self) -> set[str]:
        return {breach.kind for breach in self.breaches()}


@pytest.fixture
def history() -> History:
    return History()


def test_a_history_in_which_all_went_well_has_no_breach(history: History) -> None:
    assert history.breaches() == []


def test_so_has_a_second_attempt_whose_words_replace_the_first_ones(history: History) -> None:
    begun = [(RUN, "status", status("WORKING", "a0 begins")), (RUN, "artifact", chunk(0, "a0"))]
    rest = [("mark3", kind, event) for _, kind, event in history.log[1:]]
    history.log = [history.log[0], *begun, *rest]
    history.runs["a0"] = AgentRun("a0", KEY, TASK, 1, 1, 8, 0.0, 2)
    history.view.segments = [Segment("", True, history.events())]
    assert history.breaches() == []


# -- the log


def test_a_gap_in_the_log(history: History) -> None:
    history.lost_rows = {4}
    (breach,) = (breach for breach in history.breaches() if breach.kind == "gap")
    assert breach.task_id == TASK
    assert "missing: [4]" in str(breach)
    assert f"5 {RUN} artifact - turn 1 '{NAME}.2 '" in str(breach), "it shows the log"


def test_a_log_that_is_gone(history: History) -> None:
    history.lost_rows = {1, 2, 3, 4, 5, 6}
    assert "gap" in history.kinds()


def test_a_second_terminal_event(history: History) -> None:
    history.log.append(("mark3", "status", status("CANCELED")))
    history.fields["cancel"] = "1"
    assert "end" in history.kinds()


def test_an_event_after_the_end(history: History) -> None:
    history.log.append((RUN, "artifact", chunk(3)))
    history.runs[NAME] = history.runs[NAME]._replace(chunks=4)
    assert "end" in history.kinds()


def test_a_hash_that_says_otherwise(history: History) -> None:
    history.fields["seq"] = "5"
    assert history.kinds() == {"hash"}


def test_a_run_that_writes_again_after_another_has_begun_to(history: History) -> None:
    late = ("mark3", "status", status("WORKING", "Attempt 2 of 3: begun again."))
    history.log.insert(4, late)
    history.view.segments = [Segment("", True, history.events())]
    assert "overlap" in history.kinds()


def test_two_runs_of_the_agent_under_one_mark(history: History) -> None:
    history.log[4] = (RUN, "artifact", chunk(2, "a2"))
    history.runs["a2"] = AgentRun("a2", KEY, TASK, 1, 2, 8, 0.0, 3)
    history.view.segments = [Segment("", True, history.events())]
    assert "overlap" in history.kinds()


@pytest.mark.parametrize("change", ["lost", "doubled", "swapped"])
def test_chunks_that_are_lost_doubled_or_out_of_order(history: History, change: str) -> None:
    match change:
        case "lost":
            del history.log[3]
        case "doubled":
            history.log.insert(3, history.log[3])
        case _:
            history.log[3], history.log[4] = history.log[4], history.log[3]
    history.view.segments = [Segment("", True, history.events())]
    assert "chunks" in history.kinds()


def test_an_end_before_all_was_said(history: History) -> None:
    del history.log[4]
    short = task("COMPLETED", artifacts=[{"artifactId": "1-1", "parts": [{"text": ANSWER[:10]}]}])
    history.fields["base"] = json.dumps(short)
    history.view.segments = [Segment("", True, history.events())]
    assert history.kinds() == {"chunks"}


def test_an_answer_that_the_final_task_holds_twice(history: History) -> None:
    twice = [{"artifactId": "1-1", "parts": [{"text": ANSWER}] * 2}]
    history.fields["base"] = json.dumps({**WHOLE, "artifacts": twice})
    assert history.kinds() == {"answer", "view"}


def test_words_that_no_agent_marked(history: History) -> None:
    history.runs[NAME] = history.runs[NAME]._replace(chunks=2)
    assert history.kinds() == {"marks"}


def test_words_for_another_task(history: History) -> None:
    history.runs[NAME] = history.runs[NAME]._replace(turn=2)
    assert "foreign" in history.kinds()


def test_a_failure_without_a_good_reason(history: History) -> None:
    history.log[-1] = (RUN, "status", status("FAILED", "The agent failed. Reference: 123"))
    history.fields["base"] = json.dumps(task("FAILED"))
    history.view.segments = [Segment("", True, history.events())]
    assert history.kinds() == {"outcome"}


def test_a_worker_lost_too_often_is_a_good_reason(history: History) -> None:
    why = "The task was begun 3 times, and its worker lost each time."
    history.log[-1] = ("mark3", "status", status("FAILED", why))
    history.fields["base"] = json.dumps(task("FAILED"))
    history.view.segments = [Segment("", True, history.events())]
    assert history.breaches() == []


# -- what clients were told


def test_a_task_that_never_ended(history: History) -> None:
    del history.log[-1]
    history.view = replace(history.view, segments=[Segment("", True, history.events())], over=False)
    texts = [str(breach) for breach in history.breaches()]
    assert any("it never ended; it is WORKING" in text for text in texts)
    assert any("a reader never saw the end" in text for text in texts)


def test_an_accepted_task_that_is_not_stored(history: History) -> None:
    history.send = replace(history.send, tasks={TASK, "t2"})
    assert history.kinds() == {"tasks"}


def test_one_send_that_made_two_tasks(history: History) -> None:
    dump = history.dump()
    for name in (HASH, LOG):
        dump[name.replace(TASK, "t2")] = dump[name]
    breaches = check(dump, history.runs, Records([history.send], [history.view]))
    assert "tasks" in {breach.kind for breach in breaches}


def test_a_task_that_nobody_asked_for(history: History) -> None:
    history.send = replace(history.send, key="k2", tasks=set())
    assert {"foreign", "tasks"} <= history.kinds()


def test_a_client_that_never_learnt_the_end(history: History) -> None:
    history.send.settled = False
    assert history.kinds() == {"send"}


def test_an_answer_that_is_not_the_task(history: History) -> None:
    history.send.ends = [{"task": WHOLE}, {**WHOLE, "kind": "task"}]
    assert history.breaches() == []
    history.send.ends = [{"task": {**WHOLE, "history": []}}]
    assert history.kinds() == {"send"}
    history.send.ends = [{**WHOLE, "kind": "task", "artifacts": []}]
    assert history.kinds() == {"send"}


def test_a_cancel_that_was_confirmed_and_did_not_count(history: History) -> None:
    history.cancels = [Cancel(KEY, TASK, ["CANCELED", "-32002"])]
    assert history.kinds() == {"cancel"}


def test_a_task_that_no_list_shows_or_shows_twice(history: History) -> None:
    history.listed = []
    assert history.kinds() == {"list"}
    history.listed = [TASK, TASK]
    assert history.kinds() == {"list"}


def test_a_list_that_holds_too_little(history: History) -> None:
    history.extra = {"switchroom:{/}:tasks": Key("zset", TTL, {})}
    assert history.kinds() == {"list"}


# -- what readers saw


def test_a_reader_that_comes_back_and_misses_nothing(history: History) -> None:
    events = history.view.segments[0].events
    history.view.segments = [
        Segment("", True, events[:3]),
        Segment(events[2].id, False),
        Segment(events[2].id, False, events[3:]),
    ]
    assert history.breaches() == []


@pytest.mark.parametrize(
    ("seen", "says"),
    [
        ([1, 2, 4, 5, 6], "missed [3]"),
        ([1, 2, 3, 3, 4, 5, 6], "came after 3"),
        ([1, 2, 4, 3, 5, 6], "came after 4"),
        ([2, 3, 4, 5, 6], "before the Task"),
        ([1, 2, 3, 1, 4, 5, 6], "the Task came in the middle"),
        ([1, 2, 3, 4, 5, 6, 6], "after the end"),
    ],
)
def test_a_view_that_is_not_the_log(history: History, seen: list[int], says: str) -> None:
    events = history.events()
    history.view.segments = [Segment("", True, [events[number - 1] for number in seen])]
    assert says in " ".join(map(str, history.breaches()))
    assert history.kinds() == {"view"}


def test_a_gap_between_two_connections(history: History) -> None:
    first, second, _, *rest = history.events()
    history.view.segments = [Segment("", True, [first, second]), Segment(second.id, False, rest)]
    assert history.kinds() == {"view"}


def test_a_resumed_stream_that_begins_anew(history: History) -> None:
    events = history.events()
    history.view.segments = [Segment("", True, events[:3]), Segment(events[2].id, False, events)]
    assert history.kinds() == {"view"}


def test_an_event_under_another_id_or_with_other_words(history: History) -> None:
    events = history.events()
    events[3] = Event("4.mark9", events[3].data)
    history.view.segments = [Segment("", True, events)]
    assert history.kinds() == {"view"}
    events[3] = Event(f"4.{RUN}", chunk(7))
    assert history.kinds() == {"view"}


def test_the_task_told_in_another_state_than_it_was(history: History) -> None:
    told = Event(f"3.{RUN}", {"task": task("SUBMITTED")})
    history.view.segments = [Segment("", False, [told, *history.events()[3:]])]
    texts = " ".join(map(str, history.breaches()))
    assert "the Task is SUBMITTED, and it was WORKING" in texts


def test_clients_of_old_are_told_the_end_of_an_ended_task_again(history: History) -> None:
    parts = [{"kind": "text", "text": ANSWER}]
    ended = {"kind": "task", "id": TASK, "status": {"state": "completed"}}
    ended["artifacts"] = [{"artifactId": "1-1", "parts": parts}]
    last = {"kind": "status-update", "taskId": TASK, "status": {"state": "completed"}}
    told = [Event(f"6.{RUN}", ended), Event(f"6.{RUN}", last)]
    history.view = replace(history.view, version="0.3", segments=[Segment("", True, told)])
    assert history.breaches() == []


# -- what agents did, and what is left


def test_a_run_for_a_task_that_is_not(history: History) -> None:
    history.runs["a9"] = AgentRun("a9", KEY, "t9", 1, 1, 8, 0.0)
    assert history.kinds() == {"foreign"}


def test_a_second_run_though_nothing_was_broken(history: History) -> None:
    history.runs["a9"] = AgentRun("a9", KEY, TASK, 1, 1, 8, 0.0)
    assert history.breaches() == [], "while things break it may be"
    history.send.calm = True
    assert history.kinds() == {"runs"}
    history.lapsed = {TASK}
    assert history.breaches() == [], "its worker was too slow, and says so"


@pytest.mark.parametrize(
    "key",
    [
        "switchroom:{t9}:log",
        "switchroom:{t9}:push",
        "switchroom:claim:{/}:abd",
        "switchroom:queue:main",
        "arq:job:run:t1:1",
        "arq:in-progress:run:t1:1",
        "somebody-else",
    ],
)
def test_a_key_that_belongs_to_nothing(history: History, key: str) -> None:
    history.extra = {key: Key("string", TTL, "t9 params")}
    assert history.kinds() == {"orphan"}


def test_a_key_that_would_live_for_ever(history: History) -> None:
    history.extra = {"switchroom:claim:{/}:abd": Key("string", -1, f"{TASK} params")}
    (breach,) = history.breaches()
    assert "would live for ever" in breach.text


def test_an_ended_task_that_is_still_to_be_looked_at(history: History) -> None:
    history.extra = {OPEN: Key("zset", -1, {TASK: 1.0})}
    assert history.kinds() == {"orphan"}
