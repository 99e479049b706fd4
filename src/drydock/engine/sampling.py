"""Sampling with torch: continuous batching of ragged requests over any Hugging Face causal model.

A request waits, is prefilled (only what the prefix cache does not hold, several requests in one pass where that
costs little padding), then decodes in step with all other running requests until it ends; its keys and values go to
the prefix cache, and its slot to the last running request.

When several waiting requests begin alike, the first is prefilled alone and the others take its prefix from there.

New weights forget all keys and values. Requests that are running then start over from their tokens so far: what
they sampled stays, what follows is sampled by the new policy, and their result names the version that sampled its
first token.
"""

from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from drydock.engine.choice import ChoiceRules, choose_tokens
from drydock.engine.decoder import SlotDecoder
from drydock.engine.model import (
    default_device,
    end_token_ids,
    load_model,
    load_tokenizer,
    max_positions,
    vocabulary_size,
)
from drydock.engine.prefix_cache import PrefixCache, PrefixOwner, block_chain
from drydock.engine.request import Request
from drydock.engine.settings import InferenceConfig, parse_settings
from drydock.engine.types import SampleResult, WeightSet
from drydock.engine.weights import assign_weights, fingerprint, holds_weights, read_weights, unique_weights
from drydock.errors import EngineError, UserError
from drydock.wire.rest import SamplingParams

KV_BYTES, KV_TOKENS = 2**30, 131_072
PREFIX_BYTES, PREFIX_TOKENS = 2**29, 65_536
PREFILL_ROWS = 16
PADDING_PER_ROW = 64


