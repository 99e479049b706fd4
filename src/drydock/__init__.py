"""Drydock: reinforcement-learning post-training of language models inside their own agent harness."""

__version__ = "0.1.0"
