"""Calls about checkpoints: save, load, list, export, download, delete."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from drydock.client.call import open_call
from drydock.client.checkpoints import Checkpoint, CheckpointExport, fetch_files
from drydock.client.connection import CONTROL_DEADLINE_S, DATA_DEADLINE_S, Connection
from drydock.client.results import SaveResult
from drydock.client.transport import job_path

DOWNLOAD_DEADLINE_S: Final = 6 * 3600.0


class CheckpointCalls(Connection):
    """A job's checkpoints."""

    async def save(
        self,
        job_id: str,
        *,
        checkpoint_id: str | None = None,
        checkpoint_type: str = "resumable",
        merge: bool = False,
        idempotency_key: str | None = None,
        deadline_s: float = DATA_DEADLINE_S,
    ) -> SaveResult:
        """Save a checkpoint: "resumable" (weights and training state) or "weights-only".

        merge: the whole model with the job's LoRA adapter added in, in place of the adapter; weights-only.
        """
        body: dict[str, Any] = {"checkpoint_type": checkpoint_type}
        body |= {"checkpoint_id": checkpoint_id} if checkpoint_id else {}
        body |= {"merge": True} if merge else {}
        return await self._run(
            SaveResult.from_result, "save", job_id, "/save", body, deadline_s, idempotency_key=idempotency_key
        )

    async def load(
        self,
        job_id: str,
        checkpoint_id: str,
        *,
        source_job_id: str | None = None,
        target_sub_job_id: str | None = None,
        deadline_s: float = DATA_DEADLINE_S,
    ) -> dict:
        """Have the job's trainer go on from a checkpoint, of this job or of `source_job_id`; the server's result."""
        given = {"source_job_id": source_job_id, "target_sub_job_id": target_sub_job_id}
        body = {"checkpoint_id": checkpoint_id} | {name: value for name, value in given.items() if value is not None}
        return await self._run(lambda result: result, "load", job_id, "/load", body, deadline_s)

    async def list_checkpoints(self, job_id: str, *, deadline_s: float = CONTROL_DEADLINE_S) -> list[Checkpoint]:
        """The job's checkpoints, oldest first; a job that is over still has them."""
        path = job_path(job_id, "/checkpoints")
        return await self._get(_read_checkpoints, "list-checkpoints", job_id, path, deadline_s)

    async def export_checkpoint(
        self, job_id: str, checkpoint_id: str, *, deadline_s: float = CONTROL_DEADLINE_S
    ) -> CheckpointExport:
        """The addresses of a checkpoint's files, valid for a while."""
        async with open_call("export-checkpoint", job_id, deadline_s) as call:
            answer = await self._transport.send(
                call, "POST", job_path(job_id, f"/checkpoints/{checkpoint_id}:export"), content=b""
            )
            return call.read(CheckpointExport.from_answer, answer)

    async def download_checkpoint(
        self, job_id: str, checkpoint_id: str, folder: Path, *, deadline_s: float = DOWNLOAD_DEADLINE_S
    ) -> list[Path]:
        """Export a checkpoint and fetch its files below `folder`, sizes checked; the files' paths.

        Called again after an interruption it fetches what is missing.
        """
        async with open_call("download-checkpoint", job_id, deadline_s) as call:
            export = await self.export_checkpoint(job_id, checkpoint_id, deadline_s=call.seconds_left)
            return await fetch_files(self._transport, call, export, folder)

    async def delete_checkpoint(
        self, job_id: str, checkpoint_id: str, *, deadline_s: float = CONTROL_DEADLINE_S
    ) -> None:
        """Remove a checkpoint for good. Raises Refused 404 for an unknown one, 409 for one in use."""
        async with open_call("delete-checkpoint", job_id, deadline_s) as call:
            await self._transport.send(call, "DELETE", job_path(job_id, f"/checkpoints/{checkpoint_id}"))


def _read_checkpoints(answer: Mapping[str, Any]) -> list[Checkpoint]:
    return [Checkpoint.from_entry(entry) for entry in answer.get("checkpoints") or ()]
