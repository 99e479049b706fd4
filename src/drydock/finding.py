"""What a check of this machine or of a configuration found, and what to do about it."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """pass: all is well. warn: it works, with less than it could. fail: it does not work."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """name: what was checked; detail: what was seen; remedy: what to do about it, where there is something to do."""

    name: str
    level: Level
    detail: str
    remedy: str = ""

    @property
    def remedy_needed(self) -> str:
        """The remedy where there is something to mend, else nothing."""
        return "" if self.level is Level.PASS else self.remedy

    @property
    def ok(self) -> bool:
        """Whether things work, if perhaps with less than they could."""
        return self.level is not Level.FAIL
