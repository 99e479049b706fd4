"""A model's name that is no folder is looked up once, under a limit; the hub here is a small HTTP server."""

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from drydock.errors import UserError
from drydock.service.hub_model import require_model

ANSWERS = {"known": 200, "moved": 307, "secret": 401, "gated": 403, "unknown": 404, "broken": 500}


class Hub(BaseHTTPRequestHandler):
    """Answers by the model's name; `slow` waits until the server's `done` is set."""

    def do_HEAD(self) -> None:
        owner, name, *rest = self.path.strip("/").split("/")
        assert (owner, rest) == ("acme", ["resolve", "main", "config.json"])
        if name == "slow":
            self.server.done.wait(30)  # pyright: ignore[reportAttributeAccessIssue]
        self.send_response(ANSWERS.get(name, 200))
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.done = threading.Event()  # pyright: ignore[reportAttributeAccessIssue]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    yield endpoint
    server.done.set()  # pyright: ignore[reportAttributeAccessIssue]
    server.shutdown()
    server.server_close()


def test_a_folder_and_what_the_hub_or_its_cache_has_pass(hub: str, tmp_path: Path):
    require_model(str(tmp_path))
    require_model("acme/known")
    require_model("acme/moved")
    cached = tmp_path / "cache" / "hub" / "models--acme--unknown" / "snapshots" / "1"
    cached.mkdir(parents=True)
    (cached / "config.json").write_text("{}")
    require_model("acme/unknown")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("acme/unknown", "has no such model"),
        ("acme/secret", "HF_TOKEN"),
        ("acme/gated", "HF_TOKEN"),
        ("acme/broken", "HTTP 500"),
    ],
)
def test_what_the_hub_does_not_give_is_neither_folder_nor_model(hub: str, name: str, why: str):
    with pytest.raises(UserError, match=rf"neither a model folder .* nor a hub model .*{hub}.*{why}"):
        require_model(name)


def test_a_hub_that_says_nothing_is_waited_for_as_long_as_the_limit_says(hub: str):
    started = time.monotonic()
    with pytest.raises(UserError, match=r"did not answer within 0\.5 s"):
        require_model("acme/slow", deadline_s=0.5)
    assert time.monotonic() - started < 10


def test_a_hub_that_is_not_there_and_one_that_must_not_be_asked_are_named(hub: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(UserError, match=r"127\.0\.0\.1:1 cannot be reached"):
        require_model("acme/known")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UserError, match="HF_HUB_OFFLINE is set"):
        require_model("acme/known")


@pytest.mark.parametrize("name", ["./nosuch", "a/b/c", "/nosuch", "what is this"])
def test_a_name_that_can_only_be_a_folder_is_not_asked_for(hub: str, name: str):
    with pytest.raises(UserError, match="there is no model folder"):
        require_model(name)
