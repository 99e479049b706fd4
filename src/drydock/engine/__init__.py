"""Training and sampling engines over Hugging Face models.

Import from the modules: this one stays empty so that a process without a model (the service's API) can use
`drydock.engine.settings` without loading torch.
"""
