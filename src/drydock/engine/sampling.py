"""Sampling with torch: continuous batching of ragged requests over any Hugging Face causal model.

A request waits (`waiting`), is prefilled (only what the prefix cache does not hold, several requests in one pass where
that costs little padding), then decodes in step with all other running requests (`running`) until it ends; its keys
and values go to the prefix cache, and its slot to the last running request. A request for n samples is n rows that
share one prompt.

New weights forget the keys and values that the old ones made. Requests that are running on them then start over from
their tokens so far: what they sampled stays, what follows is sampled by the new policy, and their result names the
version that sampled its first token.

What goes wrong for one request ends that request with an error; the others go on.
"""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from drydock.engine.adapters import Adapters, read_adapter_source
from drydock.engine.bending import Bending, bend_rows
from drydock.engine.choice import ChoiceRules, choose_tokens
from drydock.engine.decoder import SlotDecoder
from drydock.engine.detokenizer import Detokenizer, TokenText
from drydock.engine.model import (
    default_device,
    end_token_ids,
    load_model,
    load_tokenizer,
    max_positions,
    vocabulary_size,
)
from drydock.engine.prefix_cache import PrefixCache, Tokens
from drydock.engine.prompt_scores import top_logprobs
from drydock.engine.request import Request
from drydock.engine.row_decoder import RowDecoder
from drydock.engine.running import RunningRows
from drydock.engine.sampler_weights import SamplerWeights
from drydock.engine.settings import InferenceConfig, parse_settings
from drydock.engine.types import SamplePiece, SampleResult, WeightSet
from drydock.engine.waiting import WaitingRequests
from drydock.engine.weights import adapter_fingerprint, unique_weights, weight_kind
from drydock.errors import EngineError, UserError
from drydock.wire.rest import SamplingParams

KV_BYTES, KV_TOKENS = 2**30, 131_072
PREFIX_BYTES, PREFIX_TOKENS = 2**29, 65_536

logger = logging.getLogger(__name__)


