"""The rows of a supervised run, and a mark by which a resumed run knows them again."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from drydock.chat.template import ChatTemplate
from drydock.errors import ConfigError
from drydock.training.batch import Row
from drydock.training.sft.config import SftDataConfig
from drydock.training.sft.conversations import read_conversations
from drydock.training.sft.rows import supervised_row


@dataclass(frozen=True, slots=True)
class SftData:
    """train, evaluation: one row a conversation, in the files' order. dropped_*: conversations that were too long."""

    train: tuple[Row, ...]
    evaluation: tuple[Row, ...]
    dropped_training: int
    dropped_evaluation: int

    @property
    def fingerprint(self) -> str:
        """A hash of the training rows: their tokens, masks and order."""
        digest = hashlib.sha256()
        for row in self.train:
            digest.update(np.asarray([row.token_ids, row.loss_mask], np.int64).tobytes() + b"|")
        return digest.hexdigest()


def load_data(config: SftDataConfig, template: ChatTemplate) -> SftData:
    """Read and tokenize everything. Raises ConfigError naming the conversation that cannot be used."""
    train, dropped_training = _rows(config.train, config, template, "data.train")
    evaluation, dropped_evaluation = _rows(config.eval, config, template, "data.eval")
    return SftData(tuple(train), tuple(evaluation), dropped_training, dropped_evaluation)


def _rows(files: Sequence[Path], config: SftDataConfig, template: ChatTemplate, setting: str) -> tuple[list[Row], int]:
    rows: list[Row] = []
    dropped = 0
    for file in files:
        for conversation in read_conversations(file, setting):
            row = supervised_row(conversation.messages, conversation.tools, template, conversation.origin)
            if len(row.token_ids) <= config.max_length:
                rows.append(row)
            elif config.too_long == "drop":
                dropped += 1
            else:
                raise ConfigError(
                    f"{conversation.origin}: {len(row.token_ids)} tokens, more than data.max_length "
                    f"{config.max_length}; raise it, or set data.too_long to drop"
                )
    if files and not rows:
        raise ConfigError(f"{setting}: every conversation has more than data.max_length {config.max_length} tokens")
    return rows, dropped
