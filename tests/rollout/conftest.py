"""Real proxies and rollout settings for the tests of this directory."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from builders.policy import SOLVE_HELLO, by_turn
from builders.scripted_sampler import ScriptedSampler
from builders.tiny_tokenizer import build_tiny_tokenizer

from drydock.chat.parsers.hermes import HermesParser
from drydock.chat.template import ChatTemplate
from drydock.proxy.server import ChatProxy
from drydock.proxy.settings import ProxySettings
from drydock.rollout import RolloutDeadlines, RolloutSettings, RolloutSpec

SANDBOX = "host"

DEADLINES = RolloutDeadlines(sandbox_start_s=60, agent_setup_s=20, agent_s=30, verifier_s=30, cleanup_s=15)


@pytest.fixture(autouse=True)
def _host_execution_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARBOR_ALLOW_HOST_EXEC", "1")


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="session")
def template(tokenizer_folder: Path) -> ChatTemplate:
    return ChatTemplate.load(tokenizer_folder)


Serve = Callable[..., AbstractAsyncContextManager[ChatProxy]]


@pytest.fixture
def serve(template: ChatTemplate) -> Serve:
    """`async with serve(replies, function or sampler)`: a proxy whose policy is scripted."""

    @asynccontextmanager
    async def start(
        policy: Any = SOLVE_HELLO, *, context_tokens: int = 8000, max_new_tokens: int = 500, **settings: Any
    ) -> AsyncIterator[ChatProxy]:
        if isinstance(policy, Sequence):
            sampler = by_turn(template, policy)
        else:
            sampler = policy if hasattr(policy, "sample") else ScriptedSampler(template, policy)
        limits = ProxySettings(context_tokens=context_tokens, max_new_tokens=max_new_tokens, **settings)
        async with ChatProxy(template, HermesParser(), sampler, limits) as proxy:
            yield proxy

    return start


@pytest.fixture
def settings(tmp_path: Path) -> RolloutSettings:
    return RolloutSettings(
        environment=SANDBOX,
        environment_kwargs={"state_dir": str(tmp_path / "sandboxes")},
        agent_kwargs={"max_turns": 8, "command_timeout_s": 20.0},
        deadlines=DEADLINES,
        work_dir=tmp_path / "trials",
    )


@pytest.fixture
def spec_for() -> Callable[..., RolloutSpec]:
    """`spec_for(task_path, repetition=0)`."""

    def make(task_path: Path, repetition: int = 0) -> RolloutSpec:
        return RolloutSpec(task=task_path.name, task_path=task_path, step=1, split="train", repetition=repetition)

    return make