class TorchSamplingEngine:
    """One policy being sampled from; see `drydock.engine.base.SamplingEngine` for the contract.

    model_name: Hugging Face folder or hub id. inference_config: see `drydock.engine.settings.InferenceConfig`.
    seed: makes requests without a seed of their own reproducible, given the order of submission.
    Raises UserError for a model that cannot be found, EngineError for one whose attention cannot be served.
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
        self.tokenizer = load_tokenizer(model_name)
        self.policy_version = 0
        self.fingerprint = fingerprint(unique_weights(self.model))
        limits = (self.config.max_seq_len, max_positions(self.model), 2**31)
        self.max_seq_len = min(value for value in limits if value)
        self.stats = {"sampled_tokens": 0, "prompt_tokens": 0, "cached_tokens": 0, "decode_steps": 0, "prefills": 0}
        self._ends = end_token_ids(self.model, self.tokenizer)
        self._vocab_size = vocabulary_size(self.model)
        self._decoder = SlotDecoder(self.model)
        self._decoder.check()
        token_bytes = max(self._decoder.slots.bytes_per_token(), 1)
        self._kv_tokens = self.config.kv_cache_tokens or min(KV_BYTES // token_bytes, KV_TOKENS)
        stored = self.config.prefix_cache_tokens
        self._prefixes = PrefixCache(min(PREFIX_BYTES // token_bytes, PREFIX_TOKENS) if stored is None else stored)
        self._seed = seed
        self._submitted = 0
        self._waiting: deque[Request] = deque()
        self._running: list[Request] = []
        self._ids: dict[str, Request] = {}
        self._finished: list[SampleResult] = []
        self._rules: ChoiceRules | None = None

    @property
    def has_work(self) -> bool:
        """Whether `step` has something to do or to return."""
        return bool(self._running or self._waiting or self._finished)

    @property
    def load(self) -> tuple[int, int]:
        """Numbers of running and of waiting requests."""
        return len(self._running), len(self._waiting)

    def submit(
        self, request_id: str, prompt_ids: list[int], params: SamplingParams, routing_key: str | None = None
    ) -> None:
        """Queue a request; `max_tokens` is cut to what `max_seq_len` leaves.

        Raises UserError for an id in use, an empty prompt, one that leaves no room, or an unknown token id.
        """
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
        seed = params.seed if params.seed is not None else [self._seed, self._submitted]
        self._submitted += 1
        request = Request.new(
            request_id,
            prompt.astype(np.int32),
            params,
            routing_key,
            limit=min(params.max_tokens, self.max_seq_len - len(prompt_ids)),
            ends=frozenset(params.stop_token_ids) | (frozenset() if params.ignore_eos else self._ends),
            seed=seed,
        )
        self._ids[request_id] = request
        self._waiting.append(request)

    @torch.inference_mode()
    def step(self) -> list[SampleResult]:
        """Admit waiting requests, sample one token for each running one, return those that finished."""
        if self._waiting:
            self._admit()
        if self._running:
            self._decode()
        finished, self._finished = self._finished, []
        return finished

    def abort(self, request_id: str) -> bool:
        """End a request early; the next `step` returns what it has. False if it is not known."""
        request = self._ids.get(request_id)
        if request is None:
            return False
        request.finish_reason = "abort"
        if request in self._waiting:
            self._waiting.remove(request)
            self._report(request)
        else:
            self._retire()
        return True

    @torch.inference_mode()
    def load_weights(self, path: Path, *, policy_version: int, fingerprint: str) -> WeightSet:
        """Take over the policy in `path`, in place; see the module for requests in flight.

        Raises EngineError, with the old policy still in place, when the file cannot be read, does not have the
        given fingerprint or does not fit the model.
        """
        weights = read_weights(path)
        found = _fingerprint(weights)
        if found != fingerprint:
            raise EngineError(f"weights in {path} have fingerprint {found}, expected {fingerprint}; nothing was loaded")
        assign_weights(self.model, weights)
        if not holds_weights(self.model, weights):
            raise EngineError(f"after loading {path} the sampler's parameters differ from the file")
        self.policy_version, self.fingerprint = policy_version, found
        for request in reversed(self._running):
            self._waiting.appendleft(request)
        self._running.clear()
        self._prefixes.clear()
        self._decoder.slots.clear()
        return WeightSet(path, policy_version, found)

    def reset_prefix_cache(self) -> None:
        """Forget keys and values of finished requests; running ones are not disturbed."""
        self._prefixes.clear()

    def _admit(self) -> None:
        """Prefill waiting requests, in rounds: a request that begins like one of its round waits for the next."""
        while self._waiting:
            chosen: list[Request] = []
            begun: set[int] = set()
            later: deque[Request] = deque()
            while self._waiting and self._fits(chosen):
                request = self._waiting.popleft()
                request.chain = block_chain(request.tokens, request.chain)
                held = self._prefixes.depth(request.chain)
                if len(request.chain) > held and request.chain[held] in begun:
                    later.append(request)
                    continue
                begun.update(request.chain)
                chosen.append(request)
            later.extend(self._waiting)
            self._waiting = later
            if not chosen:
                return
            self._prefill(chosen)

    def _fits(self, chosen: list[Request]) -> bool:
        rows = len(self._running) + len(chosen)
        if rows == 0:
            return True
        longest = max(r.final_length for r in (*self._running, *chosen, self._waiting[0]))
        return rows < self.config.max_running_rows and (rows + 1) * longest <= self._kv_tokens

    def _prefill(self, requests: list[Request]) -> None:
        slots = self._decoder.slots
        found = [self._prefixes.find(request.tokens, request.chain, request.routing_key) for request in requests]
        for request, (_, shared) in zip(requests, found, strict=True):
            request.held = min(shared, len(request.tokens) - 1)
        order = sorted(range(len(requests)), key=lambda i: len(requests[i].tokens) - requests[i].held)
        first = len(self._running)
        slots.reserve(first + len(requests), max(len(request.tokens) for request in requests))
        for slot, i in enumerate(order, first):
            request, owner = requests[i], found[i][0]
            if owner is not None and request.held:
                if owner.content is None:
                    slots.move(self._slot_of(owner), slot, request.held)
                else:
                    slots.write(slot, owner.content, request.held)
        for batch in _prefill_batches([requests[i] for i in order], self.config.max_prefill_tokens):
            self._prefill_batch(batch)
        self._retire()

    def _prefill_batch(self, batch: list[Request]) -> None:
        logits = self._decoder.prefill(
            len(self._running),
            [request.tokens for request in batch],
            [request.held for request in batch],
            max_tokens=self.config.max_prefill_tokens,
        )
        self._running.extend(batch)
        self._rules = None
        self.stats["prefills"] += 1
        for request in batch:
            if not request.sampled:
                request.policy_version = self.policy_version
                request.cached_tokens = request.held
                self.stats["prompt_tokens"] += len(request.tokens)
                self.stats["cached_tokens"] += request.held
            request.owner = PrefixOwner(request.tokens, request.chain, request.routing_key, None)
            self._prefixes.register(request.owner)
        self._accept(batch, logits, ChoiceRules.of([r.params for r in batch], logits.device))

    def _decode(self) -> None:
        running = self._running
        if self._rules is None:
            self._rules = ChoiceRules.of([request.params for request in running], self.model.device)
        lengths = [request.length for request in running]
        self._decoder.slots.reserve(len(running), max(lengths))
        logits = self._decoder.decode([request.sampled[-1] for request in running], lengths)
        self.stats["decode_steps"] += 1
        self._accept(running, logits, self._rules)
        self._retire()

    def _accept(self, requests: list[Request], logits: Tensor, rules: ChoiceRules) -> None:
        uniform = torch.tensor([request.uniform() for request in requests], device=logits.device)
        ids, logprobs = choose_tokens(logits, rules, uniform)
        self.stats["sampled_tokens"] += len(requests)
        for request, token, logprob in zip(requests, ids.tolist(), logprobs.tolist(), strict=True):
            if logprob != logprob:
                dropped = self._drop_all()
                raise EngineError(
                    f"the policy (version {self.policy_version}) produced logits that are not finite; "
                    f"{dropped} requests were dropped"
                )
            request.accept(token, logprob, self.tokenizer)

    @torch.inference_mode()
    def _retire(self) -> None:
        """Take finished requests out, highest slot first, filling each gap with the last running request."""
        slots = self._decoder.slots
        for slot in range(len(self._running) - 1, -1, -1):
            request = self._running[slot]
            if request.finish_reason is None:
                continue
            self._keep_prefix(request, slot)
            last = self._running.pop()
            if last is not request:
                slots.move(len(self._running), slot, last.length - 1)
                self._running[slot] = last
            self._rules = None
            self._report(request)

    def _keep_prefix(self, request: Request, slot: int) -> None:
        if request.owner is not None:
            self._prefixes.unregister(request.owner)
        tokens = request.all_tokens()[:-1]
        chain = block_chain(tokens, request.chain)
        if self._prefixes.wants(tokens, chain):
            content = self._decoder.slots.read(slot, len(tokens))
            self._prefixes.store(PrefixOwner(tokens, chain, request.routing_key, content))

    def _report(self, request: Request) -> None:
        del self._ids[request.request_id]
        self._finished.append(request.result(self.tokenizer))

    def _drop_all(self) -> int:
        """Forget every request and all keys and values; the number of requests."""
        dropped = len(self._ids)
        self._ids.clear()
        self._running.clear()
        self._waiting.clear()
        self._prefixes.clear()
        self._decoder.slots.clear()
        return dropped

    def _slot_of(self, owner: PrefixOwner) -> int:
        return next(slot for slot, request in enumerate(self._running) if request.owner is owner)


_fingerprint = fingerprint


def _prefill_batches(requests: list[Request], max_tokens: int) -> list[list[Request]]:
    """Cut requests, sorted by how much each has to prefill, so that padding costs less than another pass would."""
    batches: list[list[Request]] = []
    for request in requests:
        new = len(request.tokens) - request.held
        if batches:
            batch = batches[-1]
            padding = sum(new - (len(r.tokens) - r.held) for r in batch)
            fits = (len(batch) + 1) * new <= max_tokens and len(batch) < PREFILL_ROWS
            if fits and padding <= PADDING_PER_ROW * len(batch):
                batch.append(request)
                continue
        batches.append([request])
    return batches
