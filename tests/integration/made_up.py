"""A made-up operation on objects, as somebody would add it; `with_made_up` is a penstock that knows it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from penstock.models.model import PerformanceModel
from penstock.models.s3.upload import S3UploadModel, S3UploadSetting
from penstock.operations.s3.upload import UPLOAD

NAME = "s3_made_up"


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeUpModel(S3UploadModel):
    """Uploads, under another name."""

    operation = NAME


def _model() -> PerformanceModel[S3UploadSetting]:
    return MadeUpModel()


ROW = dataclasses.replace(
    UPLOAD,
    name=NAME,
    load_model=_model,
    words=dataclasses.replace(UPLOAD.words, query="What was made up.", examples=("--object-size 2GiB",)),
)
