"""The error tree: one class, one row of the tables of §5.4 and of JSON-RPC 2.0.

Promises: a class says everything a binding needs to answer: JSON-RPC code, HTTP status, google.rpc
status, reason. Raise the class where the rule is known; a binding renders it in one place.
`docs/errors.md` is this table for people.

The specification gives no code to what happens before the protocol: authentication, overload.
Those rows use -32040 and up, inside A2A's range and far from its assigned block. JSON-RPC answers
errors with HTTP 200; those of HTTP itself and of its infrastructure keep their status (§3.3.2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeAlias

__all__ = [
    "DOMAIN",
    "ERRORS",
    "A2AError",
    "AuthenticationFailed",
    "ContentTypeNotSupported",
    "ErrorTable",
    "ExtendedAgentCardNotConfigured",
    "ExtensionSupportRequired",
    "HeadersTooLarge",
    "InternalError",
    "InvalidAgentResponse",
    "InvalidParams",
    "InvalidRequest",
    "MediaTypeNotSupported",
    "MethodNotFound",
    "MethodNotImplemented",
    "ParseError",
    "PayloadTooLarge",
    "PermissionDenied",
    "ProtocolError",
    "PushNotificationNotSupported",
    "RateLimited",
    "RequestTimeout",
    "TaskNotCancelable",
    "TaskNotFound",
    "Unauthenticated",
    "Unavailable",
    "UnsupportedOperation",
    "VerbNotAllowed",
    "VersionNotSupported",
]

ErrorTable: TypeAlias = Literal["1.0.1", "1.0.0"]
"""The text of the specification whose statuses hold (§5.4); the JSON-RPC codes are the same."""

DOMAIN = "a2a-protocol.org"
"""The domain of every ErrorInfo (§9.5)."""


class A2AError(Exception):
    """An error that a client may see. Never raised itself; one of its classes is.

    message: one sentence for people; the class's own when it is not given.
    metadata: facts for programs, such as the task id; strings only, as ErrorInfo demands.
    violations: (path, what is wrong) of each bad field; paths like "message.parts[0].raw".
    retry_after: seconds after which trying again makes sense; None says nothing about it.
    challenges: replace the class's own.
    """

    code: ClassVar[int]
    """JSON-RPC error code."""
    http: ClassVar[int]
    """HTTP status, where the binding uses one."""
    status: ClassVar[str]
    """google.rpc.Code by name: gRPC's status, and `error.status` in REST."""
    before: ClassVar[tuple[int, str] | None] = None
    """`http` and `status` in the text of 1.0.0, where they were others."""
    reason: ClassVar[str]
    """ErrorInfo.reason; clients of the REST binding tell errors apart by it."""
    edge: ClassVar[bool] = False
    """True: HTTP's own error, or its infrastructure's; JSON-RPC too answers with its status."""
    message: str
    """What a person reads."""
    temporary: ClassVar[bool] = False
    """True: the same request may succeed later."""
    legacy: ClassVar[int | None] = None
    """`code` with the setting `legacy_error_codes`, where it is another."""
    challenges: tuple[str, ...] = ()
    """A `WWW-Authenticate` for each way to authenticate that the server knows."""

    def __init__(
        self,
        message: str | None = None,
        *,
        metadata: Mapping[str, str] | None = None,
        violations: Sequence[tuple[str, str]] = (),
        retry_after: float | None = None,
        challenges: Sequence[str] = (),
    ) -> None:
        if message is not None:
            self.message = message
        self.metadata = dict(metadata or {})
        self.violations = tuple(violations)
        self.retry_after = retry_after
        if challenges:
            self.challenges = tuple(challenges)
        super().__init__(self.message)

    def statuses(self, table: ErrorTable) -> tuple[int, str]:
        """HTTP status and google.rpc status in this text of the specification."""
        if table == "1.0.0" and self.before is not None:
            return self.before
        return self.http, self.status

    def data(self) -> list[dict[str, Any]]:
        """The typed details: ErrorInfo first, then BadRequest if there are violations (§9.5)."""
        info: dict[str, Any] = {
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": self.reason,
            "domain": DOMAIN,
        }
        if self.metadata:
            info["metadata"] = dict(self.metadata)
        if not self.violations:
            return [info]
        fields = [{"field": f, "description": d} for f, d in self.violations]
        bad = {"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": fields}
        return [info, bad]


