"""Policies that the learning suite starts from: trained once, with the demo's data and warm start."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from builders.shell_world import SYSTEM, TOOLS

from drydock.chat.template import ChatTemplate
from drydock.engine.training import TrainingEngine
from drydock.recipes.shell_tasks.prepare import DemoData, prepare
from drydock.training.batch import Row
from drydock.training.demonstrations import read_demonstrations, supervised_rows
from drydock.training.sft.batches import shuffled_batches
from drydock.training.sft.packing import supervised_batch

CLEAN_STEPS, SLOPPY_STEPS = 300, 40


@dataclass(frozen=True)
class Policies:
    """Model folders. random: as prepared. skilled: after clean demonstrations. sloppy: after mistaken ones as well.

    losses: of the batches of the first stage, by step.
    """

    random: Path
    skilled: Path
    sloppy: Path
    template: ChatTemplate
    clean: list[Row]
    losses: list[float]


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Matrices this small gain nothing from a second thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def policies(tmp_path_factory: pytest.TempPathFactory) -> Policies:
    folder = tmp_path_factory.mktemp("learning")
    data = prepare(folder / "data", DemoData(train_tasks=1, held_out_tasks=1))
    template = ChatTemplate.load(data / "model")
    clean, sloppy = (rows_in(data / "demonstrations" / f"{name}.jsonl", template) for name in ("clean", "sloppy"))
    engine = TrainingEngine(str(data / "model"), {"max_seq_len": 768})
    losses = train(engine, clean, CLEAN_STEPS, 32, 3e-3, 1e-3)
    engine.save(folder / "skilled", "weights-only")
    train(engine, sloppy, SLOPPY_STEPS, 16, 1e-3, 2e-4)
    engine.save(folder / "sloppy", "weights-only")
    return Policies(data / "model", folder / "skilled", folder / "sloppy", template, clean, losses)


def rows_in(file: Path, template: ChatTemplate) -> list[Row]:
    return list(supervised_rows(read_demonstrations(file), template, SYSTEM, TOOLS))


def train(engine: TrainingEngine, rows: list[Row], steps: int, size: int, rate: float, last_rate: float) -> list[float]:
    """A warm-start stage; the loss of each step."""
    losses = []
    for step, batch in zip(range(steps), shuffled_batches(rows, size, "learning"), strict=False):
        losses.append(engine.forward_backward(supervised_batch(batch, 768))["avg_loss"])
        engine.step(rate + (last_rate - rate) * step / (steps - 1))
    return losses
