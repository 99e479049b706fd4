"""From a list of tool names to tools bound to one rollout's sandbox."""

from collections.abc import Callable, Sequence
from typing import Any

from drydock.harness.shell import SandboxShell
from drydock.harness.tool_schemas import check_tool_names
from drydock.harness.tools.base import DriverTool
from drydock.harness.tools.finish import SubmitTool
from drydock.harness.tools.task_tracker import TrackTasksTool
from drydock.harness.tools.terminal import SandboxTerminalTool

MAKERS: dict[str, Callable[[SandboxShell], DriverTool[Any, Any]]] = {
    "terminal": SandboxTerminalTool.bound_to,
    "task_tracker": lambda shell: TrackTasksTool.fresh(),
    "finish": lambda shell: SubmitTool.fresh(),
}


def build_tools(names: Sequence[str], shell: SandboxShell) -> dict[str, DriverTool[Any, Any]]:
    """Make the tools called `names`, in that order, working in `shell`."""
    return {name: MAKERS[name](shell) for name in check_tool_names(names)}
