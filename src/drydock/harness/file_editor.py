"""The `file_editor`: views and edits of text files in the sandbox, with undo.

An edit can be taken back as long as the file is as the edit left it; a file that something else has changed since is
left alone, so that undoing never loses another change.
"""

import posixpath

from drydock.harness.custom_tool import ToolRefused
from drydock.harness.observation import cut_middle
from drydock.harness.sandbox_access import SandboxAccess
from drydock.harness.sandbox_files import SandboxFiles
from drydock.harness.text_edit import insert_after, lines_of, replace_once, snippet, view

UNDO_DEPTH = 10
"""Edits of one file that can be taken back."""


class FileEditor:
    """One rollout's editor; each method returns the text for the model or raises ToolRefused."""

    def __init__(self, sandbox: SandboxAccess) -> None:
        self._files = SandboxFiles(sandbox)
        self._max_chars = sandbox.max_output_chars
        self._edits: dict[str, list[tuple[str | None, str]]] = {}
        """Of each file the contents before (None: there was no file) and after its latest edits."""

    async def view(self, path: str, view_range: list[int] | None = None) -> str:
        """A file with line numbers, or what is in a directory."""
        path = _absolute(path)
        entries = await self._files.list_directory(path)
        if entries is None:
            return cut_middle(view(await self._text(path), view_range), self._max_chars)
        if view_range is not None:
            raise ToolRefused(f"{path} is a directory; view it without view_range")
        return cut_middle("\n".join([f"{path}:", *entries]) if entries else f"{path} is empty", self._max_chars)

    async def create(self, path: str, file_text: str) -> str:
        """Write a file that is not there yet."""
        path = _absolute(path)
        if await self._files.read(path) is not None:
            raise ToolRefused(f"{path} exists; edit it with str_replace or insert")
        await self._write(path, None, file_text)
        return f"created {path} ({len(lines_of(file_text))} lines)"

    async def str_replace(self, path: str, old_str: str, new_str: str) -> str:
        """Replace text that stands in one place."""
        path = _absolute(path)
        before = await self._text(path)
        after, line = replace_once(before, old_str, new_str)
        await self._write(path, before, after)
        return self._edited(path, snippet(after, line, new_str.count("\n") + 1))

    async def insert(self, path: str, insert_line: int, new_str: str) -> str:
        """Add lines after a line."""
        path = _absolute(path)
        before = await self._text(path)
        after = insert_after(before, insert_line, new_str)
        await self._write(path, before, after)
        return self._edited(path, snippet(after, insert_line + 1, new_str.removesuffix("\n").count("\n") + 1))

    async def undo_edit(self, path: str) -> str:
        """Take back the file's latest edit."""
        path = _absolute(path)
        edits = self._edits.get(path)
        if not edits:
            raise ToolRefused(f"there is no edit of {path} to take back")
        before, after = edits[-1]
        if await self._files.read(path) != after:
            raise ToolRefused(f"{path} was changed by something else since its last edit; undo_edit would lose that")
        if before is None:
            await self._files.remove(path)
        else:
            await self._files.write(path, before)
        edits.pop()
        return f"took back the creation of {path}" if before is None else f"took back the last edit of {path}"

    async def _text(self, path: str) -> str:
        text = await self._files.read(path)
        if text is None:
            raise ToolRefused(f"{path} does not exist")
        return text

    async def _write(self, path: str, before: str | None, after: str) -> None:
        await self._files.write(path, after)
        edits = self._edits.setdefault(path, [])
        edits.append((before, after))
        del edits[:-UNDO_DEPTH]

    def _edited(self, path: str, shown: str) -> str:
        return cut_middle(f"edited {path}:\n{shown}", self._max_chars)


def _absolute(path: str) -> str:
    """The path in its shortest form; raises ToolRefused for a relative one."""
    if "\0" in path or not path.startswith("/"):
        raise ToolRefused(f"the path {path!r} is not absolute; begin it with /")
    return posixpath.normpath("/" + path.lstrip("/"))
