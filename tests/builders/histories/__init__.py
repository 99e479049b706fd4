"""Random histories of agents, and a model of what the chat proxy has to make of them that shares no code with it.

`Conversation` is what a harness holds, `answers` what a policy says, `HistoryModel` which tokens it is asked under.
"""

from builders.histories.conversation import Conversation, Entry
from builders.histories.history_model import Expected, HistoryModel
from builders.histories.policy import Answer, QueuedSampler

__all__ = ["Answer", "Conversation", "Entry", "Expected", "HistoryModel", "QueuedSampler"]
