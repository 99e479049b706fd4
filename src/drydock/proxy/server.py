"""The chat proxy: the endpoint that agents are given, in the caller's event loop, on loopback unless told otherwise.

Each rollout has its own key and sees nothing but its own session.
"""

from pathlib import Path
from typing import Self

from drydock.chat.parsers.base import ToolCallParser
from drydock.chat.template import ChatTemplate
from drydock.errors import ProxyError
from drydock.proxy.admission import Admission
from drydock.proxy.http_server import HttpServer
from drydock.proxy.keys import RolloutKeys, new_key
from drydock.proxy.routes import ProxyRoutes
from drydock.proxy.sampler import Sampler
from drydock.proxy.session import RolloutSession
from drydock.proxy.settings import ProxySettings
from drydock.proxy.turn_log import TurnLog


class ChatProxy:
    """Serves rollouts while its `async with` block runs. Sessions still open at the end are closed.

    host: where it listens. Another one than loopback lets every machine that reaches it try keys.
    keep_alive_every_s: seconds between two comments of a streamed answer whose turn is still being sampled.
    """

    def __init__(
        self,
        template: ChatTemplate,
        parser: ToolCallParser,
        sampler: Sampler,
        settings: ProxySettings,
        *,
        host: str = "127.0.0.1",
        keep_alive_every_s: float = 15.0,
    ) -> None:
        self._template = template
        self._parser = parser
        self._sampler = sampler
        stops = sorted({*settings.sampling.stop_token_ids, *template.stop_ids})
        sampling = settings.sampling.model_copy(
            update={"stop_token_ids": stops, "logprobs": settings.sampling.logprobs or 0}
        )
        self._settings = settings.model_copy(update={"sampling": sampling})
        self._admission = Admission(settings.max_concurrent_calls)
        self._host = host
        self._keys = RolloutKeys()
        self._server = HttpServer(ProxyRoutes(self._keys, template, keep_alive_every_s).app(), host)

    @property
    def root_url(self) -> str:
        """URL without the version segment, which Anthropic's clients add themselves."""
        if not self._server.port:
            raise ProxyError("the chat proxy is not running; enter its async context first")
        return f"http://{self._host}:{self._server.port}"

    @property
    def base_url(self) -> str:
        """URL up to and including the version segment, as OpenAI's clients want it."""
        return f"{self.root_url}/v1"

    async def __aenter__(self) -> Self:
        await self._server.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        for session in self._keys.sessions():
            await session.close()
        await self._server.__aexit__(*exc_info)

    def open_rollout(self, rollout_id: str, *, record_path: Path | None = None) -> RolloutSession:
        """Give a rollout its key. `record_path`: JSONL file of its turns.

        Raises ProxyError when the rollout is open already.
        """
        if any(session.rollout_id == rollout_id for session in self._keys.sessions()):
            raise ProxyError(f"rollout {rollout_id!r} is already open at the chat proxy; rollout ids must be unique")
        if record_path is None and self._settings.turn_log is not None:
            record_path = self._settings.turn_log / f"{rollout_id.replace('/', '_')}.jsonl"
        key = new_key()
        session = RolloutSession(
            rollout_id,
            base_url=self.base_url,
            api_key=key,
            template=self._template,
            parser=self._parser,
            sampler=self._sampler,
            settings=self._settings,
            turn_log=TurnLog(record_path),
            on_close=lambda _: self._keys.revoke(key),
            admission=self._admission,
        )
        self._keys.add(key, session)
        return session
