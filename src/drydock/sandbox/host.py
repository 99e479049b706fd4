"""The `host` sandbox: trusted tasks on the driver's own machine. It confines nothing.

It exists for machines where the local sandbox cannot work and for tasks whose author you trust as you trust yourself:
commands run as the driver's user, with its network and its files. `HARBOR_ALLOW_HOST_EXEC=1` must be set. A trial has
`/app`, `/logs`, `/tests`, `/solution`, `/tmp` and the top-level directories of its Dockerfile to itself, so trials
can run side by side and leave nothing behind there. Of a Dockerfile, COPY, WORKDIR and ENV are replayed at each start;
RUN lines too, in that view (what they write elsewhere stays on the host); FROM is not looked
at. Only root can change users: for anybody else, USER, --chown and a command's user have no effect.
"""

import os
import shutil

from drydock.errors import SandboxUnavailable, TaskError
from drydock.sandbox.build_context import BuildContext
from drydock.sandbox.copying import carry_out
from drydock.sandbox.dockerfile import read_dockerfile
from drydock.sandbox.dockerfile_plan import Copy, Plan, Run
from drydock.sandbox.environment import SandboxEnvironment
from drydock.sandbox.host_machine import HostMachine
from drydock.sandbox.host_view import private_directories
from drydock.sandbox.ids import IdRange
from drydock.sandbox.transfer_pool import in_transfer_pool

GATE = "HARBOR_ALLOW_HOST_EXEC"
_SHOWN_OUTPUT = 2000
_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TERM", "TZ", "USER")


class HostEnvironment(SandboxEnvironment):
    """Harbor environment of the host sandbox; see `SandboxOptions` for its keyword arguments."""

    @staticmethod
    def type() -> str:
        return "host"

    async def start(self, force_build: bool) -> None:
        """Bring the view up and replay the Dockerfile in it (every time, so `force_build` changes nothing).

        Raises SandboxUnavailable without HARBOR_ALLOW_HOST_EXEC=1 or without bubblewrap.
        """
        if os.environ.get(GATE) != "1":
            raise SandboxUnavailable(
                f"the host sandbox runs a task's commands on this machine without confinement; set {GATE}=1 to allow it"
            )
        if shutil.which("bwrap") is None:
            raise SandboxUnavailable("bubblewrap is missing: run `apt-get install bubblewrap`")
        file = self.environment_dir / "Dockerfile"
        plan = await in_transfer_pool(read_dockerfile, file) if file.exists() else None
        _refuse_stages(plan)
        self._adopt_plan(plan)
        machine = HostMachine(
            private_directories(plan, self._workdir),
            state_dir=self.settings.state_dir,
            max_output_bytes=self.settings.max_output_bytes,
        )
        await machine.start()
        try:
            if plan is not None:
                await self._replay(plan, machine)
            await self._open_for_work(machine)
        except BaseException:
            self._machine = None
            await machine.stop()
            raise

    async def _apply_network_policy(self, network_policy: object) -> None:
        """The host's network is there whatever a task asks for: its author is trusted not to use it."""

    async def _replay(self, plan: Plan, machine: HostMachine) -> None:
        context = BuildContext.of(self.environment_dir)
        ids = IdRange(0, 1 << 31) if os.geteuid() == 0 else None
        for step in plan.result.steps:
            if isinstance(step, Run):
                env = {**self._passed_on(), **dict(step.env)}
                done = await machine.run_program(step.argv, user=self._user_of(step.user), cwd=step.workdir, env=env)
                if done.return_code != 0:
                    output = (done.stdout + done.stderr).decode(errors="replace").strip()[-_SHOWN_OUTPUT:]
                    raise TaskError(f"{plan.file}:{step.line}: RUN ended with status {done.return_code}:\n{output}")
            else:
                await in_transfer_pool(carry_out, machine.root, [step], context, plan.file, ids)

    def _environment_of(self, env: dict[str, str] | None) -> dict[str, str]:
        return {**self._passed_on(), **self._image_env, **(self._merge_env(env) or {})}

    def _user_of(self, user: str | int | None) -> str:
        return "" if os.geteuid() != 0 or user is None else str(user)

    def _owner(self) -> tuple[int, int] | None:
        return None

    @staticmethod
    def _passed_on() -> dict[str, str]:
        return {name: os.environ[name] for name in _PASSED_ON if name in os.environ}


def _refuse_stages(plan: Plan | None) -> None:
    """Raise TaskError for a plan that needs more than the host's own file system."""
    if plan is None:
        return
    if isinstance(plan.result.base, int):
        raise TaskError(f"{plan.file}:{plan.result.line}: the host sandbox has no stages to start from")
    for step in plan.result.steps:
        if isinstance(step, Copy) and step.stage is not None:
            raise TaskError(f"{plan.file}:{step.line}: the host sandbox has no stages or images to copy from")
