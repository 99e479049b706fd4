"""The jinja dialect in which chat templates are written.

Templates come with a model, so they are code from elsewhere: they run in jinja's immutable sandbox and can neither
reach Python objects nor change the messages they are given. Settings and names are those that Hugging Face templates
rely on: trimmed blocks, loop controls, `tojson` without ASCII or HTML escaping, `raise_exception`, `strftime_now`,
and the `generation` tag, which is accepted and has no effect here. `strftime_now` tells the time at which the template
was compiled: a prompt that changed at midnight could not be continued token-exactly.
"""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import Template, nodes
from jinja2.exceptions import TemplateError as JinjaError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from drydock.errors import TemplateError


class GenerationTag(Extension):
    """`{% generation %}...{% endgeneration %}` marks assistant text in some templates; here it is transparent."""

    tags = {"generation"}  # noqa: RUF012 (jinja reads a plain class attribute)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Replace the tag by its body."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> NoReturn:
    raise JinjaError(message)


def compile_template(source: str, special_tokens: dict[str, str], origin: str) -> Callable[..., str]:
    """Compile `source` once; the result renders keyword arguments (`messages`, `tools`, ...) to text.

    special_tokens: `bos_token`, `eos_token` and the like, visible to the template by name.
    Raises TemplateError (naming `origin`) for a template that does not compile, and from the returned function for
    one that cannot be rendered.
    """
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _tojson
    environment.globals.update(special_tokens, raise_exception=_raise_exception, strftime_now=datetime.now().strftime)
    try:
        template: Template = environment.from_string(source)
    except JinjaError as error:
        raise TemplateError(f"the chat template of {origin} does not compile: {error}") from error

    def render(**variables: Any) -> str:
        try:
            return template.render(**variables)
        except (JinjaError, TypeError, ValueError, LookupError, ArithmeticError, RecursionError) as error:
            raise TemplateError(f"the chat template of {origin} refused the conversation: {error}") from error

    return render