class TorchSamplingEngine:
    """One policy being sampled from, and named adapters of its base; see `drydock.engine.base.SamplingEngine`.

    model_name: Hugging Face folder or hub id. inference_config: see `drydock.engine.settings.InferenceConfig`.
    seed: makes requests without a seed of their own reproducible, given the order of submission.
    Raises UserError for a model that cannot be found, EngineError for one that cannot be served exactly.
    """

    def __init__(
        self,
        model_name: str,
        inference_config: Mapping[str, Any],
        *,
        seed: int = 0,
        dtype: str | None = None,
        device: str | None = None,
    ) -> None:
        self.config = parse_settings(InferenceConfig, inference_config, where="inference_config")
        self.model = load_model(model_name, dtype=dtype, device=device or default_device())
        kept_dtype = str(self.model.dtype).removeprefix("torch.")
        self.tokenizer = load_tokenizer(model_name)
        self.policy_version = 0
        self._weights = SamplerWeights(
            self.model, self.config.peft_config, lambda: unique_weights(load_model(model_name, dtype=kept_dtype))
        )
        limits = (self.config.max_seq_len, max_positions(self.model), 2**31)
        self.max_seq_len = min(value for value in limits if value)
        self.stats = {"sampled_tokens": 0, "prompt_tokens": 0, "cached_tokens": 0, "decode_steps": 0, "prefills": 0}
        self._ends = end_token_ids(self.model, self.tokenizer)
        self._vocab_size = vocabulary_size(self.model)
        self._decode_text = {skip: TokenText(self.tokenizer, skip_special=skip) for skip in (True, False)}
        decoder = self._decoder = _decoder_for(self.model)
        token_bytes = max(decoder.slots.bytes_per_token(), 1)
        stored = self.config.prefix_cache_tokens
        budget = min(PREFIX_BYTES // token_bytes, PREFIX_TOKENS) if stored is None else stored
        self._prefixes = PrefixCache(budget, whole=decoder.whole)
        self._adapters = Adapters(self.model)
        self._waiting = WaitingRequests(
            self._prefixes,
            self._adapters,
            max_rows=self.config.max_running_rows,
            kv_tokens=self.config.kv_cache_tokens or min(KV_BYTES // token_bytes, KV_TOKENS),
        )
        self._running = RunningRows(decoder, self._prefixes, self._adapters, self.config.max_prefill_tokens)
        self._seed = seed
        self._submitted = 0
        self._ids: dict[str, list[Request]] = {}
        self._finished: list[SampleResult] = []
        self._rules: ChoiceRules | None = None
        if self.config.policy_adapter is not None:
            folder = Path(self.config.policy_adapter).expanduser()
            self.load_weights(folder, policy_version=0, fingerprint=adapter_fingerprint(folder))
        for name, folder in self.config.adapters.items():
            self.load_adapter(name, Path(folder).expanduser())

    @property
    def fingerprint(self) -> str:
        """Of the policy that was loaded last; see `drydock.engine.weights`."""
        return self._weights.fingerprint

    @property
    def has_work(self) -> bool:
        """Whether `step` has something to do or to return."""
        return bool(self._running.requests or self._waiting.requests or self._finished)

    @property
    def load(self) -> tuple[int, int]:
        """Numbers of running and of waiting samples."""
        return len(self._running.requests), len(self._waiting.requests)

    @property
    def adapters(self) -> dict[str, str]:
        """Named adapters and their fingerprints."""
        return self._adapters.names

    def submit(
        self,
        request_id: str,
        prompt_ids: list[int],
        params: SamplingParams,
        routing_key: str | None = None,
        *,
        streamed: bool = False,
    ) -> None:
        """Queue a request for `params.n` samples; `max_tokens` is cut to what `max_seq_len` leaves.

        streamed: have `take_pieces` tell its tokens as they come.
        Raises UserError for an id in use, an empty prompt, one that leaves no room, an unknown token id or adapter.
        """
        prompt = self._checked(request_id, prompt_ids, params)
        limit = min(params.max_tokens, self.max_seq_len - len(prompt))
        ends = frozenset(params.stop_token_ids) | (frozenset() if params.ignore_eos else self._ends)
        seed = [self._seed, self._submitted] if params.seed is None else [params.seed]
        self._submitted += 1
        without_scores = params.model_copy(update={"prompt_logprobs": None})
        decode = self._decode_text[params.skip_special_tokens]
        samples = []
        for index in range(params.n):
            own_seed = [*seed, index] if index else seed if params.seed is None else params.seed
            samples.append(
                Request(
                    request_id,
                    index,
                    prompt,
                    without_scores if index else params,
                    routing_key,
                    limit,
                    ends,
                    np.random.default_rng(own_seed),
                    streamed=streamed,
                    bending=Bending.of(params, prompt, ends, self._vocab_size, self.model.device),
                    text=Detokenizer(decode) if streamed or params.stop else None,
                )
            )
        self._ids[request_id] = samples
        self._waiting.requests.extend(samples)

    @torch.inference_mode()
    def step(self) -> list[SampleResult]:
        """Admit waiting requests, sample one token for each running one, return those that finished."""
        self._admit()
        self._make_room()
        if self._running.requests:
            if self._rules is None:
                self._rules = ChoiceRules.of([r.params for r in self._running.requests], self.model.device)
            logits = self._running.decode()
            self.stats["decode_steps"] += 1
            self._accept(self._running.requests, logits, self._rules)
            self._retire()
        finished, self._finished = self._finished, []
        return finished

    def take_pieces(self) -> list[SamplePiece]:
        """What the running streamed requests gained since they were last asked."""
        pieces = [request.take_piece() for request in self._running.requests if request.streamed]
        return [piece for piece in pieces if piece is not None]

    @torch.inference_mode()
    def abort(self, request_id: str) -> bool:
        """End a request early: its slots are free now, the next `step` returns what it has. False if unknown."""
        requests = self._ids.get(request_id)
        if requests is None:
            return False
        for request in list(requests):
            request.finish_reason = "abort"
            if request in self._waiting.requests:
                self._waiting.requests.remove(request)
                self._report(request)
        self._retire()
        return True

    def load_weights(self, path: Path, *, policy_version: int, fingerprint: str) -> WeightSet:
        """Take over the policy in `path`, in place: whole weights, or an adapter on those that are held.

        See the module for requests in flight. A new base drops every named adapter: it was made for another. An adapter
        that was trained on the model as it was at the start brings that model back.
        Raises EngineError, with the old policy still in place, when the file cannot be read, does not have the
        given fingerprint or does not fit the model.
        """
        if weight_kind(path) != "whole":
            self._adapters.refuse_beside(path)
        try:
            new_base = self._weights.load(path, fingerprint)
        except EngineError:
            self._adapters.policy_changed(self._weights.adapter)
            raise
        if new_base and (dropped := self._adapters.clear()):
            logger.warning("new base weights: adapters %s were made for others and are dropped", ", ".join(dropped))
        self._adapters.policy_changed(self._weights.adapter)
        self.policy_version = policy_version
        self._start_over(lambda request: new_base or request.params.adapter is None)
        return WeightSet(path, policy_version, fingerprint)

    def load_adapter(self, name: str, path: Path) -> str:
        """Hold the adapter in `path` (file of a weight sync, checkpoint or PEFT folder) under `name`; its fingerprint.

        One of that name is replaced; its requests in flight go on with the new one.
        Raises UserError or EngineError, everything as before, when it cannot be read or was made for another base.
        """
        source = read_adapter_source(path)
        self._weights.check_base(path, source.base_fingerprint)
        self._adapters.load(name, source)
        self._start_over(lambda request: request.params.adapter == name)
        return source.fingerprint

    def drop_adapter(self, name: str) -> bool:
        """Forget a named adapter, its requests in flight fail; False when there is none of that name."""
        dropped = self._adapters.drop(name)
        self._start_over(lambda request: request.params.adapter == name)
        return dropped

    def reset_prefix_cache(self) -> None:
        """Forget keys and values of finished requests; running ones are not disturbed."""
        self._prefixes.clear()

    def _checked(self, request_id: str, prompt_ids: list[int], params: SamplingParams) -> Tokens:
        if request_id in self._ids:
            raise UserError(f"request {request_id!r} is already being sampled")
        if not prompt_ids:
            raise UserError(f"request {request_id!r}: the prompt is empty")
        if len(prompt_ids) >= self.max_seq_len:
            raise UserError(
                f"request {request_id!r}: the prompt has {len(prompt_ids)} tokens, "
                f"max_seq_len {self.max_seq_len} leaves no room to sample"
            )
        prompt = np.asarray(prompt_ids, dtype=np.int64)
        if prompt.min() < 0 or prompt.max() >= self._vocab_size:
            raise UserError(f"request {request_id!r}: a token id is outside the vocabulary of {self._vocab_size}")
        for token in params.logit_bias:
            if not 0 <= token < self._vocab_size:
                raise UserError(
                    f"request {request_id!r}: logit_bias names token {token}, outside the vocabulary of "
                    f"{self._vocab_size}"
                )
        self._adapters.space(params.adapter)
        return prompt.astype(np.int32)

    @torch.inference_mode()
    def _start_over(self, concerned: Callable[[Request], bool]) -> None:
        """Have requests computed anew from their tokens so far, and forget what finished ones computed."""
        gone = self._running.retire(concerned, keep_prefixes=False)
        for request in (*gone, *self._waiting.requests):
            request.chain = []
        self._waiting.put_back(gone)
        self._prefixes.clear()
        self._rules = None

    def _admit(self) -> None:
        """Prefill waiting requests, in rounds."""
        while self._waiting.requests:
            chosen, failed = self._waiting.next_round(self._running.requests)
            for request in failed:
                self._report(request)
            if not chosen:
                return
            self._prefill(chosen)

    def _make_room(self) -> None:
        """Send running requests back to wait until the others have room."""
        while (least := self._waiting.one_too_many(self._running.requests)) is not None:
            self._waiting.put_back(self._running.retire(lambda request, least=least: request is least))
            self._rules = None

    def _prefill(self, requests: list[Request]) -> None:
        for batch, logits in self._running.prefill(requests):
            self._rules = None
            self.stats["prefills"] += 1
            if isinstance(logits, RuntimeError):
                logger.error("a prefill of %d requests failed", len(batch), exc_info=logits)
                for request in batch:
                    request.fail(f"its prompt could not be computed: {logits}")
                continue
            for request in batch:
                if not request.sampled:
                    request.policy_version = self.policy_version
                    request.cached_tokens = request.held
                    self.stats["prompt_tokens"] += len(request.tokens)
                    self.stats["cached_tokens"] += request.held
            self._accept(batch, logits, ChoiceRules.of([r.params for r in batch], logits.device))
        self._retire()

    def _accept(self, requests: list[Request], logits: Tensor, rules: ChoiceRules) -> None:
        uniform = torch.tensor([request.uniform() for request in requests], device=logits.device)
        chosen = choose_tokens(logits, rules, uniform, bend_rows([request.bending for request in requests], logits))
        self.stats["sampled_tokens"] += len(requests)
        wanted = [row for row, request in enumerate(requests) if request.params.logprobs]
        top = {}
        if wanted:
            counts = [requests[row].params.logprobs or 0 for row in wanted]
            top = dict(zip(wanted, top_logprobs(chosen.every_logprob[wanted], counts), strict=True))
        pairs = zip(requests, chosen.ids.tolist(), chosen.logprobs.tolist(), strict=True)
        for row, (request, token, logprob) in enumerate(pairs):
            if logprob != logprob:
                request.fail(f"the policy (version {self.policy_version}) produced logits that are not finite")
            else:
                request.accept(token, logprob, top.get(row))

    @torch.inference_mode()
    def _retire(self) -> None:
        for request in self._running.retire(lambda request: request.finish_reason is not None):
            self._rules = None
            self._report(request)

    def _report(self, request: Request) -> None:
        unfinished = self._ids[request.request_id]
        unfinished.remove(request)
        if not unfinished:
            del self._ids[request.request_id]
        self._finished.append(request.result(self._decode_text[request.params.skip_special_tokens]))


def _decoder_for(model: Any) -> SlotDecoder | RowDecoder:
    """Rows side by side where that is exact, else one after the other. Raises EngineError where neither is."""
    try:
        decoder = SlotDecoder(model)
        decoder.check()
    except EngineError as refusal:
        logger.warning("%s; its rows run one after the other, which is slow", refusal)
        decoder = RowDecoder(model)
        decoder.check()
    return decoder
