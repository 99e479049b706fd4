"""A frozen model that scores given tokens: a reference policy, a teacher, or an evaluation of perplexity.

The same rows give the same log-probs here and in a training engine that holds the same weights. Not thread-safe: one
owner.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from drydock.engine.checkpoint import read
from drydock.engine.model import default_device, load_model, load_tokenizer
from drydock.engine.policy import Policy
from drydock.engine.restore import take_weights
from drydock.engine.settings import LogProbConfig, parse_settings
from drydock.engine.weights import fingerprint, unique_weights


class LogProbEngine:
    """One model without an optimizer.

    model_name: Hugging Face folder or hub id. inference_config: see `drydock.engine.settings.LogProbConfig`.
    checkpoint: folder whose weights, or whose adapter on the model, are taken.
    Raises UserError for a model that cannot be found, ConfigError for settings.
    """

    def __init__(
        self,
        model_name: str,
        inference_config: Mapping[str, Any],
        *,
        checkpoint: Path | None = None,
        dtype: str | None = None,
        device: str | None = None,
    ) -> None:
        self.config = parse_settings(LogProbConfig, inference_config, where="inference_config")
        self.model = load_model(model_name, dtype=dtype, device=device or default_device())
        if checkpoint is not None:
            take_weights(self.model, read(checkpoint, dtype=self.model.dtype, resume=False), str(checkpoint))
        self.model.requires_grad_(False)
        self.tokenizer = load_tokenizer(model_name)
        self.fingerprint = fingerprint(unique_weights(self.model))
        self._policy = Policy(
            self.model,
            max_seq_len=self.config.max_seq_len,
            max_tokens=self.config.mb_spec.max_tokens_per_mb,
            unshared_because=None if self.config.prefix_sharing else "switched_off",
        )

    @property
    def max_seq_len(self) -> int:
        """Longest row, in tokens."""
        return self._policy.max_seq_len

    def forward(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Log-probs of every real position, entropy on request; see `drydock.engine.policy.Policy.score`."""
        return self._policy.score(request)
