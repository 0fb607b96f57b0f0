"""From `module`, `module:attr` or `path/file.py[:attr]` to an Agent.

Promises an object that is an agent, or one sentence that says what was found instead. Relies on
`switchroom.importing` for import strings and on `switchroom.agent` for what an agent is.
"""

from __future__ import annotations

from switchroom.agent import Agent, AgentError, Declared, check_agent
from switchroom.importing import ImportFailed, import_object

__all__ = ["load_agent"]


def load_agent(spec: str) -> Agent:
    """The agent that `spec` names; the attribute is `agent` where it names none.

    Raises AgentError; its cause, if any, is the error inside the agent's own code.
    """
    try:
        agent = check_agent(import_object(spec, default="agent"))
    except ImportFailed as error:
        raise AgentError(str(error)) from (error.__cause__ or error)
    Declared.of(agent)  # what it says wrongly of itself is told now, not by the first worker
    return agent
