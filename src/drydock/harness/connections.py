"""Where a rollout's agent finds its model endpoint, by rollout id.

Harbor writes an agent's keyword arguments into `config.json`, `lock.json` and `result.json`. The API key of a rollout
must not be there, so the arguments hold only the rollout id and the connection itself stays in this process: whoever
opens the rollout offers it for as long as the rollout runs, and the agent looks it up.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from drydock.errors import HarnessError

Answer = Callable[[bytes], Awaitable[tuple[int, bytes]]]


@dataclass(frozen=True, slots=True)
class Connection:
    """A chat-completions endpoint and the key that opens it for one rollout.

    base_url: up to and including the version segment, without `/chat/completions`.
    answer: the same endpoint without HTTP, for an agent in the process that serves it: takes a request body, gives
    status and body of the reply. None when the endpoint is elsewhere.
    """

    base_url: str
    api_key: str = field(repr=False)
    answer: Answer | None = field(default=None, repr=False)


_connections: dict[str, Connection] = {}


@contextmanager
def offered(rollout_id: str, connection: Connection) -> Iterator[None]:
    """Let the agent of `rollout_id` find `connection` inside the block.

    Raises HarnessError when the id is already in use: two rollouts must never share a key.
    """
    if rollout_id in _connections:
        raise HarnessError(f"rollout {rollout_id!r} is already running in this process; rollout ids must be unique")
    _connections[rollout_id] = connection
    try:
        yield
    finally:
        del _connections[rollout_id]


def connection_for(rollout_id: str) -> Connection:
    """Return what was offered for `rollout_id`; raises HarnessError when nothing was."""
    try:
        return _connections[rollout_id]
    except KeyError:
        raise HarnessError(
            f"no model endpoint was offered for rollout {rollout_id!r}; run the agent through drydock.rollout"
        ) from None
