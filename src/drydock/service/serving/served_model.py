"""Which model a call means: a running job of the caller's, and an adapter that its sampler holds.

A model is called by its job's id, by the name that the job was given, or by its `model_name` or the last part of that
where only one job has it; `<any of these>:<adapter>` is a named adapter on it, `:base` the base without any.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tokenizers import Tokenizer

from drydock.chat import ChatTemplate, RequestRefused
from drydock.chat.template_files import read_tokenizer
from drydock.service.live_job import LiveJob
from drydock.service.source_checkpoint import source_folder

TEMPLATES_KEPT = 16


@dataclass(frozen=True, slots=True)
class ServedModel:
    """name: as the caller spelt it. source: model folder, checkpoint or hub id whose tokenizer and template hold."""

    name: str
    job: LiveJob
    adapter: str | None
    source: str


def served_names(job: LiveJob) -> list[str]:
    """What a job's model is called, its id first."""
    model = str(job.sampling()[0].spec.config.get("model_name"))
    given = job.body.get("name")
    names = [job.job_id, *([given] if isinstance(given, str) and given else []), model, Path(model).name]
    return list(dict.fromkeys(names))


def find_model(jobs: Iterable[LiveJob], name: str, jobs_dir: Path) -> ServedModel:
    """The model called `name` among jobs that have a sampler. Raises RequestRefused: 404 unknown, 400 ambiguous."""
    serving = list(jobs)
    for wanted, adapter in ((name, None), _split(name)):
        if wanted is None:
            continue
        exact = [job for job in serving if job.job_id == wanted]
        found = exact or [job for job in serving if wanted in served_names(job)]
        if len(found) > 1:
            ids = ", ".join(job.job_id for job in found)
            raise RequestRefused(f"model {name!r} is served by several jobs ({ids}); name one by its id", param="model")
        if found:
            return ServedModel(name, found[0], adapter, _source(found[0], jobs_dir))
    known = ", ".join(job.job_id for job in serving) or "none"
    raise RequestRefused(
        f"model {name!r} is not served: no running job of yours with a sampling sub-job is called so; running: {known}",
        param="model",
        code="model_not_found",
        status=404,
    )


def unique_names(jobs: Iterable[LiveJob]) -> list[tuple[str, LiveJob]]:
    """Names under which models are listed: every id, and each other name that only one job has and that is no path."""
    named = [(name, job) for job in jobs for name in served_names(job)]
    counts = Counter(name for name, _ in named)
    return [
        (name, job) for name, job in named if name == job.job_id or (counts[name] == 1 and not Path(name).is_absolute())
    ]


@lru_cache(TEMPLATES_KEPT)
def template_of(source: str) -> ChatTemplate:
    """A model's chat template, read once. Raises UserError or TemplateError. Reads files: not for an event loop."""
    return ChatTemplate.load(source)


@lru_cache(TEMPLATES_KEPT)
def tokenizer_of(source: str) -> Tokenizer:
    """The tokenizer of a model, read once. Raises UserError. Reads files: not for an event loop."""
    return read_tokenizer(source)


def _split(name: str) -> tuple[str | None, str | None]:
    model, colon, adapter = name.rpartition(":")
    return (model, adapter) if colon and model and adapter else (None, None)


def _source(job: LiveJob, jobs_dir: Path) -> str:
    config = job.sampling()[0].spec.config
    folder = source_folder(jobs_dir, config)
    if folder is not None and (folder / "tokenizer.json").is_file():
        return str(folder)
    return str(config.get("model_name"))
