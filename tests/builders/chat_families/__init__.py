"""Model families as tests meet them: templates written here in each family's format, on tiny tokenizers of its tokens.

`FAMILIES[name](folder)` is the loaded template; `FAMILIES[name].reply_text(content, calls, reasoning)` is what such a
model samples, `.sampled_ids(template, content, calls, reasoning)` the same as ids with the stop token of the family.
"""

from builders.chat_families.deepseek import DEEPSEEK, DEEPSEEK_THINKING
from builders.chat_families.family import Calls, Family
from builders.chat_families.gemma import GEMMA
from builders.chat_families.glm import GLM
from builders.chat_families.harmony import HARMONY
from builders.chat_families.llama import LLAMA
from builders.chat_families.mistral import MISTRAL
from builders.chat_families.qwen import QWEN2, QWEN3
from builders.chat_families.qwen_xml import QWEN_XML

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        QWEN2,
        QWEN3,
        QWEN_XML,
        LLAMA,
        GEMMA,
        GLM,
        DEEPSEEK,
        DEEPSEEK_THINKING,
        HARMONY,
        MISTRAL,
    )
}

__all__ = ["FAMILIES", "Calls", "Family"]
