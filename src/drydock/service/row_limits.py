"""What a row of tokens may hold, known without an engine: from a sub-job's configuration and its model's files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from drydock.service.model_facts import facts_of_sub_job


@dataclass(frozen=True, slots=True)
class RowLimits:
    """None where a limit is not known. max_seq_len in tokens."""

    vocab_size: int | None = None
    max_seq_len: int | None = None

    @classmethod
    def of(cls, sub_job_id: str, config: Mapping[str, Any]) -> "RowLimits":
        """The limits of a sub-job: its own and its model's."""
        facts = facts_of_sub_job(sub_job_id, str(config.get("model_name")))
        block = config.get("training_config") or config.get("inference_config") or {}
        lengths = [block.get("max_seq_len"), facts.max_positions if facts else None]
        known = [int(length) for length in lengths if isinstance(length, int | float) and length > 0]
        return cls(facts.vocab_size if facts else None, min(known, default=None))

    def outside(self, ids: Sequence[int]) -> int | None:
        """The first of the ids that is no token of the model, None when all are."""
        limit = self.vocab_size or 2**31
        if min(ids) >= 0 and max(ids) < limit:
            return None
        return next(token for token in ids if not 0 <= token < limit)
