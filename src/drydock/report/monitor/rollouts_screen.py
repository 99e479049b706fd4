"""The rollouts of a step as a table; Enter on one shows it."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Static

from drydock.amount import amount
from drydock.report.monitor.rollout_heads import RolloutHead, rollout_heads
from drydock.report.monitor.rollout_screen import RolloutScreen
from drydock.report.monitor.words import figure
from drydock.report.printable import printable

TITLES = ("split", "task", "repetition", "outcome", "blame", "reward", "advantage", "turns", "error")
_STYLES = {"graded": "", "turns_exhausted": "yellow", "context_full": "yellow"}


class RolloutsScreen(Screen[None]):
    """The rollouts in `folders` (those of a step's splits), failures in colour."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape,backspace", "app.pop_screen", "back"), ("r", "reload", "refresh")]

    def __init__(self, step: int, folders: Sequence[Path]) -> None:
        super().__init__()
        self.step = step
        self.folders = folders

    def compose(self) -> ComposeResult:
        yield Static(id="title")
        yield DataTable[Text](cursor_type="row", zebra_stripes=True)
        yield Footer()

    def on_mount(self) -> None:
        self.query_one(DataTable).add_columns(*TITLES)
        self.action_reload()

    def action_reload(self) -> None:
        self.run_worker(self._load(), exclusive=True)

    async def _load(self) -> None:
        title, table = self.query_one("#title", Static), self.query_one(DataTable)
        title.update(Text(f"step {self.step}: reading …", style="bold"))
        heads = [head for folder in self.folders for head in await asyncio.to_thread(rollout_heads, folder)]
        table.clear()
        for head in heads:
            table.add_row(*_cells(head), key=str(head.file))
        where = "" if heads else f": no trajectory file in {', '.join(map(str, self.folders))} (yet)"
        title.update(Text(f"step {self.step}: {amount(len(heads), 'rollout')}{where}", style="bold"))

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        self.app.push_screen(RolloutScreen(Path(str(event.row_key.value))))


def _cells(head: RolloutHead) -> list[Text]:
    style = "dim" if head.replaced else _STYLES.get(head.outcome, "red")
    outcome = f"{head.outcome} (replaced)" if head.replaced else head.outcome
    cells = (
        *(head.split, head.task, str(head.repetition), outcome, head.blame or ""),
        *(figure(head.reward, "g"), figure(head.advantage, ".3f"), str(head.turns)),
        " ".join((head.error or "").split())[:200],
    )
    return [Text(printable(cell), style=style) for cell in cells]
