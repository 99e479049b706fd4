"""One choice of a streamed answer while it grows: which text may be told already.

Once tools are offered, text from the first possible beginning of a call on waits for the end, and so does white space
in front of it: whether it is a call, and what content is left around it, only the whole text tells.
"""

from collections.abc import Callable
from typing import Any

from drydock.chat import ParsedReply, ToolCallParser
from drydock.service.serving.answers import Sample, parsed


class GrowingChoice:
    """told: characters of the text that were given out. tokens: how many of the sample's tokens were."""

    def __init__(self, parser: ToolCallParser | None) -> None:
        self.told = 0
        self.tokens = 0
        self._parser = parser
        self._text = ""

    def take(self, piece: dict[str, Any]) -> str:
        """The text that a piece allows to tell."""
        self._text += piece["text"]
        self.tokens += len(piece["token_ids"])
        return self._tell(self._certain())

    def finish(self, sample: Sample, new_id: Callable[[], str]) -> tuple[str, ParsedReply]:
        """The rest of the content, and the whole message."""
        self._text = sample["text"]
        reply = parsed(sample, self._parser, new_id)
        if not reply.calls:
            return self._tell(len(self._text)), reply
        content = reply.content or ""
        told = self._text[: self.told].lstrip()
        return content[len(told) :] if content.startswith(told) else "", reply

    def rest(self, sample: Sample) -> dict[str, Any]:
        """Ids and log-probs of the tokens that no piece has told."""
        part = {key: sample[key][self.tokens :] for key in ("token_ids", "logprobs", "top_logprobs") if key in sample}
        self.tokens = len(sample["token_ids"])
        return part

    def _tell(self, until: int) -> str:
        new = self._text[self.told : until]
        self.told = max(self.told, until)
        return new

    def _certain(self) -> int:
        if self._parser is None:
            return len(self._text)
        opening = self._parser.opening
        found = self._text.find(opening)
        if found < 0:
            ends = (length for length in range(len(opening) - 1, 0, -1) if self._text.endswith(opening[:length]))
            found = len(self._text) - next(ends, 0)
        return len(self._text[:found].rstrip())
