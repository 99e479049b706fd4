"""A job as the API shows it."""

from drydock.service.schema import Row
from drydock.service.timestamps import iso
from drydock.wire.rest import ID_SEGMENT

SEGMENT_TYPES = {segment: job_type for job_type, segment in ID_SEGMENT.items()}
"""Middle segment of a sub-job id to its job type."""


def job_view(job: Row, subs: list[Row]) -> Row:
    """What was sent, echoed, and what the service knows on top of it; from the rows of the store."""
    echoed = {key: value for key, value in job["body"].items() if key != "sub_job_configs"}
    return {
        **echoed,
        "job_id": job["job_id"],
        "status": job["status"],
        "reason": job["reason"],
        "comment": job["comment"],
        "submitted_by": job["owner"],
        "owner_role": job["owner_role"],
        "created_at": iso(job["created_at"]),
        "updated_at": iso(job["updated_at"]),
        "sub_jobs": [
            {
                **sub["config"],
                "sub_job_id": sub["sub_job_id"],
                "job_type": sub["job_type"],
                "status": sub["status"],
            }
            for sub in sorted(subs, key=lambda sub: sub["position"])
        ],
    }
