"""The system prompt: read once, identical for every rollout of a run.

A file whose name ends in `.j2` is a Jinja template and sees `tools` (the names that the model sees) and `max_turns`; it
can include files beside it, and a variable that nobody gives it is refused, where Jinja would write nothing. Anything
else is used word for word. Nothing that differs between rollouts or machines (time, paths, user) is
offered to the template, because every rollout of a step shares this prefix. The skills' list follows the prompt.
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError, Undefined

from drydock.errors import UserError
from drydock.harness.skills import Skill, listing
from drydock.harness.tool_schemas import visible_name


class _Unknown(StrictUndefined):
    """A variable that is not there: false in a condition, as templates for the SDK expect, and otherwise an error."""

    __bool__ = Undefined.__bool__


DEFAULT_PROMPT_FILE = Path(__file__).with_name("prompts") / "system_prompt.txt"


def system_prompt(
    file: str | Path | None, tools: Sequence[str], skills: Sequence[Skill] = (), *, max_turns: int
) -> str:
    """Return the system prompt in `file` (the shipped one for None) for an agent with `tools` and `skills`.

    max_turns: turns that a rollout may take, for a template that tells the model.

    Raises UserError when the file cannot be read or its template cannot be rendered.
    """
    path = Path(file) if file is not None else DEFAULT_PROMPT_FILE
    try:
        modified_ns = path.stat().st_mtime_ns
    except OSError as error:
        raise UserError(f"cannot read the system prompt file {path}: {error.strerror}") from error
    prompt = _rendered(path, modified_ns, tuple(visible_name(tool) for tool in tools), max_turns)
    return f"{prompt}\n\n{listing(skills)}" if skills else prompt


@lru_cache(maxsize=16)
def _rendered(path: Path, modified_ns: int, tools: tuple[str, ...], max_turns: int) -> str:
    """`modified_ns` is part of the cache key only."""
    try:
        text = _of_template(path, tools, max_turns) if path.suffix == ".j2" else path.read_text(encoding="utf-8")
    except TemplateError as error:
        line = getattr(error, "lineno", None)
        raise UserError(
            f"cannot use {path}{f':{line}' if line else ''} as system prompt: {error}; a template sees `tools` and "
            "`max_turns`"
        ) from error
    except Exception as error:  # a template is its author's code and can raise whatever it likes
        raise UserError(f"cannot use {path} as system prompt: {error}") from error
    text = text.strip()
    if not text:
        raise UserError(f"the system prompt file {path} is empty; write the agent's instructions into it")
    return text


def _of_template(path: Path, tools: tuple[str, ...], max_turns: int) -> str:
    environment = Environment(loader=FileSystemLoader(path.parent), undefined=_Unknown, autoescape=False)
    return environment.get_template(path.name).render(tools=list(tools), max_turns=max_turns)
