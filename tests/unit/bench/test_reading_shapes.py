"""The benchmark of reading shapes: what is read at which scale, and what its ratios mean."""

from dataclasses import replace

import pytest

from bench.reading_shapes import LINK, RANGE_BYTES, Row, Shape, shapes
from penstock.models.s3.download import S3DownloadModel
from penstock.units import GiB, MiB


def by_name(scale: float) -> dict[str, Shape]:
    return {shape.name: shape for shape in shapes(scale)}


def test_at_full_scale_it_is_what_people_read() -> None:
    """A gibibyte, 500 objects of a mebibyte, and 200 ranges of 256 KiB wherever they lie in four gibibytes."""
    found = by_name(1.0)
    large, small, random = found["large"], found["small"], found["random"]
    assert (large.object_size_bytes, large.object_count) == (GiB, 1)
    assert (small.object_size_bytes, small.object_count, small.demand.object_count) == (MiB, 500, 500)
    assert random.object_size_bytes == 4 * GiB
    assert len(set(random.groups)) == 200
    assert random.group_bytes == random.demand.range_size_bytes == RANGE_BYTES


@pytest.mark.parametrize("scale", [1.0, 1 / 32, 1e-6])
def test_every_range_lies_in_its_object(scale: float) -> None:
    """However small the scale, there is enough to tell readers apart."""
    for shape in shapes(scale):
        assert shape.group_count * shape.group_bytes <= shape.object_size_bytes
        assert len(shape.groups) == shape.range_count
        assert all(0 <= group < shape.group_count for group in shape.groups)
        assert shape.object_count * shape.group_count >= 16


def test_each_shape_is_another_question() -> None:
    """The model plans other requests for each: by size, by number, and by what the reader asks for at a time."""
    sizes = {
        shape.name: tuple(
            S3DownloadModel().request_sizes_bytes(
                replace(LINK.context, payload_size_bytes=shape.object_size_bytes), shape.demand
            )
        )
        for shape in shapes(1.0)
    }
    assert sizes["random"] == (RANGE_BYTES,)
    assert sizes["small"] == (MiB,)
    assert len(sizes["large"]) > 10


def test_the_ratios_are_those_of_the_table() -> None:
    """Advice over default, and over the fastest of the grid."""
    row = Row(
        shape="large",
        reader="s3fs",
        thread_count=8,
        request_size_bytes=MiB,
        default_bytes_per_second=5e6,
        advised_bytes_per_second=9e6,
        grid={4: 6e6, 8: 9e6, 16: 10e6},
    )
    assert (row.over_default, row.share_of_best) == (1.8, 0.9)
    assert "1.80" in str(row)
    assert "0.90" in str(row)
