"""Skills: folders with instructions that the agent may read (`SKILL.md` with a name and a description in front).

They are listed in the system prompt and put into the sandbox, where the agent reads and runs them like other files.
The SDK's own way with skills is not used: it would carry out commands in a SKILL.md on the driver.

A source is a folder with a SKILL.md, all of which is put into the sandbox, or a single SKILL.md file. Everything about
it is read on the driver once; the sandbox gets a copy that belongs to root and that nobody may write (root can, in its
own sandbox).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from drydock.errors import ConfigError

FOLDER = "/skills"
"""Where skills are in the sandbox, each in a folder of its name."""

FILE = "SKILL.md"
MAX_DESCRIPTION_CHARS = 1024
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_FRONT = re.compile(r"\A---\r?\n(.*?)\r?\n---\s*?(\r?\n|\Z)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Skill:
    """One skill. path: of its SKILL.md in the sandbox. source: on the driver; None: it is in the sandbox already."""

    name: str
    description: str
    path: str
    source: Path | None = None


def read_skills(sources: Sequence[Path]) -> tuple[Skill, ...]:
    """The skills of a run, in the order given; raises ConfigError for a source that is none, or two of one name."""
    skills: dict[str, Skill] = {}
    for source in sources:
        file = source / FILE if source.is_dir() else source
        try:
            skill = _read(source, file, file.stat().st_mtime_ns)
        except OSError as error:
            raise ConfigError(f"the skill {source} cannot be read: {file}: {error.strerror}") from error
        if skill.name in skills:
            raise ConfigError(f"two skills are called {skill.name!r}: {skills[skill.name].source} and {source}")
        skills[skill.name] = skill
    return tuple(skills.values())


@lru_cache(maxsize=64)
def _read(source: Path, file: Path, modified_ns: int) -> Skill:
    """`modified_ns` is part of the cache key only."""
    name, description = front_matter(file.read_text(encoding="utf-8", errors="replace"), str(file))
    return Skill(name, description, f"{FOLDER}/{name}/{FILE}", source)


def front_matter(text: str, where: str) -> tuple[str, str]:
    """Name and description of a SKILL.md; raises ConfigError saying what is missing `where`."""
    import yaml

    found = _FRONT.match(text)
    try:
        fields: Any = yaml.safe_load(found[1]) if found else None
    except yaml.YAMLError as error:
        raise ConfigError(f"{where}: the lines between --- are no YAML: {error}") from error
    if not isinstance(fields, dict):
        raise ConfigError(f"{where}: it begins with no `---` block that gives the skill's name and description")
    name, description = fields.get("name"), fields.get("description")
    if not (isinstance(name, str) and _NAME.fullmatch(name) and len(name) <= 64):
        raise ConfigError(f"{where}: name is {name!r}; give lower-case letters, digits and single hyphens, 64 at most")
    if not (isinstance(description, str) and description.strip()):
        raise ConfigError(f"{where}: the skill {name!r} needs a description, by which the agent knows when to read it")
    return name, " ".join(description.split())[:MAX_DESCRIPTION_CHARS]


def listing(skills: Sequence[Skill]) -> str:
    """The part of the system prompt that lists the skills; empty without any."""
    if not skills:
        return ""
    lines = [f"- {skill.name} ({skill.path}): {skill.description}" for skill in skills]
    return "\n".join(["Skills, instructions for certain kinds of work. Read the file before such work:", *lines])
