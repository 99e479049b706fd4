"""Chat completions and completions, as OpenAI's API has them, from a job's sampling sub-jobs."""
