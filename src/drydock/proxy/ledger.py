"""The token ledger of one rollout: a tree of segments, each a stretch of prompt followed by one sampled turn.

The path from the root to a turn is the exact token history under which the next turn is sampled. A request is laid
along the tree as far as its messages match (`drydock.proxy.matching`); from there only what the harness added is
rendered. When the deepest match is a leaf, the request extends it. When it is not, a new branch starts there, which
shares the tokens up to that point; its reason (`drydock.proxy.branching`) is kept and counted. What the request shows
after that point is rendered anew and has mask 0. A request equal to one already answered, or being answered, finds that
turn instead of making a new one. A request that goes on from any recorded turn, not only the latest, rejoins it there.

Invariants: sampled ids are never tokenized again; the tokens of a segment never change; the tree is changed only by
`extend`, `record` and `abandon`, none of which waits, so calls may overlap. A request that begins with a recent one
costs what it adds, not what it repeats, but for comparing and copying.
"""

from array import array
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from drydock.chat.continuation import HistoryRewritten
from drydock.chat.messages import NO_CALLS, Message
from drydock.chat.parsers.base import ParsedReply
from drydock.chat.template import ChatTemplate
from drydock.proxy.branching import BranchReason, branch_reason
from drydock.proxy.matching import Replay, given_messages, match_given, replay_of, said
from drydock.proxy.record import LedgerSample
from drydock.proxy.sampler import SampledTurn
from drydock.proxy.segment import Segment
from drydock.proxy.token_hash import TokenHash
from drydock.proxy.tool_set import ToolSet

type Thinking = Literal["keep", "template"]
_RECENT = 16
"""Answered requests whose successors are found without walking the tree: one for each conversation that goes on."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a request is sampled under.

    ids: all prompt tokens; empty where the request repeats an earlier one (`repeat`), whose segment this then is.
    """

    ids: "array[int]"
    segment: Segment
    messages: tuple[Message, ...]
    repeat: bool

    @property
    def branch(self) -> int:
        """Number of the branch."""
        return self.segment.branch

    @property
    def reason(self) -> BranchReason | None:
        """Why the request left the recorded history, if it did."""
        return self.segment.reason


