"""The body of a load call."""

from pydantic import Field

from drydock.wire.rest import OpenModel


class LoadBody(OpenModel):
    """Which checkpoint, of which job (the addressed one by default), into which training sub-job."""

    checkpoint_id: str = Field(min_length=1)
    source_job_id: str | None = None
    target_sub_job_id: str | None = None
