"""A driver of many sandboxes holds more descriptors than select() can name."""

import os
import resource
from collections.abc import Iterator

import pytest
from builders.local_sandbox import needs_sandbox
from builders.sandbox_environment import build_environment

from drydock.sandbox.local import LocalEnvironment

pytestmark = [
    pytest.mark.sandbox,
    needs_sandbox,
]


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2048:
        pytest.skip("this machine allows fewer than 2048 descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (2048 if soft < 2048 else soft, hard))
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(1100)]
    yield
    for descriptor in held:
        os.close(descriptor)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_sandbox_starts_beside_a_thousand_open_descriptors(tmp_path, many_descriptors) -> None:
    environment = build_environment(LocalEnvironment, tmp_path / "task", "FROM debian\nWORKDIR /app\n")
    await environment.start(force_build=False)
    try:
        assert (await environment.exec("echo works")).stdout == "works\n"
    finally:
        await environment.stop(delete=True)
