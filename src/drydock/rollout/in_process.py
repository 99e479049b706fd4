"""A rollout's chat endpoint for an agent in the same process: the proxy's session without HTTP around it.

Takes the bytes of a request and gives the status and bytes that the proxy's HTTP route would give.
"""

from drydock.errors import TemplateError
from drydock.harness.connections import Answer
from drydock.proxy.refusal import RequestRefused, error_body
from drydock.proxy.request import parse_request
from drydock.proxy.session import RolloutSession


def answer_of(session: RolloutSession) -> Answer:
    """The function that answers the calls of `session`'s agent."""

    async def answer(body: bytes) -> tuple[int, bytes]:
        try:
            reply = await session.complete(parse_request(body))
        except RequestRefused as refusal:
            return refusal.status, refusal.body()
        except TemplateError as error:
            return 400, error_body(str(error), "invalid_request_error", code="chat_template")
        return reply.status, reply.body

    return answer
