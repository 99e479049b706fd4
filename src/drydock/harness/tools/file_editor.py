"""The `file_editor` tool: the SDK's face of `drydock.harness.file_editor`."""

from typing import ClassVar, Literal

from drydock.harness.custom_tool import ToolRefused
from drydock.harness.file_editor import FileEditor
from drydock.harness.sandbox_access import SandboxAccess
from drydock.harness.sdk import Action
from drydock.harness.tools.base import DriverTool, TextExecutor, TextObservation


class EditFileAction(Action):
    command: Literal["view", "create", "str_replace", "insert", "undo_edit"]
    path: str
    file_text: str | None = None
    old_str: str | None = None
    new_str: str | None = None
    insert_line: int | None = None
    view_range: list[int] | None = None


class EditFileExecutor(TextExecutor[EditFileAction]):
    def __init__(self, sandbox: SandboxAccess) -> None:
        self._editor = FileEditor(sandbox)

    async def answer(self, action: EditFileAction) -> str:
        editor, path = self._editor, action.path
        match action.command:
            case "view":
                return await editor.view(path, action.view_range)
            case "create":
                return await editor.create(path, _given(action, "file_text"))
            case "str_replace":
                return await editor.str_replace(path, _given(action, "old_str"), action.new_str or "")
            case "insert":
                return await editor.insert(path, _given(action, "insert_line"), _given(action, "new_str"))
            case "undo_edit":
                return await editor.undo_edit(path)


class EditFileTool(DriverTool[EditFileAction, TextObservation]):
    name: ClassVar[str] = "file_editor"

    @classmethod
    def bound_to(cls, sandbox: SandboxAccess) -> "EditFileTool":
        return cls.of(cls.name, EditFileAction, TextObservation, EditFileExecutor(sandbox))


def _given(action: EditFileAction, argument: str):
    value = getattr(action, argument)
    if value is None:
        raise ToolRefused(f"{action.command} needs {argument}")
    return value
