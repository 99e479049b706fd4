"""The system prompt: read once, identical for every rollout of a run.

A file whose name ends in `.j2` is a Jinja template in the SDK's dialect and sees `tools` (the names that the model
sees); anything else is used word for word. Nothing that differs between rollouts or machines (time, paths, user) is
offered to the template, because every rollout of a step shares this prefix. The skills' list follows the prompt.
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from drydock.errors import UserError
from drydock.harness.sdk import render_template
from drydock.harness.skills import Skill, listing
from drydock.harness.tool_schemas import visible_name

DEFAULT_PROMPT_FILE = Path(__file__).with_name("prompts") / "system_prompt.txt"


def system_prompt(file: str | Path | None, tools: Sequence[str], skills: Sequence[Skill] = ()) -> str:
    """Return the system prompt in `file` (the shipped one for None) for an agent with `tools` and `skills`.

    Raises UserError when the file cannot be read or its template cannot be rendered.
    """
    path = Path(file) if file is not None else DEFAULT_PROMPT_FILE
    try:
        modified_ns = path.stat().st_mtime_ns
    except OSError as error:
        raise UserError(f"cannot read the system prompt file {path}: {error.strerror}") from error
    prompt = _rendered(path, modified_ns, tuple(visible_name(tool) for tool in tools))
    return f"{prompt}\n\n{listing(skills)}" if skills else prompt


@lru_cache(maxsize=16)
def _rendered(path: Path, modified_ns: int, tools: tuple[str, ...]) -> str:
    """`modified_ns` is part of the cache key only."""
    try:
        if path.suffix == ".j2":
            text = render_template(str(path.parent), path.name, tools=list(tools))
        else:
            text = path.read_text(encoding="utf-8")
    except Exception as error:
        raise UserError(f"cannot use {path} as system prompt: {error}") from error
    text = text.strip()
    if not text:
        raise UserError(f"the system prompt file {path} is empty; write the agent's instructions into it")
    return text
