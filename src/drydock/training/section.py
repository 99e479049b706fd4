"""What all sections of a configuration share."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Base of every section: unknown keys, infinity and NaN are refused, attribute docstrings become the reference
    page.
    """

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, validate_default=True, allow_inf_nan=False)
