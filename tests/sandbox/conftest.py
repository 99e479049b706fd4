"""Sandboxes for tests: the real thing, or a skip that says what the machine lacks."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from builders.sandbox_environment import build_environment

from drydock.sandbox.environment import SandboxEnvironment
from drydock.sandbox.host import HostEnvironment
from drydock.sandbox.local import LocalEnvironment
from drydock.sandbox.requirements import check_local
from drydock.sandbox.rootfs import rootfs_path
from drydock.sandbox.rootfs_archive import export_rootfs


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("sandbox")]
    if not marked:
        return
    missing = [requirement for requirement in check_local() if not requirement.ok]
    if missing:
        reason = "; ".join(f"{item.name}: {item.detail} ({item.remedy})" for item in missing)
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=f"no local sandbox here: {reason}"))


@pytest.fixture(scope="session")
def rootfs_archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This machine's root file system as an archive."""
    cache = tmp_path_factory.mktemp("source")
    (cache / "rootfs").mkdir()
    rootfs_path(cache).symlink_to(rootfs_path())
    file = cache / "system.tar"
    export_rootfs(file, cache)
    return file


type Start = Callable[..., Any]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Start a local sandbox from a Dockerfile's text; it is stopped after the test."""
    started: list[SandboxEnvironment] = []

    async def _start(
        dockerfile: str = "FROM debian:bookworm\n", *, name: str = "task", **kwargs: Any
    ) -> LocalEnvironment:
        environment = build_environment(LocalEnvironment, tmp_path / name, dockerfile, **kwargs)
        started.append(environment)
        await environment.start(force_build=False)
        assert isinstance(environment, LocalEnvironment)
        return environment

    yield _start
    for environment in started:
        await environment.stop(delete=True)


@pytest.fixture
async def local(start: Start) -> LocalEnvironment:
    """A plain local sandbox."""
    return await start()


@pytest.fixture
async def start_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Start]:
    """Start a host sandbox; it is stopped after the test."""
    monkeypatch.setenv("HARBOR_ALLOW_HOST_EXEC", "1")
    started: list[SandboxEnvironment] = []

    async def _start(dockerfile: str = "FROM debian\n", *, name: str = "host", **kwargs: Any) -> HostEnvironment:
        environment = build_environment(HostEnvironment, tmp_path / name, dockerfile, **kwargs)
        started.append(environment)
        await environment.start(force_build=False)
        assert isinstance(environment, HostEnvironment)
        return environment

    yield _start
    for environment in started:
        await environment.stop(delete=True)
