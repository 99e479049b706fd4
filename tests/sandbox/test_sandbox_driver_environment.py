"""Nothing of the driver's environment gets into a sandbox: not to commands, not to RUN lines, not to process 1."""

from pathlib import Path

import pytest

from drydock.sandbox.environment import SandboxEnvironment
from drydock.sandbox.rootfs import rootfs_path

pytestmark = pytest.mark.sandbox

SENTINEL = "a-secret-of-the-driver"
EVERYTHING = "env; cat /proc/self/environ /proc/1/environ /proc/$PPID/environ 2>/dev/null | tr '\\0' '\\n'"
DOCKERFILE = f"FROM debian\nWORKDIR /app\nRUN ({EVERYTHING}) > /app/of-run || true\n"
OWN = {"PATH", "HOME", "PWD", "SHLVL", "OLDPWD", "_"}
OF_THE_HOST = {*OWN, "LANG", "LC_ALL", "TERM", "TZ", "USER"}


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_SENTINEL", SENTINEL)


async def test_commands_of_the_local_sandbox_see_none_of_it(start, tmp_path):
    await _see_only(await start(DOCKERFILE, cache_dir=_cache(tmp_path)), OWN)


async def test_commands_of_the_host_sandbox_see_a_few_harmless_ones(start_host):
    await _see_only(await start_host(DOCKERFILE), OF_THE_HOST)


async def _see_only(environment: SandboxEnvironment, expected: set[str]) -> None:
    everything = await environment.exec(f"{EVERYTHING}; cat /app/of-run")
    assert "PATH=" in everything.stdout
    assert SENTINEL not in everything.stdout
    named = await environment.exec("env", env={"GIVEN": "x"})
    names = {line.split("=", 1)[0] for line in named.stdout.splitlines()}
    assert "GIVEN" in names
    assert names <= {*expected, "GIVEN"}


def _cache(tmp_path: Path) -> Path:
    """A cache of the test's own, so that the RUN line is carried out in its environment."""
    directory = tmp_path / "cache"
    (directory / "rootfs").mkdir(parents=True)
    rootfs_path(directory).symlink_to(rootfs_path())
    return directory
