"""Knows what transfers come to in the lab, for whoever judges advice: on which link, with which setting, at best."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.lab.link import LinkTruth
from penstock.lab.optimum import DOWNLOADS, UPLOADS, IdealClient, calm
from penstock.operations.s3.download import DOWNLOAD
from penstock.operations.s3.upload import UPLOAD


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """One operation that moves objects."""

    client: IdealClient
    reads: bool  # its bytes come by the link of reads

    def reached(self, truth: LinkTruth, size_bytes: int, setting: Any, seed: int = 0) -> float:
        """By a setting on a link, in bytes a second."""
        n, s = setting.thread_count, setting.request_size_bytes
        return self.client.throughput_bytes_per_second(
            truth, size_bytes, thread_count=n, request_size_bytes=s, seed=seed
        )

    def fraction_of_best(self, truth: LinkTruth, size_bytes: int, setting: Any) -> float:
        """What a setting reaches of the best there is, on the calm link."""
        best = self.client.optimum(truth, size_bytes).throughput_bytes_per_second
        return self.reached(calm(truth), size_bytes, setting) / best


TRANSFERS: Mapping[str, Transfer] = {
    UPLOAD.name: Transfer(client=UPLOADS, reads=False),
    DOWNLOAD.name: Transfer(client=DOWNLOADS, reads=True),
}
