"""What failed findings become at the start of a run: one refusal that names all of them, each with its remedy."""

from collections.abc import Callable, Sequence

from drydock.errors import ConfigError
from drydock.finding import Level
from drydock.training.preflight.check import Found


class PreflightFailed(ConfigError):
    """The run as it is configured cannot work here; nothing was created."""


def refuse_failures(found: Sequence[Found], note: Callable[[str], None]) -> None:
    """Tell `note` the warnings. Raises PreflightFailed, naming every failure, when there is one."""
    for _, finding in found:
        if finding.level is Level.WARN:
            note(f"warning: {finding.detail} ({finding.remedy})")
    failed = [(area, finding) for area, finding in found if not finding.ok]
    if failed:
        what = "1 check failed" if len(failed) == 1 else f"{len(failed)} checks failed"
        lines = [f"\n- {area}, {one.name}: {one.detail}\n  remedy: {one.remedy}" for area, one in failed]
        raise PreflightFailed(f"{what}, and nothing was created:{''.join(lines)}")
