"""Loss names of the wire, each with its strict settings, its function and the context tensors it reads.

A closed table: a client names an entry, never a dotted import path. A new loss is one file and one entry here.
`drydock.wire.loss_names` lists names and keys for processes without torch; a test holds the two together.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError

from drydock.errors import ConfigError
from drydock.losses import dpo, grpo
from drydock.losses.base import LossFunction, Sent
from drydock.losses.cross_entropy import CrossEntropyConfig, cross_entropy_loss
from drydock.losses.distillation import DistillationConfig, check_distillation, distillation_loss
from drydock.losses.dpo import DpoConfig, check_dpo, dpo_loss
from drydock.losses.dppo import DppoConfig, dppo_loss
from drydock.losses.echo import EchoConfig, check_echo, echo_loss
from drydock.losses.grpo import grpo_loss
from drydock.losses.grpo_config import GrpoConfig, check_grpo
from drydock.losses.policy import check_policy, needs_entropy
from drydock.losses.rollout_is import RolloutIsConfig, rollout_is_loss
from drydock.losses.sft import SftCeConfig, SftConfig, sft_loss
from drydock.wire.loss_names import ELSEWHERE

AGGREGATED = frozenset({"sequence_loss_weights", "prompt_group_ids", "prompt_token_counts"})
POLICY = AGGREGATED | {"ref_log_probs_shifted", "old_log_probs_shifted"}


def _never(config: Any) -> bool:
    return False


def _nothing(config: Any, sent: Sent) -> None:
    return None


@dataclass(frozen=True, slots=True)
class LossEntry:
    """One loss. The functions take the validated settings.

    required, optional: context tensors (wire names) that it reads, beside `loss_mask`.
    reads_labels: trained on `kwargs.labels`; else on `context.loss_mask`, which is required.
    takes_temperature: whether log-probs at a temperature other than 1 make sense.
    settings_win: scale keys (batch_num_tokens, ...) that stand in `context` too give way to the settings; else the
    context wins and a contradiction is refused.
    check: raises UserError for a call that this loss cannot take. needs_entropy: whether it reads the exact entropy.
    couples_rows: whether a row's term depends on other rows, so that it must see the whole call.
    """

    name: str
    config: type[BaseModel]
    function: LossFunction
    required: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()
    reads_labels: bool = False
    takes_temperature: bool = True
    settings_win: bool = False
    check: Callable[[Any, Sent], None] = _nothing
    needs_entropy: Callable[[Any], bool] = _never
    couples_rows: Callable[[Any], bool] = _never


GRPO = LossEntry(
    "grpo",
    GrpoConfig,
    grpo_loss,
    required=frozenset({"advantages"}),
    optional=POLICY | {"prox_logp_shifted", "rollout_is_weights", "versions"},
    check=check_grpo,
    needs_entropy=needs_entropy,
    couples_rows=grpo.couples_rows,
)
ECHO = replace(
    GRPO,
    name="grpo_echo_v1",
    config=EchoConfig,
    function=echo_loss,
    required=GRPO.required | {"echo_observation_mask"},
    check=check_echo,
)
SFT = LossEntry("sft", SftConfig, sft_loss, reads_labels=True, takes_temperature=False)

LOSSES: dict[str, LossEntry] = {
    entry.name: entry
    for entry in (
        GRPO,
        replace(GRPO, name="ap_grpo", settings_win=True),
        ECHO,
        replace(ECHO, name="ap_grpo_echo_v1", settings_win=True),
        LossEntry(
            "rollout_is",
            RolloutIsConfig,
            rollout_is_loss,
            required=frozenset({"advantages", "old_log_probs_shifted"}),
            optional=POLICY,
            check=check_policy,
            needs_entropy=needs_entropy,
        ),
        LossEntry(
            "dppo",
            DppoConfig,
            dppo_loss,
            required=frozenset({"advantages", "old_log_probs_shifted"}),
            optional=POLICY,
            check=check_policy,
            needs_entropy=needs_entropy,
        ),
        LossEntry(
            "distillation",
            DistillationConfig,
            distillation_loss,
            optional=POLICY
            | {"teacher_log_probs_shifted", "teacher_topk_ids_shifted", "teacher_topk_log_probs_shifted"},
            check=check_distillation,
            needs_entropy=needs_entropy,
        ),
        LossEntry(
            "dpo",
            DpoConfig,
            dpo_loss,
            required=frozenset({"ref_log_probs_shifted", "pair_ids", "chosen"}),
            takes_temperature=False,
            check=check_dpo,
            couples_rows=dpo.couples_rows,
        ),
        LossEntry("causal_cross_entropy", CrossEntropyConfig, cross_entropy_loss, takes_temperature=False),
        SFT,
        replace(SFT, name="sft_ce", config=SftCeConfig),
    )
}


def resolve_loss(name: str, settings: Mapping[str, Any] | None = None) -> tuple[LossEntry, Any]:
    """The entry called `name` and its validated settings.

    Raises ConfigError for an unknown name or key (offering the nearest known one), a value out of range, and options
    that exclude each other (naming both).
    """
    entry = LOSSES.get(name)
    if name in ELSEWHERE:
        raise ConfigError(f"loss_fn {name!r} is not served: {ELSEWHERE[name]}")
    if entry is None:
        raise ConfigError(f"unknown loss_fn {name!r}{_nearest(name, LOSSES)}; known: {', '.join(sorted(LOSSES))}")
    settings = dict(settings or {})
    for key in settings:
        if key not in entry.config.model_fields:
            raise ConfigError(f"{name}: unknown setting {key!r}{_nearest(key, entry.config.model_fields)}")
    try:
        return entry, entry.config.model_validate(settings)
    except ValidationError as error:
        raise ConfigError(f"{name}: {'; '.join(map(_problem, error.errors()))}") from None


def _problem(error: Any) -> str:
    message = error["msg"].removeprefix("Value error, ")
    where = ".".join(map(str, error["loc"]))
    if error["type"] == "missing":
        return f"setting {where!r} is required"
    if error["type"] == "value_error":
        return f"{where}: {message}" if where else message
    return f"{where}: {message} (got {error['input']!r})"


def _nearest(word: str, known: Mapping[str, Any]) -> str:
    matches = get_close_matches(word, known, n=1)
    return f" (did you mean {matches[0]!r}?)" if matches else ""
