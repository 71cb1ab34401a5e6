"""Knows what transfers come to in the lab, for whoever judges advice: on which link, with which setting, at best."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.lab.link import LinkTruth
from penstock.lab.optimum import (
    Optimum,
    calm,
    download_optimum,
    download_throughput_bytes_per_second,
    upload_optimum,
    upload_throughput_bytes_per_second,
)
from penstock.operations.s3.download import DOWNLOAD
from penstock.operations.s3.upload import UPLOAD
from penstock.vocabulary import setting_values


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """One operation that moves objects."""

    reached: Callable[..., float]  # by a setting on a link, in bytes a second
    optimum: Callable[[LinkTruth, int], Optimum]
    reads: bool = False  # its bytes come by the link of reads

    def fraction_of_best(self, truth: LinkTruth, size_bytes: int, setting: Any) -> float:
        """What a setting reaches of the best there is, on the calm link."""
        rate = self.reached(calm(truth), size_bytes, **setting_values(setting))
        return rate / self.optimum(truth, size_bytes).throughput_bytes_per_second


TRANSFERS: Mapping[str, Transfer] = {
    UPLOAD.name: Transfer(reached=upload_throughput_bytes_per_second, optimum=upload_optimum),
    DOWNLOAD.name: Transfer(
        reached=download_throughput_bytes_per_second, optimum=download_optimum, reads=True
    ),
}