class ProtocolError(A2AError):
    """The request is wrong as JSON-RPC, before A2A comes into it."""


class ParseError(ProtocolError):
    """The body is not JSON."""

    code, http, status, reason = -32700, 400, "INVALID_ARGUMENT", "INVALID_REQUEST"
    message = "The request body is not valid JSON"


class InvalidRequest(ProtocolError):
    """The JSON is no JSON-RPC request."""

    code, http, status, reason = -32600, 400, "INVALID_ARGUMENT", "INVALID_REQUEST"
    message = "The request is not a valid JSON-RPC 2.0 request"


class PayloadTooLarge(InvalidRequest):
    """The body is larger than the server takes."""

    http, reason, edge = 413, "PAYLOAD_TOO_LARGE", True
    message = "The request body is too large"


class HeadersTooLarge(InvalidRequest):
    """The headers are larger than the server takes. Always HTTP 431."""

    http, status, reason, edge = 431, "RESOURCE_EXHAUSTED", "HEADERS_TOO_LARGE", True
    message = "The request's headers are too large"


class RequestTimeout(InvalidRequest):
    """The client took too long to send its request. Always HTTP 408."""

    http, status, reason, edge = 408, "DEADLINE_EXCEEDED", "REQUEST_TIMEOUT", True
    message = "The request did not arrive in time"


class MethodNotFound(ProtocolError):
    """No such method."""

    code, http, status, reason = -32601, 404, "NOT_FOUND", "METHOD_NOT_FOUND"
    message = "Method not found"


class MethodNotImplemented(MethodNotFound):
    """A method of the specification that this server leaves out."""

    http, status, reason = 501, "UNIMPLEMENTED", "METHOD_NOT_IMPLEMENTED"
    message = "Method not implemented"


class VerbNotAllowed(MethodNotFound):
    """A path that does not take this HTTP method; RFC 9110 wants an Allow header with it."""

    http, status, reason, edge = 405, "UNIMPLEMENTED", "VERB_NOT_ALLOWED", True
    message = "This path does not take this HTTP method"


class InvalidParams(ProtocolError):
    """The parameters are wrong; `violations` says which."""

    code, http, status, reason = -32602, 400, "INVALID_ARGUMENT", "INVALID_PARAMS"
    message = "Invalid parameters"

    def __init__(
        self,
        message: str | None = None,
        *,
        metadata: Mapping[str, str] | None = None,
        violations: Sequence[tuple[str, str]] = (),
        retry_after: float | None = None,
    ) -> None:
        if message is None and violations:
            field, text = violations[0]
            message = f"{self.message}: {field} {text}"
        super().__init__(message, metadata=metadata, violations=violations, retry_after=retry_after)


class TaskNotFound(A2AError):
    """No such task, or not the caller's: the two look alike (§13.1)."""

    code, http, status, reason = -32001, 404, "NOT_FOUND", "TASK_NOT_FOUND"
    message = "Task not found"


class TaskNotCancelable(A2AError):
    """The task has ended (§3.1.5)."""

    code, http, status, reason = -32002, 400, "FAILED_PRECONDITION", "TASK_NOT_CANCELABLE"
    before = 409, "FAILED_PRECONDITION"
    message = "The task cannot be canceled"


class PushNotificationNotSupported(A2AError):
    """The card does not declare push notifications (§3.3.4)."""

    code, http, status = -32003, 400, "FAILED_PRECONDITION"
    reason = "PUSH_NOTIFICATION_NOT_SUPPORTED"
    before = 400, "UNIMPLEMENTED"
    message = "This agent does not support push notifications"


class UnsupportedOperation(A2AError):
    """Not with these capabilities, or not in the task's present state (§3.3.2)."""

    code, http, status, reason = -32004, 400, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION"
    before = 400, "UNIMPLEMENTED"
    message = "This operation is not supported"


