"""What holds for every call of a rollout, whatever answers it: which are refused, and that a refusal is a reply."""

from drydock.chat.refusal import RequestRefused
from drydock.proxy.chat_session import ChatSession
from drydock.proxy.dialects.base import Dialect
from drydock.proxy.record import RolloutRecord
from drydock.proxy.reply import Reply, answered, refused
from drydock.proxy.request import ChatRequest
from drydock.proxy.request_body import check_size


async def answer_call(session: ChatSession, body: bytes, dialect: Dialect) -> Reply:
    """The reply to the body of one call; what is refused becomes a reply too."""
    request: ChatRequest | None = None
    try:
        check_size(len(body))
        request = dialect.parse(body, session.known)
        return answered(dialect, request, await session.complete(request))
    except RequestRefused as refusal:
        return refused(dialect, refusal, request)


def admit(request: ChatRequest, record: RolloutRecord, *, closed: bool) -> None:
    """Note which of the agent's settings the run's win over. Raises RequestRefused for a rollout that is over (the call
    is counted) or spoilt."""
    if closed:
        record.late_calls += 1
        raise rollout_closed()
    if record.sampler_error is not None:
        raise spoilt(record)
    for name in request.overridden:
        record.overridden[name] = record.overridden.get(name, 0) + 1


def rollout_closed() -> RequestRefused:
    """The refusal of a call after the rollout's end."""
    return RequestRefused("this rollout is over; its key is revoked", code="closed", status=403)


def spoilt(record: RolloutRecord) -> RequestRefused:
    """The refusal of a call after sampling has failed."""
    message = f"sampling failed for this rollout: {record.sampler_error}"
    return RequestRefused(message, code="sampler_error", status=500)
