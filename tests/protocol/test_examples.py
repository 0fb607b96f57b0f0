"""The specification's own examples (§6, §8.5) are read, and written as they were."""

from __future__ import annotations

from typing import Any

import pytest

from switchroom.protocol.card import AgentCard
from switchroom.protocol.event import StreamResponse
from switchroom.protocol.model import Json, Model
from switchroom.protocol.params import (
    ListTasksRequest,
    ListTasksResponse,
    SendMessageRequest,
    SendMessageResponse,
    decode,
)

EXAMPLES: dict[str, tuple[type[Model], Json]] = {
    "6.1 request": (
        SendMessageRequest,
        {
            "message": {
                "role": "ROLE_USER",
                "parts": [{"text": "What is the weather today?"}],
                "messageId": "msg-uuid",
            }
        },
    ),
    "6.1 response": (
        SendMessageResponse,
        {
            "task": {
                "id": "task-uuid",
                "contextId": "context-uuid",
                "status": {"state": "TASK_STATE_COMPLETED"},
                "artifacts": [
                    {
                        "artifactId": "artifact-uuid",
                        "name": "Weather Report",
                        "parts": [{"text": "Today will be sunny with a high of 75°F"}],
                    }
                ],
            }
        },
    ),
    "6.2 first event": (
        StreamResponse,
        {
            "task": {
                "id": "task-uuid",
                "contextId": "context-uuid",
                "status": {"state": "TASK_STATE_WORKING"},
            }
        },
    ),
    "6.2 last event": (
        StreamResponse,
        {
            "statusUpdate": {
                "taskId": "task-uuid",
                "contextId": "context-uuid",
                "status": {"state": "TASK_STATE_COMPLETED"},
            }
        },
    ),
    "6.3 follow-up": (
        SendMessageRequest,
        {
            "message": {
                "taskId": "task-uuid",
                "role": "ROLE_USER",
                "parts": [{"text": "From San Francisco to New York"}],
                "messageId": "msg-2",
            }
        },
    ),
    "6.5 request": (
        ListTasksRequest,
        {
            "contextId": "c295ea44-7543-4f78-b524-7a38915ad6e4",
            "pageSize": 10,
            "historyLength": 3,
            "pageToken": "base64-encoded-cursor-token",
        },
    ),
    "6.5 response": (
        ListTasksResponse,
        {
            "tasks": [
                {
                    "id": "789abc-def0-1234-5678-9abcdef01234",
                    "contextId": "another-context-id",
                    "status": {
                        "state": "TASK_STATE_WORKING",
                        "message": {
                            "role": "ROLE_AGENT",
                            "parts": [{"text": "Processing your document analysis..."}],
                            "messageId": "msg-status-update",
                        },
                        "timestamp": "2024-03-15T10:20:00Z",
                    },
                }
            ],
            "totalSize": 1,
            "pageSize": 20,
            "nextPageToken": "",
        },
    ),
    "6.6 request": (
        SendMessageRequest,
        {
            "message": {
                "role": "ROLE_USER",
                "parts": [{"text": "Generate the Q1 sales report."}],
                "messageId": "6dbc13b5-bd57-4c2b-b503-24e381b6c8d6",
            },
            "configuration": {
                "taskPushNotificationConfig": {
                    "url": "https://client.example.com/webhook/a2a-notifications",
                    "authentication": {
                        "scheme": "Bearer",
                        "credentials": "secure-client-token-for-task-aaa",
                    },
                }
            },
        },
    ),
    "6.7 request": (
        SendMessageRequest,
        {
            "message": {
                "role": "ROLE_USER",
                "parts": [
                    {"text": "Analyze this image and highlight any faces."},
                    {
                        "raw": "iVBORw0KGgoAAAANSUhEUgAAAAUA",
                        "filename": "input_image.png",
                        "mediaType": "image/png",
                    },
                ],
                "messageId": "6dbc13b5-bd57-4c2b-b503-24e381b6c8d6",
            }
        },
    ),
    "6.7 response": (
        SendMessageResponse,
        {
            "task": {
                "id": "43667960-d455-4453-b0cf-1bae4955270d",
                "contextId": "c295ea44-7543-4f78-b524-7a38915ad6e4",
                "status": {"state": "TASK_STATE_COMPLETED", "timestamp": "2024-03-15T12:05:00Z"},
                "artifacts": [
                    {
                        "artifactId": "9b6934dd-37e3-4eb1-8766-962efaab63a1",
                        "name": "processed_image_with_faces.png",
                        "parts": [
                            {
                                "url": "https://storage.example.com/processed/output.png?token=xyz",
                                "filename": "output.png",
                                "mediaType": "image/png",
                            }
                        ],
                    }
                ],
            }
        },
    ),
    "6.8 request": (
        SendMessageRequest,
        {
            "message": {
                "role": "ROLE_USER",
                "parts": [
                    {
                        "text": "Show me a list of my open IT tickets",
                        "metadata": {
                            "mediaType": "application/json",
                            "schema": {
                                "type": "array",
                                "items": {
                                    "type": "object",
                                    "properties": {"ticketNumber": {"type": "string"}},
                                },
                            },
                        },
                    }
                ],
                "messageId": "85b26db5-ffbb-4278-a5da-a7b09dea1b47",
            }
        },
    ),
    "6.8 response": (
        SendMessageResponse,
        {
            "task": {
                "id": "d8c6243f-5f7a-4f6f-821d-957ce51e856c",
                "contextId": "c295ea44-7543-4f78-b524-7a38915ad6e4",
                "status": {
                    "state": "TASK_STATE_COMPLETED",
                    "timestamp": "2025-04-17T17:47:09.680794Z",
                },
                "artifacts": [
                    {
                        "artifactId": "c5e0382f-b57f-4da7-87d8-b85171fad17c",
                        "parts": [{"text": '[{"ticketNumber":"REQ12312"}]'}],
                    }
                ],
            }
        },
    ),
    "8.5 card": (
        AgentCard,
        {
            "name": "GeoSpatial Route Planner Agent",
            "description": "Provides advanced route planning.",
            "supportedInterfaces": [
                {
                    "url": "https://georoute-agent.example.com/a2a/v1",
                    "protocolBinding": "JSONRPC",
                    "protocolVersion": "1.0",
                },
                {
                    "url": "https://georoute-agent.example.com/a2a/grpc",
                    "protocolBinding": "GRPC",
                    "protocolVersion": "1.0",
                },
            ],
            "provider": {
                "organization": "Example Geo Services Inc.",
                "url": "https://www.examplegeoservices.com",
            },
            "iconUrl": "https://georoute-agent.example.com/icon.png",
            "version": "1.2.0",
            "documentationUrl": "https://docs.examplegeoservices.com/georoute-agent/api",
            "capabilities": {
                "streaming": True,
                "pushNotifications": True,
                "extendedAgentCard": True,
            },
            "securitySchemes": {
                "google": {
                    "openIdConnectSecurityScheme": {
                        "openIdConnectUrl": "https://accounts.example/openid-configuration"
                    }
                }
            },
            "securityRequirements": [{"schemes": {"google": {"list": ["openid", "profile"]}}}],
            "defaultInputModes": ["application/json", "text/plain"],
            "defaultOutputModes": ["application/json", "image/png"],
            "skills": [
                {
                    "id": "route-optimizer-traffic",
                    "name": "Traffic-Aware Route Optimizer",
                    "description": "Calculates the optimal driving route.",
                    "tags": ["maps", "routing"],
                    "examples": ["Plan a route avoiding tolls."],
                    "inputModes": ["application/json", "text/plain"],
                    "outputModes": ["application/vnd.geo+json", "text/html"],
                }
            ],
            "signatures": [
                {
                    "protected": "eyJhbGciOiJFUzI1NiIsInR5cCI6IkpPU0UiLCJraWQiOiJrZXktMSJ9",
                    "signature": "QFdkNLNszlGj3z3u0YQGt_T9LixY3qtdQpZmsTdDHDe3fXV9y9",
                }
            ],
        },
    ),
}


def in_milliseconds(value: Any) -> Any:
    """`value` with its timestamps as we write them."""
    match value:
        case dict():
            return {
                k: f"{v[:19]}.{(v[20:-1] + '000')[:3]}Z" if k == "timestamp" else in_milliseconds(v)
                for k, v in value.items()
            }
        case list():
            return [in_milliseconds(v) for v in value]
    return value


@pytest.mark.parametrize("name", list(EXAMPLES))
def test_an_example_of_the_specification(name: str) -> None:
    kind, example = EXAMPLES[name]
    assert decode(kind, example).to_dict() == in_milliseconds(example)
