"""One conversation of the agent, kept in memory only.

The SDK writes each event and each change of state as JSON to a file store, and looks for plugins and agent
definitions in the driver's working and home directories, whose hooks it would run and whose text would reach the
prompt. A rollout's record is the chat proxy's, so the store here keeps nothing; and nothing of the driver's belongs in
a rollout, so the search is left out.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

from drydock.harness.agent import RolloutAgent
from drydock.harness.sdk import PERSISTENCE_DIR, FileStore, LocalConversation

WORKSPACE = PERSISTENCE_DIR / "workspace"


class ForgetfulStore(FileStore):
    """A file store that takes everything and keeps nothing."""

    def write(self, path: str, contents: str | bytes) -> None:
        pass

    def read(self, path: str) -> str:
        raise FileNotFoundError(path)

    def list(self, path: str) -> list[str]:
        return []

    def delete(self, path: str) -> None:
        pass

    def exists(self, path: str) -> bool:
        """True, so that the event log sees its own marker and does not look for other writers."""
        return True

    def get_absolute_path(self, path: str) -> str:
        return str(WORKSPACE / path)

    @contextmanager
    def lock(self, path: str, timeout: float = 30.0) -> Iterator[None]:
        yield


class RolloutConversation(LocalConversation):
    """A conversation without persistence, visualizer, stuck detection or the driver's own agent files."""

    def __init__(self, agent: RolloutAgent, *, rollout_id: str, max_turns: int) -> None:
        super().__init__(
            agent=agent,
            workspace=WORKSPACE,
            conversation_id=conversation_id(rollout_id),
            file_store=ForgetfulStore(),
            max_iteration_per_run=max_turns,
            stuck_detection=False,
            visualizer=None,
            profile_store_dir=Path(PERSISTENCE_DIR) / "profiles",
        )

        self._state._autosave_enabled = False

    def _ensure_plugins_loaded(self) -> None:
        self._plugins_loaded = True

    def _register_file_based_agents(self) -> None:
        pass

    def __del__(self) -> None:
        """The owner closes the conversation; the SDK's finalizer would do it again on any thread."""


def conversation_id(rollout_id: str) -> UUID:
    """The conversation's id, the same for the same rollout id; it travels in request headers."""
    return uuid5(NAMESPACE_URL, f"drydock:rollout:{rollout_id}")


def events_of(conversation: RolloutConversation) -> list[Any]:
    """The conversation's events in order."""
    return list(conversation.state.events)
