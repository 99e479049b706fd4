"""OpenAI-compatible serving of running sampling jobs: chat completions, completions and the list of models.

Clients give `<service>/v1` as base URL and a token of the service as API key. Which job answers is said by `model`
(see `drydock.service.serving.served_model`). Refusals have OpenAI's error object.
"""

import asyncio
import itertools
import json
import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import wraps
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from drydock.chat import ReplyReader, RequestRefused, error_body, reader_for
from drydock.chat.messages import parse_message
from drydock.engine.lora_settings import BASE
from drydock.errors import DrydockError, UserError
from drydock.service import generation
from drydock.service.context import service_of
from drydock.service.gate import SERVING
from drydock.service.identity import identity_of
from drydock.service.live_job import LiveJob
from drydock.service.problems import Refusal, json_response
from drydock.service.row_limits import RowLimits
from drydock.service.serving.answers import (
    Envelope,
    TokenTexts,
    chat_choice,
    finish_reason,
    samples_of,
    usage,
)
from drydock.service.serving.bodies import ChatBody, CompletionBody, SampledBody, read
from drydock.service.serving.growing_choice import GrowingChoice, content_of
from drydock.service.serving.sampling import Told, first_of, pieces, sampled
from drydock.service.serving.served_model import ServedModel, find_model, template_of, tokenizer_of, unique_names
from drydock.service.sse import streamed
from drydock.service.worker_group import OperationError
from drydock.wire.rest import INT32_MAX, GenerateBody

DEFAULT_COMPLETION_TOKENS = 16
"""Of a completion that does not say; a chat completion may use what its context leaves."""
ADAPTERS_TIMEOUT_S = 5.0
"""How long the list of models waits for one job's sampler, which may be starting again."""

router = APIRouter(include_in_schema=False)
logger = logging.getLogger(__name__)


