"""What a dead trainer takes with it, from its own word and from the finished requests."""

from pathlib import Path

import pytest

from drydock.service import schema as tables
from drydock.service.progress import Progress, ResumePoint
from drydock.service.request_record import Outcome, RequestRecord
from drydock.service.store import Store
from drydock.wire.status import RequestStatus

SAVED = {"checkpoint_type": "resumable", "checkpoint_path": "/x/cp_1", "global_steps": 2}


@pytest.mark.parametrize(
    ("steps", "accumulated", "resume", "expected"),
    [
        (0, 0, None, None),
        (2, 0, ResumePoint("/x", "x", 2), None),
        (3, 0, ResumePoint("/x", "x", 2), "step 3 is lost"),
        (5, 0, ResumePoint("/x", "x", 2), "steps 3..5 are lost"),
        (0, 1, None, "1 accumulated forward-backward call is lost"),
        (4, 2, None, "steps 1..4 and 2 accumulated forward-backward calls are lost"),
    ],
)
def test_losses_are_named(steps: int, accumulated: int, resume: ResumePoint | None, expected: str | None):
    assert Progress(steps, accumulated, 0, resume).loss_of_process() == expected


@pytest.mark.parametrize(
    ("history", "floor", "expected"),
    [
        ([], None, (0, 0, None)),
        (["fb", "fb"], None, (0, 2, None)),
        (["fb", "step", "fb"], None, (1, 1, None)),
        (["fb", "step", "fb", "step", "save", "fb", "step"], None, (3, 0, 2)),
        (["fb", "step", "fb", "step", "save", "fb"], None, (2, 1, 2)),
        (["fb", "step", "fb", "step", "save", "fb", "step", "fb"], (7.5, 2), (2, 1, 2)),
        (["fb", "step", "fb", "step", "save", "fb", "step", "fb"], (9, 2), (2, 0, 2)),
        (["fb", "broken fb", "fb"], None, (0, 1, None)),
    ],
)
async def test_progress_is_read_from_the_finished_requests(
    tmp_path: Path, history: list[str], floor: tuple[float, int] | None, expected: tuple
):
    store = await Store.open(tmp_path / "s.sqlite")
    steps, rows = 0, []
    for at, what in enumerate(history, start=1):
        record = RequestRecord(f"r{at}", "j", "forward-backward", at, at, RequestStatus.COMPLETED)
        if what == "step":
            steps += 1
            record.kind, record.outcome = "step", Outcome({"global_steps": steps})
        elif what == "save":
            record.kind, record.outcome = "save", Outcome(SAVED)
        elif what == "fb":
            record.outcome = Outcome({"avg_loss": float(at)})
        else:
            record.status, record.error_type = RequestStatus.FAILED, "EngineError"
        rows.append(record.row())
    await store.put(tables.requests, rows)
    known = {"at": floor[0], "global_steps": floor[1]} if floor else None
    found = await store.run(lambda connection: Progress.from_store(connection, "j", known))
    resume = found.resume.global_steps if found.resume else None
    assert (found.global_steps, found.accumulated, resume) == expected
    await store.close()
