"""States: which is what, and what may follow what. Every pair is written out once, here."""

from __future__ import annotations

import itertools

import pytest

from switchroom.protocol.lifecycle import (
    INTERRUPTED,
    TERMINAL,
    TRANSITIONS,
    is_interrupted,
    is_terminal,
    may_follow,
)
from switchroom.protocol.model import TaskState

S = TaskState

LEGAL = {
    (S.SUBMITTED, S.WORKING),
    (S.SUBMITTED, S.REJECTED),
    (S.SUBMITTED, S.FAILED),
    (S.SUBMITTED, S.CANCELED),
    (S.WORKING, S.WORKING),
    (S.WORKING, S.COMPLETED),
    (S.WORKING, S.FAILED),
    (S.WORKING, S.CANCELED),
    (S.WORKING, S.REJECTED),
    (S.WORKING, S.INPUT_REQUIRED),
    (S.WORKING, S.AUTH_REQUIRED),
    (S.INPUT_REQUIRED, S.WORKING),
    (S.INPUT_REQUIRED, S.FAILED),
    (S.INPUT_REQUIRED, S.CANCELED),
    (S.AUTH_REQUIRED, S.WORKING),
    (S.AUTH_REQUIRED, S.FAILED),
    (S.AUTH_REQUIRED, S.CANCELED),
}


@pytest.mark.parametrize(("state", "new"), list(itertools.product(S, S)))
def test_every_pair_of_states_is_either_legal_or_not(state: TaskState, new: TaskState) -> None:
    assert may_follow(state, new) is ((state, new) in LEGAL)
    assert may_follow(state.value, new.value) is ((state, new) in LEGAL)


def test_the_table_has_a_row_for_each_state() -> None:
    assert set(TRANSITIONS) == set(S)


def test_nothing_follows_the_end() -> None:
    assert {s for s in S if s is not S.UNSPECIFIED and not TRANSITIONS[s]} == TERMINAL


def test_from_every_open_state_a_task_can_fail_and_be_canceled() -> None:
    for state in set(S) - TERMINAL - {S.UNSPECIFIED}:
        assert {S.FAILED, S.CANCELED} <= TRANSITIONS[state]


@pytest.mark.parametrize("state", ["", "working", "TASK_STATE_CANCELLED", "TASK_STATE_UNSPECIFIED"])
def test_an_unknown_state_follows_nothing_and_nothing_follows_it(state: str) -> None:
    assert not may_follow(state, S.WORKING)
    assert not may_follow(S.WORKING, state)
    assert not is_terminal(state)
    assert not is_interrupted(state)


def test_terminal_and_interrupted() -> None:
    assert {s.value for s in S if is_terminal(s.value)} == {
        "TASK_STATE_COMPLETED",
        "TASK_STATE_FAILED",
        "TASK_STATE_CANCELED",
        "TASK_STATE_REJECTED",
    }
    assert {s.value for s in S if is_interrupted(s.value)} == {
        "TASK_STATE_INPUT_REQUIRED",
        "TASK_STATE_AUTH_REQUIRED",
    }
    assert not TERMINAL & INTERRUPTED