def _answered(route: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """The route, with what it raises as OpenAI's error object."""

    @wraps(route)
    async def answered(request: Request) -> Response:
        try:
            return await route(request)
        except RequestRefused as refusal:
            return _json(refusal.body(), refusal.status)
        except Refusal as refusal:
            kind = "invalid_request_error" if refusal.status < 500 else "server_error"
            return _json(error_body(refusal.message, kind), refusal.status)
        except DrydockError as error:
            return _json(_failure(error), 400 if isinstance(error, UserError) else 500)

    return answered


@router.get(SERVING + "/models")
@_answered
async def models(request: Request) -> Response:
    """Every running job's model under each of its names, and the adapters that its sampler holds."""
    jobs = _serving(request)
    held = dict(zip([job.job_id for job in jobs], await asyncio.gather(*map(_adapters, jobs)), strict=True))
    listed = []
    for name, job in unique_names(jobs):
        adapters = (*_base_beside(job), *held[job.job_id]) if name == job.job_id else ()
        for model in (name, *(f"{name}:{adapter}" for adapter in adapters)):
            listed.append(
                {"id": model, "object": "model", "created": int(job.created_at), "owned_by": job.owner or "drydock"}
            )
    return json_response({"object": "list", "data": listed})


@router.post(SERVING + "/chat/completions")
@_answered
async def chat_completions(request: Request) -> Response:
    """One assistant turn, or n of them."""
    body = read(ChatBody, await request.body())
    model = await _model(request, body)
    template = await asyncio.to_thread(template_of, model.source)
    messages = [parse_message(message, place).template_form() for place, message in enumerate(body.messages)]
    tools = body.tools if body.tool_choice != "none" else None
    prompt = list(await asyncio.to_thread(template.first_prompt, messages, tools))
    wanted = (body.top_logprobs or 0) if body.logprobs else None
    params = body.sampling(adapter=model.adapter, logprobs=wanted, max_tokens=INT32_MAX)
    params.stop_token_ids = sorted({*params.stop_token_ids, *(() if params.ignore_eos else template.stop_ids)})
    asked = GenerateBody(prompts=[prompt], sampling_params=params, routing_key=body.prompt_cache_key)
    _check(model.job, asked, "messages")
    envelope = Envelope("chat.completion", body.model)
    reader = reader_for(template) if tools else reader_for(template).without_calls()
    new_id = _call_ids(reader)
    texts = TokenTexts(template.tokenizer) if body.logprobs else None
    if body.stream:
        told = await first_of(pieces(service_of(request), model.job, asked))
        growing = [GrowingChoice(reader.stream(new_id, tools)) for _ in range(params.n)]
        return streamed(_events(_chat_chunks(told, growing, texts), envelope, body))
    results = await sampled(request, service_of(request), model.job, asked)
    choices = [
        chat_choice(index, sample, reader.parse(sample["text"], new_id, tools), texts.chat(sample) if texts else None)
        for index, sample in enumerate(samples_of(results[0]))
    ]
    return json_response(envelope.around(choices, usage(results), chunk=False))


@router.post(SERVING + "/completions")
@_answered
async def completions(request: Request) -> Response:
    """Continuations of texts or token ids; choices of prompt i are numbered from i * n."""
    body = read(CompletionBody, await request.body())
    model = await _model(request, body)
    params = body.sampling(adapter=model.adapter, logprobs=body.logprobs, max_tokens=DEFAULT_COMPLETION_TOKENS)
    params.skip_special_tokens = True
    asked = GenerateBody(prompts=body.prompts(), sampling_params=params, routing_key=body.prompt_cache_key)
    _check(model.job, asked, "prompt")
    envelope = Envelope("text_completion", body.model)
    wants = body.logprobs is not None
    texts = TokenTexts(await asyncio.to_thread(tokenizer_of, model.source)) if wants else None
    if body.stream:
        told = await first_of(pieces(service_of(request), model.job, asked))
        growing = [GrowingChoice(None) for _ in range(params.n * len(asked.prompts))]
        return streamed(_events(_plain_chunks(told, growing, params.n, texts), envelope, body))
    results = await sampled(request, service_of(request), model.job, asked)
    choices = [
        {
            "index": index,
            "text": sample["text"],
            "logprobs": texts.plain(sample, 0) if texts else None,
            "finish_reason": finish_reason(sample),
        }
        for index, sample in enumerate(sample for result in results for sample in samples_of(result))
    ]
    return json_response(envelope.around(choices, usage(results), chunk=False))


def _serving(request: Request) -> list[LiveJob]:
    """Running jobs of the caller's that have a sampler."""
    identity = identity_of(request)
    running = service_of(request).jobs.running()
    return [job for job in running if job.of_type("sampling") and identity.owns(job.owner)]


def _check(job: LiveJob, asked: GenerateBody, param: str) -> None:
    """Refuses what no engine could serve, in the words of OpenAI's API. Raises RequestRefused naming `param`."""
    spec = job.sampling()[0].spec
    limit = RowLimits.of(spec.sub_job_id, spec.config).max_seq_len
    longest = max((len(prompt) for prompt in asked.prompts if isinstance(prompt, list)), default=0)
    if limit is not None and longest >= limit:
        raise RequestRefused(
            f"context length exceeded: this model's maximum context length is {limit} tokens and the prompt has "
            f"{longest}",
            param=param,
            code="context_length_exceeded",
        )
    try:
        generation.check(job, asked)
    except Refusal as refusal:
        raise RequestRefused(refusal.message, param=param) from refusal


async def _adapters(job: LiveJob) -> list[str]:
    """Names of the adapters that a job's sampler holds; of one that cannot say so now, its model is listed alone."""
    try:
        async with asyncio.timeout(ADAPTERS_TIMEOUT_S):
            reply = await job.sampling()[0].call("list-adapters")
    except (TimeoutError, OperationError, DrydockError) as error:
        logger.warning("job %s is listed without its adapters: %r", job.job_id, error)
        return []
    return list(reply.header["result"]["adapters"])


def _base_beside(job: LiveJob) -> tuple[str, ...]:
    """`base` where the job began with an adapter as its policy: then both are worth a name."""
    return (BASE,) if job.sampling()[0].spec.config["inference_config"].get("policy_adapter") else ()


async def _model(request: Request, body: SampledBody) -> ServedModel:
    identity_of(request).require_changes()
    service = service_of(request)
    model = find_model(_serving(request), body.model, service.settings.state_dir / "jobs")
    await service.jobs.require_running(model.job.job_id)
    return model


async def _chat_chunks(
    told: AsyncIterator[Told], growing: list[GrowingChoice], texts: TokenTexts | None
) -> AsyncIterator[tuple[list[dict[str, Any]], list[dict[str, Any]] | None]]:
    """Choices of each chunk, and at the end the results."""

    def choice(index: int, delta: dict[str, Any], part: dict[str, Any] | None, ending: str | None) -> dict[str, Any]:
        logprobs = texts.chat(part) if texts is not None and part is not None and part["token_ids"] else None
        return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": ending}

    yield [choice(index, {"role": "assistant", "content": ""}, None, None) for index in range(len(growing))], None
    async for item in told:
        if isinstance(item, dict):
            grown = growing[item["sample"]]
            for delta, part in _with_tokens(grown.wire_forms(grown.take(item)), item, texts is not None):
                yield [choice(item["sample"], delta, part, None)], None
            continue
        for index, sample in enumerate(samples_of(item[0])):
            deltas, reply = growing[index].finish(sample)
            forms, rest = growing[index].wire_forms(deltas), growing[index].rest(sample)
            for delta, part in _with_tokens(forms, rest, texts is not None and bool(rest["token_ids"])):
                yield [choice(index, delta, part, None)], None
            yield [choice(index, {}, None, "tool_calls" if reply.calls else finish_reason(sample))], None
        yield [], item


def _with_tokens(
    deltas: list[dict[str, Any]], part: dict[str, Any], wanted: bool
) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
    """Deltas, the tokens of a piece beside the first of them; where they are wanted, also without any text."""
    told = deltas or ([{"content": ""}] if wanted else [])
    return [(delta, part if place == 0 else None) for place, delta in enumerate(told)]


async def _plain_chunks(
    told: AsyncIterator[Told], growing: list[GrowingChoice], n: int, texts: TokenTexts | None
) -> AsyncIterator[tuple[list[dict[str, Any]], list[dict[str, Any]] | None]]:
    """As `_chat_chunks`, for completions."""

    def choice(index: int, text: str, part: dict[str, Any], ending: str | None) -> dict[str, Any]:
        offset = growing[index].told - len(text)
        logprobs = texts.plain(part, offset) if texts is not None and part["token_ids"] else None
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": ending}

    async for item in told:
        if isinstance(item, dict):
            index = item["prompt"] * n + item["sample"]
            text = content_of(growing[index].take(item))
            if text or texts is not None:
                yield [choice(index, text, item, None)], None
            continue
        for index, sample in enumerate(sample for result in item for sample in samples_of(result)):
            rest, _ = growing[index].finish(sample)
            yield [choice(index, content_of(rest), growing[index].rest(sample), finish_reason(sample))], None
        yield [], item


async def _events(
    chunks: AsyncIterator[tuple[list[dict[str, Any]], list[dict[str, Any]] | None]],
    envelope: Envelope,
    body: SampledBody,
) -> AsyncIterator[bytes]:
    """Chunks as server-sent events, `[DONE]` last. What fails on the way is told as an error object."""
    with_usage = body.stream_options is not None and body.stream_options.include_usage
    try:
        async for choices, results in chunks:
            if choices:
                yield _data(envelope.around(choices, None, chunk=True))
            if results is not None and with_usage:
                yield _data(envelope.around([], usage(results), chunk=True))
        yield b"data: [DONE]\n\n"
    except DrydockError as error:
        logger.warning("a streamed completion failed: %s", error)
        yield b"data: " + _failure(error) + b"\n\n"


def _data(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


def _failure(error: DrydockError) -> bytes:
    kind = "invalid_request_error" if isinstance(error, UserError) else "server_error"
    return error_body(str(error), kind, code=type(error).__name__)


def _json(data: bytes, status: int) -> Response:
    return Response(data, status, media_type="application/json")


def _call_ids(reader: ReplyReader) -> Callable[[], str]:
    """Ids for the tool calls of one answer."""
    numbers, salt = itertools.count(), uuid.uuid4().hex[:24]
    return lambda: reader.call_id(next(numbers), salt)
