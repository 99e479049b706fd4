"""One choice of a streamed answer while it grows: which deltas its pieces allow to tell, and which tokens were told.

A chat choice is read as its text comes; what may become a call or reasoning waits until that is certain. Of a plain
completion all text is content.
"""

from collections.abc import Sequence
from typing import Any

from drydock.chat import ParsedReply, ReplyDelta, ReplyStream
from drydock.service.serving.answers import Sample


class GrowingChoice:
    """told: characters of the text that came in. tokens: how many of the sample's tokens were told."""

    def __init__(self, stream: ReplyStream | None) -> None:
        self.told = 0
        self.tokens = 0
        self._stream = stream
        self._calls = 0

    def take(self, piece: dict[str, Any]) -> list[ReplyDelta]:
        """What a piece adds."""
        self.tokens += len(piece["token_ids"])
        return self._feed(piece["text"])

    def finish(self, sample: Sample) -> tuple[list[ReplyDelta], ParsedReply]:
        """What is left, and the whole message."""
        deltas = self._feed(sample["text"][self.told :])
        if self._stream is None:
            return deltas, ParsedReply(sample["text"], ())
        rest, reply = self._stream.finish()
        return [*deltas, *rest], reply

    def rest(self, sample: Sample) -> dict[str, Any]:
        """Ids and log-probs of the tokens that no piece has told."""
        part = {key: sample[key][self.tokens :] for key in ("token_ids", "logprobs", "top_logprobs") if key in sample}
        self.tokens = len(sample["token_ids"])
        return part

    def wire_forms(self, deltas: Sequence[ReplyDelta]) -> list[dict[str, Any]]:
        """Deltas in OpenAI's form, text that belongs together in one; calls are numbered through the choice."""
        wired: list[dict[str, Any]] = []
        for delta in deltas:
            key, text = ("reasoning_content", delta.reasoning) if delta.reasoning else ("content", delta.content)
            if (call := delta.call) is not None:
                function = {"name": call.name, "arguments": call.arguments}
                form = {"index": self._calls, "id": call.id, "type": "function", "function": function}
                wired.append({"tool_calls": [form]})
                self._calls += 1
            elif wired and key in wired[-1]:
                wired[-1][key] += text
            else:
                wired.append({key: text})
        return wired

    def _feed(self, text: str) -> list[ReplyDelta]:
        self.told += len(text)
        if self._stream is not None:
            return self._stream.feed(text)
        return [ReplyDelta(content=text)] if text else []


def content_of(deltas: Sequence[ReplyDelta]) -> str:
    """The content in `deltas`."""
    return "".join(delta.content for delta in deltas)
