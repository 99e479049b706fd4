"""One rollout, token by token, as `drydock trajectories show` prints it."""

import asyncio
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen
from textual.widgets import Footer, RichLog

from drydock.errors import DrydockError


class RolloutScreen(Screen[None]):
    """The page of the trajectory in `file`; what reads it is imported when it is needed."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape,backspace", "app.pop_screen", "back"), ("f", "whole", "uncut")]

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file = file

    def compose(self) -> ComposeResult:
        yield RichLog(wrap=True, auto_scroll=False)
        yield Footer()

    def on_mount(self) -> None:
        self._show(whole=False)

    def action_whole(self) -> None:
        self._show(whole=True)

    def _show(self, *, whole: bool) -> None:
        self.run_worker(self._load(whole), exclusive=True)

    async def _load(self, whole: bool) -> None:
        page = self.query_one(RichLog)
        page.clear()
        page.write(Text(f"reading {self.file} …", style="dim"))
        page.focus()
        try:
            lines = await asyncio.to_thread(read_page, self.file, whole=whole)
        except DrydockError as error:
            lines = [Text(str(error), style="red")]
        page.clear()
        for line in lines:
            page.write(line, width=page.scrollable_content_region.width)


def read_page(file: Path, *, whole: bool) -> list[Text]:
    """The lines of the rollout's page; whole: long stretches of prompt are not cut. Raises UserError."""
    from drydock.report.trajectory_facts import teller
    from drydock.report.trajectory_page import PROMPT_CHARS, rollout_page
    from drydock.report.trajectory_tokenizer import tokenizer_for
    from drydock.rollout.trajectory_files import read_trajectory

    trajectory = read_trajectory(file)
    tell = teller(tokenizer_for(file, None))
    return [Text(str(file), style="dim"), *rollout_page(trajectory, tell, None if whole else PROMPT_CHARS)]
