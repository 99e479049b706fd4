"""The rows that are being decoded: which request has which slot, and what the slots and the prefix cache hold of it.

Slots 0 .. n-1 belong to the n running requests, without a gap: when one leaves, the last takes its slot.
"""

from collections.abc import Callable, Iterator

from torch import Tensor

from drydock.engine.adapters import Adapters
from drydock.engine.decoder import SlotDecoder
from drydock.engine.model import vocabulary_size
from drydock.engine.prefix_cache import PrefixCache, PrefixOwner, block_chain
from drydock.engine.prompt_scores import PromptScorer, tokens_at_once
from drydock.engine.request import Request
from drydock.engine.row_decoder import RowDecoder

PREFILL_ROWS = 16
PADDING_PER_ROW = 64
ALONE_FROM = 256
"""New tokens from which a row that starts from nothing is faster alone than beside others."""


class RunningRows:
    """Running requests in slot order, and the passes over them. Callers hold `torch.inference_mode`."""

    def __init__(
        self, decoder: SlotDecoder | RowDecoder, prefixes: PrefixCache, adapters: Adapters, max_prefill_tokens: int
    ) -> None:
        self.requests: list[Request] = []
        self._decoder = decoder
        self._prefixes = prefixes
        self._adapters = adapters
        self._max_prefill_tokens = max_prefill_tokens
        if isinstance(decoder, RowDecoder):
            decoder.on_row = adapters.narrow
        self._scored_at_once = tokens_at_once(vocabulary_size(decoder.model), max_prefill_tokens)

    def prefill(self, requests: list[Request]) -> Iterator[tuple[list[Request], Tensor | RuntimeError]]:
        """Take requests in, several at a time; each batch with its next-token logits [rows, vocab], or what went wrong.

        A failed batch runs on until the caller retires it.
        """
        found = {}
        for request in requests:
            owner, shared = self._prefixes.find(request.tokens, request.chain, request.routing_key, request.space)
            if request.scores_prompt:
                owner, shared = None, 0
            found[id(request)] = owner
            request.held = min(shared, len(request.tokens) - 1)
        slots = self._decoder.slots
        slots.reserve(len(self.requests) + len(requests), max(len(request.tokens) for request in requests))
        ordered = sorted(requests, key=lambda r: (r.scores_prompt, r.space, len(r.tokens) - r.held))
        for slot, request in enumerate(ordered, len(self.requests)):
            owner = found[id(request)]
            if owner is None or not request.held:
                request.held = 0
            elif owner.content is None:
                slots.copy(self._slot_of(owner), slot, request.held)
            else:
                slots.write(slot, owner.content, request.held)
        for batch in _batches(ordered, self._max_prefill_tokens):
            first = len(self.requests)
            try:
                logits = self._run(first, batch)
            except RuntimeError as error:
                self.requests.extend(batch)
                yield batch, error
                continue
            self.requests.extend(batch)
            for slot, request in enumerate(batch, first):
                self._register(slot, request)
            yield batch, logits

    def decode(self) -> Tensor:
        """One step of every row; next-token logits [rows, vocab]."""
        lengths = [request.length for request in self.requests]
        self._decoder.slots.reserve(len(self.requests), max(lengths))
        self._adapters.route([request.params.adapter for request in self.requests])
        return self._decoder.decode([request.sampled[-1] for request in self.requests], lengths)

    def retire(self, leaves: Callable[[Request], bool], *, keep_prefixes: bool = True) -> list[Request]:
        """Take out the requests for which `leaves` is true, their prefixes kept for others; in slot order."""
        gone = []
        for slot in range(len(self.requests) - 1, -1, -1):
            request = self.requests[slot]
            if not leaves(request):
                continue
            if request.owner is not None:
                self._prefixes.unregister(request.owner)
                request.owner = None
            if request.finish_reason == "error":
                self._decoder.slots.wipe(slot)
            elif keep_prefixes and request.sampled:
                self._keep_prefix(request, slot)
            last = self.requests.pop()
            if last is not request:
                self._decoder.slots.move(len(self.requests), slot, last.length - 1)
                self.requests[slot] = last
            gone.append(request)
        return gone[::-1]

    def _run(self, first_slot: int, batch: list[Request]) -> Tensor:
        self._adapters.route([request.params.adapter for request in batch])
        if not batch[0].scores_prompt:
            return self._decoder.prefill(
                first_slot, [r.tokens for r in batch], [r.held for r in batch], max_tokens=self._max_prefill_tokens
            )
        request = batch[0]
        scorer = PromptScorer(request.prompt, request.params)
        logits = self._decoder.prefill_visited(first_slot, request.tokens, scorer.add, max_tokens=self._scored_at_once)
        request.prompt_logprobs = scorer.scores()
        return logits

    def _register(self, slot: int, request: Request) -> None:
        """Let others begin with the request's tokens."""
        if isinstance(self._decoder, SlotDecoder):
            request.owner = PrefixOwner(request.tokens, request.chain, request.routing_key, None, request.space)
            self._prefixes.register(request.owner)
            return
        state = self._decoder.prompt_states.pop(slot, None)
        tokens = request.tokens[:-1]
        chain = block_chain(tokens, (), request.space)
        if state is not None and self._prefixes.wants(tokens, chain, request.space):
            self._prefixes.store(PrefixOwner(tokens, chain, None, state, request.space))

    def _keep_prefix(self, request: Request, slot: int) -> None:
        tokens = request.all_tokens()[:-1]
        chain = block_chain(tokens, request.chain, request.space)
        if self._prefixes.wants(tokens, chain, request.space):
            content = self._decoder.slots.read(slot, len(tokens))
            self._prefixes.store(PrefixOwner(tokens, chain, request.routing_key, content, request.space))

    def _slot_of(self, owner: PrefixOwner) -> int:
        return next(slot for slot, request in enumerate(self.requests) if request.owner is owner)


def _batches(requests: list[Request], max_tokens: int) -> list[list[Request]]:
    """Cut sorted requests so that padding costs less than another pass would.

    A request whose prompt is scored goes alone, as does one of another adapter than its neighbour.
    """
    batches: list[list[Request]] = []
    for request in requests:
        new = len(request.tokens) - request.held
        if batches and not request.scores_prompt:
            batch = batches[-1]
            padding = sum(abs(new - (len(r.tokens) - r.held)) for r in batch)
            fits = (len(batch) + 1) * new <= max_tokens and len(batch) < PREFILL_ROWS
            alone = request.held == 0 and new >= ALONE_FROM
            alike = not alone and batch[0].space == request.space and not batch[0].scores_prompt
            if alike and fits and padding <= PADDING_PER_ROW * len(batch):
                batch.append(request)
                continue
        batches.append([request])
    return batches
