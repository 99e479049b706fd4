"""The requests that wait, and which of them run next.

A request is admitted when there is room for it to grow by some tokens. When several begin alike, the first is admitted
alone and the others take its prefix from there. Where running requests turn out longer than the memory for keys and
values allows, the one that sampled least goes back to wait and later goes on where it was.
"""

from collections import deque
from collections.abc import Sequence

from drydock.engine.adapters import Adapters
from drydock.engine.prefix_cache import PrefixCache, block_chain
from drydock.engine.request import Request
from drydock.errors import UserError


class WaitingRequests:
    """requests: in the order of their turn.

    max_rows: requests that run at most. kv_tokens: rows times the longest of them, at most; one may always run.
    """

    def __init__(self, prefixes: PrefixCache, adapters: Adapters, *, max_rows: int, kv_tokens: int) -> None:
        self.requests: deque[Request] = deque()
        self._prefixes = prefixes
        self._adapters = adapters
        self._max_rows = max_rows
        self._kv_tokens = kv_tokens

    def put_back(self, requests: Sequence[Request]) -> None:
        """Have requests that ran wait before all others, in this order."""
        self.requests.extendleft(reversed(requests))

    def next_round(self, running: Sequence[Request]) -> tuple[list[Request], list[Request]]:
        """Take out those that can be prefilled now, and those that fail (with their error): their adapter is gone.

        One that begins like another of the round waits for the next.
        """
        chosen: list[Request] = []
        failed: list[Request] = []
        begun: set[int] = set()
        later: list[Request] = []
        while self.requests and self._fits(running, chosen):
            request = self.requests.popleft()
            if not self._placed(request):
                failed.append(request)
            elif self._begins_alike(request, begun):
                later.append(request)
            else:
                chosen.append(request)
        self.put_back(later)
        return chosen, failed

    def one_too_many(self, running: Sequence[Request]) -> Request | None:
        """Of the running requests the one that has to wait again, None while all have room."""
        if len(running) > 1 and len(running) * max(request.length for request in running) > self._kv_tokens:
            return min(running, key=lambda request: len(request.sampled))
        return None

    def _placed(self, request: Request) -> bool:
        """Find the request's place in the prefix cache; False, with the request failed, when its adapter is gone."""
        try:
            request.space = self._adapters.space(request.params.adapter)
        except UserError as error:
            request.fail(str(error))
            return False
        request.chain = block_chain(request.tokens, request.chain, request.space)
        return True

    def _begins_alike(self, request: Request, begun: set[int]) -> bool:
        """Whether a request chosen before it will have computed more of its prompt than anyone has now."""
        if self._prefixes.whole:
            held = self._prefixes.find(request.tokens, request.chain, request.routing_key, request.space)[1]
            mark = hash((request.space, request.tokens.tobytes()))
            if held < len(request.tokens) - 1 and mark in begun:
                return True
            begun.add(mark)
            return False
        held = self._prefixes.depth(request.chain)
        if len(request.chain) > held and request.chain[held] in begun:
            return True
        begun.update(request.chain)
        return False

    def _fits(self, running: Sequence[Request], chosen: Sequence[Request]) -> bool:
        rows = len(running) + len(chosen)
        if rows == 0:
            return True
        longest = max(request.expected_length for request in (*running, *chosen, self.requests[0]))
        return rows < self._max_rows and (rows + 1) * longest <= self._kv_tokens
