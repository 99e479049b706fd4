"""What a rollout may use up besides turns: sampled tokens and time. Looked at before each turn."""

import time
from dataclasses import dataclass, field
from typing import Any

from drydock.harness.result import Limit


@dataclass(slots=True)
class Budget:
    """Limits of one run of the agent (of one step, in a task with steps), and what is used so far.

    max_sampled_tokens: over all turns, None for no limit. max_seconds: wall clock from the making of this object.
    cut_off: whether the latest turn was ended by its own limit, in the middle of what it said.
    """

    max_sampled_tokens: int | None = None
    max_seconds: float | None = None
    sampled_tokens: int = 0
    cut_off: bool = False
    reached: Limit | None = None
    _started: float = field(default_factory=time.monotonic)

    def count(self, raw_response: Any) -> None:
        """Add the sampled tokens that a chat completion reports, and note whether it was cut off."""
        usage = getattr(raw_response, "usage", None)
        self.sampled_tokens += getattr(usage, "completion_tokens", 0) or 0
        choices = getattr(raw_response, "choices", None)
        self.cut_off = bool(choices) and choices[0].finish_reason == "length"

    def exhausted(self) -> bool:
        """Whether there is nothing left for another turn; which limit was reached is kept in `reached`."""
        if self.max_sampled_tokens is not None and self.sampled_tokens >= self.max_sampled_tokens:
            self.reached = "tokens"
        elif self.max_seconds is not None and time.monotonic() - self._started >= self.max_seconds:
            self.reached = "seconds"
        return self.reached is not None