class ContentTypeNotSupported(A2AError):
    """A media type, of a message's part, that the agent does not take (§3.3.2)."""

    code, http, status = -32005, 400, "INVALID_ARGUMENT"
    reason = "CONTENT_TYPE_NOT_SUPPORTED"
    before: ClassVar[tuple[int, str] | None] = (415, "INVALID_ARGUMENT")
    message = "This content type is not supported"


class MediaTypeNotSupported(ContentTypeNotSupported):
    """The request's own media type is not JSON. Always HTTP 415, which is HTTP's word for it."""

    http, edge, before, legacy = 415, True, None, -32000
    message = "The request's Content-Type is not supported"


class InvalidAgentResponse(A2AError):
    """The agent broke the rules of the protocol."""

    code, http, status, reason = -32006, 500, "INTERNAL", "INVALID_AGENT_RESPONSE"
    before = 502, "INTERNAL"
    message = "The agent gave an invalid response"


class ExtendedAgentCardNotConfigured(A2AError):
    """The card promises an extended card, and there is none (§3.1.11)."""

    code, http, status = -32007, 400, "FAILED_PRECONDITION"
    reason = "EXTENDED_AGENT_CARD_NOT_CONFIGURED"
    message = "This agent has no extended card configured"


class ExtensionSupportRequired(A2AError):
    """The client did not name an extension that the agent requires (§4.6)."""

    code, http, status = -32008, 400, "FAILED_PRECONDITION"
    reason = "EXTENSION_SUPPORT_REQUIRED"
    message = "This agent requires an extension that the request does not name"


class VersionNotSupported(A2AError):
    """A version of A2A that is not spoken here (§3.6.2)."""

    code, http, status, reason = -32009, 400, "FAILED_PRECONDITION", "VERSION_NOT_SUPPORTED"
    before = 400, "UNIMPLEMENTED"
    message = "This A2A version is not supported"


class Unauthenticated(A2AError):
    """No credentials. Always HTTP 401, in every binding (§7.4)."""

    code, http, status, reason = -32040, 401, "UNAUTHENTICATED", "UNAUTHENTICATED"
    edge = True
    legacy: ClassVar[int | None] = -32001
    message = "Authentication required"
    # RFC 9110 §15.5.2 wants one with every 401, also with that of a handler which knows no way.
    challenges = ('Bearer realm="a2a"',)


class AuthenticationFailed(Unauthenticated):
    """Bad credentials; which of them, and why, is not said. Always HTTP 401."""

    legacy = -32002
    message = "Authentication failed"


class PermissionDenied(A2AError):
    """Known, and not allowed this kind of operation. Always HTTP 403."""

    code, http, status, reason = -32041, 403, "PERMISSION_DENIED", "PERMISSION_DENIED"
    edge = True
    message = "Permission denied"


class RateLimited(A2AError):
    """Too many requests. Always HTTP 429."""

    code, http, status, reason = -32042, 429, "RESOURCE_EXHAUSTED", "RATE_LIMITED"
    edge = True
    message = "Too many requests; try again later"
    temporary = True


class Unavailable(A2AError):
    """The server cannot answer now. Always HTTP 503."""

    code, http, status, reason = -32043, 503, "UNAVAILABLE", "UNAVAILABLE"
    edge = True
    message = "The service is unavailable at the moment; try again later"
    temporary = True


class InternalError(A2AError):
    """Anything else. The log has the cause; the client gets no more than an id."""

    code, http, status, reason = -32603, 500, "INTERNAL", "INTERNAL_ERROR"
    message = "Internal error"


ERRORS: tuple[type[A2AError], ...] = (
    ParseError,
    InvalidRequest,
    PayloadTooLarge,
    HeadersTooLarge,
    RequestTimeout,
    MethodNotFound,
    MethodNotImplemented,
    VerbNotAllowed,
    InvalidParams,
    TaskNotFound,
    TaskNotCancelable,
    PushNotificationNotSupported,
    UnsupportedOperation,
    ContentTypeNotSupported,
    MediaTypeNotSupported,
    InvalidAgentResponse,
    ExtendedAgentCardNotConfigured,
    ExtensionSupportRequired,
    VersionNotSupported,
    Unauthenticated,
    AuthenticationFailed,
    PermissionDenied,
    RateLimited,
    Unavailable,
    InternalError,
)
"""Every error that can be answered, a row each."""
