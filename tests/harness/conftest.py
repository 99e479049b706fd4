"""Real sandboxes for the agent's tools: the local one as root and as another user, and the host's."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from builders.bash_environment import BashEnvironment, bash_environment
from builders.sandbox_environment import build_environment

from drydock.harness.sandbox_access import SandboxAccess
from drydock.sandbox.environment import SandboxEnvironment
from drydock.sandbox.host import HostEnvironment
from drydock.sandbox.local import LocalEnvironment
from drydock.sandbox.requirements import check_local

MISSING = "; ".join(f"{one.name}: {one.detail}" for one in check_local() if not one.ok)

DOCKERFILE = "FROM debian:bookworm-slim\nWORKDIR /app\n"
AS_USER = DOCKERFILE + "RUN useradd -m worker && chown worker /app\nUSER worker\n"


@pytest.fixture(params=["local", "local as a user", "host"])
async def environment(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[SandboxEnvironment]:
    monkeypatch.setenv("HARBOR_ALLOW_HOST_EXEC", "1")
    if request.param != "host" and MISSING:
        pytest.skip(MISSING)
    kind = HostEnvironment if request.param == "host" else LocalEnvironment
    dockerfile = AS_USER if request.param == "local as a user" else DOCKERFILE
    environment = build_environment(kind, tmp_path / "task", dockerfile)
    await environment.start(force_build=False)
    yield environment
    await environment.stop(delete=True)


@pytest.fixture
async def bash(tmp_path: Path) -> AsyncIterator[BashEnvironment]:
    """Plain bash on this machine, for what does not depend on a sandbox."""
    environment = bash_environment(tmp_path)
    await environment.start(force_build=False)
    yield environment
    await environment.stop(delete=True)


@pytest.fixture
def sandbox(environment: SandboxEnvironment) -> SandboxAccess:
    return SandboxAccess(environment, timeout_s=20, max_output_chars=5000)
