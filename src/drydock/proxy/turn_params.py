"""The sampling parameters of each turn of a rollout: the run's, with what room there is and a seed of its own."""

import hashlib
from typing import Any

from drydock.chat.refusal import RequestRefused
from drydock.proxy.settings import ProxySettings
from drydock.wire.rest import SamplingParams


class TurnParams:
    """Counts the turns of one rollout, since each has another seed."""

    def __init__(self, rollout_id: str, settings: ProxySettings) -> None:
        self._rollout_id = rollout_id
        self._settings = settings
        self._count = 0

    def next(self, prompt_tokens: int, asked_tokens: int | None) -> SamplingParams:
        """Parameters of the next turn; raises RequestRefused when the context has no room for a token of it.

        prompt_tokens: length of its prompt. asked_tokens: the longest turn that the agent wants.
        """
        room = self._settings.context_tokens - prompt_tokens
        if room < 1:
            raise RequestRefused(
                # litellm and the OpenHands SDK know a full context by its wording only, each by one half of this
                f"context length exceeded: this model's maximum context length is {self._settings.context_tokens} "
                f"tokens and the prompt has {prompt_tokens}",
                param="messages",
                code="context_length_exceeded",
            )
        sampling = self._settings.sampling
        changes: dict[str, Any] = {"max_tokens": min(room, self._settings.max_new_tokens, asked_tokens or room)}
        if sampling.seed is not None:
            root = f"{sampling.seed}/{self._rollout_id}/{self._count}"
            changes["seed"] = int.from_bytes(hashlib.sha256(root.encode()).digest()[:4]) >> 1
        self._count += 1
        return sampling.model_copy(update=changes)
