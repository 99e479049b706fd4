"""Skills on their way into a sandbox, and those that a task's own image brings along."""

import shlex
from collections.abc import Sequence

from harbor.environments.base import BaseEnvironment

from drydock.errors import ConfigError, TaskError
from drydock.harness.failures import SandboxCommandFailed
from drydock.harness.sandbox_access import CommandTimedOut, SandboxAccess
from drydock.harness.skills import FILE, FOLDER, Skill, front_matter

MAX_FRONT_BYTES = 4096
"""How much of a SKILL.md in the sandbox is looked at."""

_UPLOAD_LIMIT_S = 60.0
_START = "\x1edrydock-skill:"


async def upload_skills(skills: Sequence[Skill], environment: BaseEnvironment, sandbox: SandboxAccess) -> None:
    """Put the run's skills into the sandbox, readable for all and writable for nobody, root included where the
    environment can see to that (`make_read_only`).

    Raises SandboxCommandFailed.
    """
    if not skills:
        return
    folders = " ".join(f"{FOLDER}/{skill.name}" for skill in skills)
    await _run(sandbox, f"rm -rf {folders} && mkdir -p {folders}")
    for skill in skills:
        await _upload(skill, environment)
    await _run(sandbox, f"chmod -R a-w,a+rX {folders}")
    make_read_only = getattr(environment, "make_read_only", None)
    if make_read_only is not None:
        await make_read_only(FOLDER)


async def _upload(skill: Skill, environment: BaseEnvironment) -> None:
    """Copy a skill's files; an environment may raise whatever it likes when that does not work."""
    assert skill.source is not None
    try:
        if skill.source.is_dir():
            await environment.upload_dir(skill.source, f"{FOLDER}/{skill.name}")
        else:
            await environment.upload_file(skill.source, f"{FOLDER}/{skill.name}/{FILE}")
    except Exception as error:
        raise SandboxCommandFailed(f"the skill {skill.source} could not be put into the sandbox: {error}") from error


async def skills_of_task(folder: str, sandbox: SandboxAccess) -> tuple[Skill, ...]:
    """The skills in the sandbox's folder that a task names as its `skills_dir`, by name.

    Raises TaskError for a SKILL.md that does not say its name and description.
    """
    # the folder's path may end up in a message, its contents only in the prompts of this task's own rollouts
    script = (
        f'for file in {shlex.quote(folder.rstrip("/"))}/*/{FILE}; do [ -f "$file" ] || continue; '
        f'printf \'%s%s\\n\' {shlex.quote(_START)} "$file"; head -c {MAX_FRONT_BYTES} "$file"; done'
    )
    skills = {}
    for part in (await _run(sandbox, script)).split(_START)[1:]:
        path, _, text = part.partition("\n")
        try:
            name, description = front_matter(text, path)
        except ConfigError as error:
            raise TaskError(f"a skill of the task cannot be used: {error}") from error
        skills[name] = Skill(name, description, path)
    return tuple(skills[name] for name in sorted(skills))


async def _run(sandbox: SandboxAccess, script: str) -> str:
    try:
        done = await sandbox.run(script, timeout_s=_UPLOAD_LIMIT_S, user="root")
    except CommandTimedOut as error:
        raise SandboxCommandFailed(f"skills could not be put into the sandbox: {error}") from error
    if done.return_code != 0:
        raise SandboxCommandFailed(f"skills could not be put into the sandbox: {done.stderr or done.stdout}")
    return done.stdout or ""
