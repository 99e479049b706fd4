"""The chat proxy's counterpart for a model behind somebody else's endpoint: keys, HTTP routes, sessions.

An agent gets the relay's address and a key of its own rollout. The endpoint's address and key stay in this process.
"""

from typing import Self

from drydock.errors import ProxyError
from drydock.proxy.admission import Admission
from drydock.proxy.endpoint.client import EndpointClient
from drydock.proxy.endpoint.session import EndpointSession
from drydock.proxy.http_server import HttpServer
from drydock.proxy.keys import RolloutKeys, new_key
from drydock.proxy.routes import ProxyRoutes
from drydock.proxy.settings import ProxySettings

KEEP_ALIVE_EVERY_S = 15.0


class EndpointRelay:
    """Serves rollouts while its `async with` block runs. Sessions still open at the end are closed."""

    def __init__(self, client: EndpointClient, settings: ProxySettings, *, host: str = "127.0.0.1") -> None:
        """client: the caller's, who closes it."""
        self._client = client
        self._settings = settings
        self._host = host
        self._admission = Admission(settings.max_concurrent_calls)
        self._keys = RolloutKeys()
        self._server = HttpServer(ProxyRoutes(self._keys, None, KEEP_ALIVE_EVERY_S).app(), host)

    async def __aenter__(self) -> Self:
        await self._server.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        for session in self._keys.sessions():
            await session.close()
        await self._server.__aexit__(*exc_info)

    def open_rollout(self, rollout_id: str) -> EndpointSession:
        """Give a rollout its key. Raises ProxyError when the rollout is open already or the relay does not run."""
        if not self._server.port:
            raise ProxyError("the relay is not running; enter its async context first")
        if any(session.rollout_id == rollout_id for session in self._keys.sessions()):
            raise ProxyError(f"rollout {rollout_id!r} is already open at the relay; rollout ids must be unique")
        key = new_key()
        session = EndpointSession(
            rollout_id,
            base_url=f"http://{self._host}:{self._server.port}/v1",
            api_key=key,
            client=self._client,
            settings=self._settings,
            admission=self._admission,
            on_close=lambda: self._keys.revoke(key),
        )
        self._keys.add(key, session)
        return session
