"""From a list of tool names to tools bound to one rollout's sandbox."""

from collections.abc import Callable, Sequence
from typing import Any

from drydock.harness.persistent_shell import PersistentShell
from drydock.harness.sandbox_access import SandboxAccess
from drydock.harness.shell import SandboxShell
from drydock.harness.tool_schemas import check_tool_names, visible_name
from drydock.harness.tools.base import DriverTool
from drydock.harness.tools.custom import CustomSdkTool
from drydock.harness.tools.file_editor import EditFileTool
from drydock.harness.tools.finish import SubmitTool
from drydock.harness.tools.task_tracker import TrackTasksTool
from drydock.harness.tools.terminal import SandboxTerminalTool
from drydock.harness.tools.think import ThinkAloudTool

type AnyTool = DriverTool[Any, Any]

MAKERS: dict[str, Callable[[SandboxAccess, str], AnyTool]] = {
    "terminal": lambda sandbox, rollout_id: SandboxTerminalTool.bound_to(SandboxShell(sandbox, rollout_id=rollout_id)),
    "persistent_terminal": lambda sandbox, rollout_id: SandboxTerminalTool.bound_to(
        PersistentShell(sandbox, rollout_id=rollout_id), "persistent_terminal"
    ),
    "file_editor": lambda sandbox, _: EditFileTool.bound_to(sandbox),
    "think": lambda _sandbox, _: ThinkAloudTool.fresh(),
    "task_tracker": lambda _sandbox, _: TrackTasksTool.fresh(),
    "finish": lambda _sandbox, _: SubmitTool.fresh(),
}
"""By key, from the sandbox and the rollout's id."""


def build_tools(names: Sequence[str], sandbox: SandboxAccess, rollout_id: str) -> dict[str, AnyTool]:
    """Make the tools chosen by `names`, in that order, by the names that the model sees."""
    tools: dict[str, AnyTool] = {}
    for name in check_tool_names(names):
        maker = MAKERS.get(name)
        tool = CustomSdkTool.bound_to(name, sandbox) if maker is None else maker(sandbox, rollout_id)
        tools[visible_name(name)] = tool
    return tools
