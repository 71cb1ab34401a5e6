"""A made-up operation on objects, as somebody would add it, and a penstock that knows it.

python -m tests.integration.made_up penstock query s3-made-up --object-size 1GiB
python -m tests.integration.made_up penstockd --config FILE
"""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass

from penstock.models.model import PerformanceModel
from penstock.models.s3.upload import S3UploadModel, S3UploadSetting
from penstock.operations.s3.upload import UPLOAD
from penstock.operations.table import OPERATIONS

NAME = "s3_made_up"


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeUpModel(S3UploadModel):
    """Uploads, under another name."""

    @property
    def operation(self) -> str:
        """The key in the table of operations."""
        return NAME


def _model() -> PerformanceModel[S3UploadSetting]:
    return MadeUpModel()


ROW = dataclasses.replace(
    UPLOAD,
    name=NAME,
    load_model=_model,
    words=dataclasses.replace(UPLOAD.words, query="What was made up.", examples=("--object-size 2GiB",)),
)


def main() -> int | None:
    """Be the program that is named first, with one row more."""
    assert isinstance(OPERATIONS, dict)
    OPERATIONS[NAME] = ROW
    sys.argv = sys.argv[1:]
    if sys.argv[0] == "penstockd":
        from penstock.daemon.main import main as daemon

        return daemon()
    from penstock.cli.entry import main as commands

    commands()
    return None


if __name__ == "__main__":
    sys.exit(main())
