"""What a rollout's chat endpoint is to the HTTP routes and to whoever runs the rollout, whatever answers its calls."""

from typing import Protocol

from drydock.proxy.completion import Completion
from drydock.proxy.known_messages import KnownMessages
from drydock.proxy.record import RolloutRecord
from drydock.proxy.reply import Reply
from drydock.proxy.request import ChatRequest


class ChatSession(Protocol):
    """One rollout. base_url and api_key: what its agent is given. known: messages of its latest request."""

    rollout_id: str
    base_url: str
    api_key: str
    known: KnownMessages

    @property
    def record(self) -> RolloutRecord:
        """What is known of the rollout; complete when it is closed."""
        ...

    async def answer(self, body: bytes) -> Reply:
        """Answer the body of one chat-completions call; what is refused becomes a reply too."""
        ...

    async def complete(self, request: ChatRequest) -> Completion:
        """The turn that answers one call. Raises RequestRefused."""
        ...

    async def close(self) -> RolloutRecord:
        """Revoke the key, end what is under way, and return the record; closing again returns the same one."""
        ...


class SessionOpener(Protocol):
    """Where rollouts get their sessions: the chat proxy, or a relay to an endpoint."""

    def open_rollout(self, rollout_id: str) -> ChatSession:
        """Give a rollout its key. Raises ProxyError when the rollout is open already."""
        ...
