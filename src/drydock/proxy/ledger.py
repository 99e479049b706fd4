"""The token ledger of one rollout: a tree of segments, each a stretch of prompt followed by one sampled turn.

The path from the root to a turn is the exact token history under which the next turn is sampled. A request is laid
along the tree as far as its messages match (`drydock.proxy.branching`); from there only what the harness added is
rendered. When the deepest match is a leaf, the request extends it. When it is not, a new branch starts there, which
shares the tokens up to that point, and its reason is counted. A request equal to one already answered, or being
answered, finds that turn instead of making a new one.

Invariants: sampled ids are never tokenized again; the tokens of a segment never change; the tree is changed only by
`extend`, `record` and `abandon`, none of which waits, so calls may overlap.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from drydock.chat.messages import NO_CALLS, Message
from drydock.chat.parsers.base import ParsedReply
from drydock.chat.template import ChatTemplate
from drydock.proxy.branching import BranchReason, given_messages, match_given, match_turn, mismatch
from drydock.proxy.record import LedgerSample
from drydock.proxy.sampler import SampledTurn
from drydock.proxy.token_hash import TokenHash
from drydock.proxy.tool_set import ToolSet


@dataclass(eq=False, slots=True)
class Segment:
    """Messages of the harness with their tokens, and the turn sampled after them (None while it is being sampled).

    added_ids: prompt tokens after the parent's last token. prompt_length counts the whole path up to the sampled turn.
    branch: number of the branch; reason: why it left the recorded history, if this segment did.
    """

    parent: "Segment | None"
    tools: ToolSet
    given: tuple[Message, ...]
    added_ids: tuple[int, ...]
    prompt_length: int
    prompt_hash: TokenHash
    branch: int
    reason: BranchReason | None
    children: "list[Segment]" = field(default_factory=list)
    turn: SampledTurn | None = None
    index: int = -1
    text: str = ""
    call_ids: frozenset[str] = NO_CALLS
    path_hash: TokenHash | None = None

    @property
    def path(self) -> "list[Segment]":
        """Segments from the first to this one."""
        segments: list[Segment] = []
        segment: Segment | None = self
        while segment is not None:
            segments.append(segment)
            segment = segment.parent
        return segments[::-1]


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a request is sampled under.

    ids: all prompt tokens; empty where the request repeats an earlier one (`repeat`), whose segment this then is.
    """

    ids: tuple[int, ...]
    branch: int
    reason: BranchReason | None
    segment: Segment
    repeat: bool