class Ledger:
    """See the module's note. One per rollout, used from one event loop.

    thinking: "keep" leaves sampled thinking where it is; "template" starts a branch, rendered in full, at each user
    message after which the template would hide it.
    """

    def __init__(self, template: ChatTemplate, *, thinking: Thinking = "keep") -> None:
        self._template = template
        self._strips = thinking == "template" and template.strips_reasoning
        self._tool_sets: list[ToolSet] = []
        self._roots: list[Segment] = []
        self._recorded: list[Segment] = []
        self._recent: deque[tuple[Segment, tuple[Message, ...]]] = deque(maxlen=_RECENT)
        self._by_call: dict[str, Segment] = {}
        self._by_text: dict[str, Segment] = {}
        self._branches = 0
        self.branch_reasons: Counter[str] = Counter()

    def extend(self, messages: Sequence[Message], tools: list[dict[str, Any]] | None) -> Prompt:
        """Place a request in the tree and give the tokens to sample under.

        The segment is in the tree at once; finish it with `record` or take it out with `abandon`. A repeat needs
        neither. Raises TemplateError when the template refuses the messages; the tree is then unchanged.
        """
        messages = tuple(messages)
        tool_set = self._tool_set(tools)
        parent, start = self._locate(messages, tool_set)
        given = given_messages(messages, start, _call_ids(parent))
        if parent is not None and self._hides_thinking(parent, given):
            return self._place(None, messages, messages, tool_set, BranchReason.THINKING_STRIPPED)
        try:
            return self._place(parent, given, messages, tool_set)
        except HistoryRewritten:
            return self._place(None, messages, messages, tool_set, BranchReason.TEMPLATE_REWRITES)

    def record(self, prompt: Prompt, turn: SampledTurn, reply: ParsedReply) -> int:
        """Put the sampled turn into its segment; returns its index in the order of recording."""
        segment = prompt.segment
        segment.turn = turn
        segment.index = len(self._recorded)
        segment.said = said(reply)
        segment.sampled_ids = array("I", turn.sampled_ids)
        segment.path_hash = segment.prompt_hash.extended(segment.sampled_ids)
        self._recorded.append(segment)
        self._recent.append((segment, prompt.messages))
        self._by_call.update(dict.fromkeys(segment.said.calls, segment))
        if not segment.said.calls and segment.said.text:
            self._by_text[segment.said.text] = segment
        if segment.reason is not None:
            self.branch_reasons[segment.reason.value] += 1
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
        for known in reversed(self._tool_sets):
            if known.tools == tools:
                return known
        self._tool_sets.append(ToolSet(tools))
        return self._tool_sets[-1]

    def _locate(self, messages: tuple[Message, ...], tools: ToolSet) -> tuple[Segment | None, int]:
        """The recorded segment that the most messages go through, and the place after its turn's first message."""
        best = self._recently(messages, tools)
        open_ends = [best]
        while open_ends:
            parent, start = open_ends.pop()
            if start > best[1]:
                best = (parent, start)
            for child in parent.children if parent else self._roots:
                if child.said is None or child.tools is not tools:
                    continue
                place = match_given(messages, start, child.given, _call_ids(parent))
                if place is not None and replay_of(child.said, messages, place) is Replay.SAME:
                    open_ends.append((child, place + 1))
        return best

    def _recently(self, messages: tuple[Message, ...], tools: ToolSet) -> tuple[Segment | None, int]:
        """Where the longest recent request ends that `messages` begin with, its turn included."""
        best: tuple[Segment | None, int] = (None, 0)
        for segment, answered in reversed(self._recent):
            end = len(answered)
            if segment.said is None or segment.tools is not tools or end < best[1]:
                continue
            if replay_of(segment.said, messages, end) is Replay.SAME and messages[:end] == answered:
                best = (segment, end + 1)
        return best

    def _place(
        self,
        parent: Segment | None,
        given: tuple[Message, ...],
        messages: tuple[Message, ...],
        tools: ToolSet,
        reason: BranchReason | None = None,
    ) -> Prompt:
        """The prompt of `messages`, of which `given` follow the turn of `parent`.

        reason: why it is a branch, if that is known already.
        """
        siblings = parent.children if parent else self._roots
        for sibling in siblings:
            if sibling.tools is tools and sibling.given == given:
                return Prompt(array("I"), sibling, messages, repeat=True)
        added = self._render(parent, given, tools)
        if reason is None and siblings:
            reason = branch_reason(siblings, given, tools, list(self._shown(given)))
        segment = Segment(
            parent=parent,
            tools=tools,
            given=given,
            added_ids=added,
            prompt_length=(parent.path_length if parent else 0) + len(added),
            prompt_hash=(parent.path_hash if parent and parent.path_hash else TokenHash()).extended(added),
            branch=parent.branch if parent and reason is None else self._branches,
            reason=reason,
        )
        if segment.branch == self._branches:
            self._branches += 1
        siblings.append(segment)
        return Prompt(segment.path_ids(), segment, messages, repeat=False)

    def _hides_thinking(self, parent: Segment, given: Sequence[Message]) -> bool:
        """Whether the template would render the path to `parent` without its thinking now that `given` follows."""
        if not self._strips or all(message.role != "user" for message in given):
            return False
        return any(segment.said is not None and segment.said.reasoning for segment in parent.path)

    def _render(self, parent: Segment | None, given: Sequence[Message], tools: ToolSet) -> "array[int]":
        forms = [message.template_form() for message in self._restored(given)]
        if parent is None:
            return array("I", self._template.first_prompt(forms, tools.tools))
        last_id = parent.sampled_ids[-1] if parent.sampled_ids else None
        calls = tuple(parent.said.calls.values()) if parent.said is not None else ()
        return array(
            "I",
            self._template.continuation(forms, tools.tools, tools_key=tools.key, last_id=last_id, calls=calls),
        )

    def _restored(self, messages: Sequence[Message]) -> Iterator[Message]:
        """The messages, with the thinking that was sampled before calls where a harness replays them without it."""
        done: set[Segment] = set()
        for message in messages:
            turn = self._turn_of(message) if message.calls and not message.reasoning else None
            if turn is None or turn.said is None or not turn.said.reasoning or turn in done:
                yield message
            else:
                done.add(turn)
                yield replace(message, reasoning=turn.said.reasoning)

    def _shown(self, messages: Sequence[Message]) -> Iterator[Segment]:
        """The recorded turns that are seen in `messages`, changed or not."""
        return (turn for message in messages if (turn := self._turn_of(message)) is not None)

    def _turn_of(self, message: Message) -> Segment | None:
        if message.role != "assistant":
            return None
        if not message.calls:
            return self._by_text.get(message.text.strip())
        return next((turn for call in message.calls if (turn := self._by_call.get(call.id)) is not None), None)


def _call_ids(segment: Segment | None) -> frozenset[str]:
    return segment.said.call_ids if segment is not None and segment.said is not None else NO_CALLS
