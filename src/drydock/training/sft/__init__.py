"""Supervised fine-tuning: conversations to rows, and the run of `drydock sft`."""