class Ledger:
    """See the module's note. One per rollout, used from one event loop."""

    def __init__(self, template: ChatTemplate) -> None:
        self._template = template
        self._roots: list[Segment] = []
        self._recorded: list[Segment] = []
        self._branches = 0
        self.branch_reasons: Counter[str] = Counter()

    def extend(self, messages: Sequence[Message], tools: list[dict[str, Any]] | None) -> Prompt:
        """Place a request in the tree and give the tokens to sample under.

        The segment is in the tree at once; finish it with `record` or take it out with `abandon`. A repeat needs
        neither. Raises TemplateError when the template refuses the messages; the tree is then unchanged.
        """
        tool_set = self._tool_set(tools)
        parent, start = self._locate(messages, tool_set)
        call_ids = parent.call_ids if parent else NO_CALLS
        given = given_messages(messages, start, call_ids)
        siblings = parent.children if parent else self._roots
        for sibling in siblings:
            if sibling.tools is tool_set and sibling.given == given:
                return Prompt((), sibling.branch, sibling.reason, sibling, repeat=True)
        added = self._render(parent, given, tool_set)
        reason = self._reason(siblings, given, tool_set)
        segment = Segment(
            parent=parent,
            tools=tool_set,
            given=given,
            added_ids=added,
            prompt_length=(_path_length(parent) if parent else 0) + len(added),
            prompt_hash=(parent.path_hash if parent and parent.path_hash else TokenHash()).extended(added),
            branch=parent.branch if parent and reason is None else self._branches,
            reason=reason,
        )
        if segment.branch == self._branches:
            self._branches += 1
        siblings.append(segment)
        return Prompt(_path_ids(segment), segment.branch, reason, segment, repeat=False)

    def record(self, prompt: Prompt, turn: SampledTurn, reply: ParsedReply) -> int:
        """Put the sampled turn into its segment; returns its index in the order of recording."""
        segment = prompt.segment
        segment.turn = turn
        segment.index = len(self._recorded)
        segment.text = reply.content or ""
        segment.call_ids = frozenset(call.id for call in reply.calls)
        segment.path_hash = segment.prompt_hash.extended(turn.sampled_ids)
        self._recorded.append(segment)
        if segment.reason is not None:
            self.branch_reasons[segment.reason] += 1
        return segment.index

    def abandon(self, prompt: Prompt) -> None:
        """Take a segment whose sampling did not happen out of the tree."""
        parent = prompt.segment.parent
        (parent.children if parent else self._roots).remove(prompt.segment)

    def samples(self) -> list[LedgerSample]:
        """One training row per leaf, oldest leaf first; a turn shared by several has mask 1 in the first of them."""
        trained: set[int] = set()
        rows: list[LedgerSample] = []
        for leaf in self._recorded:
            if any(child.turn is not None for child in leaf.children):
                continue
            row = LedgerSample(token_ids=[], loss_mask=[], logprobs=[], turn_indices=[])
            for segment in leaf.path:
                assert segment.turn is not None
                own = segment.index not in trained
                trained.add(segment.index)
                sampled = segment.turn.sampled_ids
                row.token_ids += [*segment.added_ids, *sampled]
                row.loss_mask += [0] * len(segment.added_ids) + [int(own)] * len(sampled)
                row.logprobs += [0.0] * len(segment.added_ids)
                row.logprobs += segment.turn.logprobs if own else [0.0] * len(sampled)
                if own:
                    row.turn_indices.append(segment.index)
            rows.append(row)
        return rows

    def _tool_set(self, tools: list[dict[str, Any]] | None) -> ToolSet:
        """The tool set of an earlier request that is equal, so that tool sets compare by identity."""
        for root in reversed(self._roots):
            if root.tools.tools == tools:
                return root.tools
        return ToolSet(tools)

    def _locate(self, messages: Sequence[Message], tools: ToolSet) -> tuple[Segment | None, int]:
        """The deepest recorded segment that the messages go through, and the place after its turn's first message."""
        parent: Segment | None = None
        start = 0
        candidates = [root for root in self._roots if root.tools is tools]
        while True:
            call_ids = parent.call_ids if parent else NO_CALLS
            for segment in reversed(candidates):
                if segment.turn is None:
                    continue
                place = match_given(messages, start, segment.given, call_ids)
                if place is not None and match_turn(messages, place, segment.text, segment.call_ids):
                    parent, start, candidates = segment, place + 1, segment.children
                    break
            else:
                return parent, start

    def _render(self, parent: Segment | None, given: Sequence[Message], tools: ToolSet) -> tuple[int, ...]:
        forms = [message.template_form() for message in given]
        if parent is None:
            return self._template.first_prompt(forms, tools.tools)
        assert parent.turn is not None
        sampled = parent.turn.sampled_ids
        ended = bool(sampled) and sampled[-1] == self._template.turn_end_id
        return tuple(self._template.continuation(forms, tools.tools, tools_key=tools.key, turn_ended=ended))

    @staticmethod
    def _reason(siblings: Sequence[Segment], given: Sequence[Message], tools: ToolSet) -> BranchReason | None:
        if not siblings:
            return None
        newest = next((sibling for sibling in reversed(siblings) if sibling.tools is tools), None)
        if newest is None:
            return BranchReason.TOOLS_CHANGED
        return mismatch(given, newest.given, newest.call_ids if newest.turn is not None else None)


def _path_length(segment: Segment) -> int:
    return segment.prompt_length + len(segment.turn.sampled_ids if segment.turn else ())


def _path_ids(segment: Segment) -> tuple[int, ...]:
    ids: list[int] = []
    for part in segment.path:
        ids += part.added_ids
        if part.turn is not None:
            ids += part.turn.sampled_ids
    return tuple(ids)
