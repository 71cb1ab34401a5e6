"""Knows the two network ceilings of EC2 instances, and the burst credits that decide which of them applies.

Small instances may send at a burst rate P while they have credits, and at their baseline b afterwards. Credits q
are bytes above the baseline; an idle hour refills the bucket of Q:

    0 <= q <= Q = 3000 s b,    dq/dt = b - rate,    ceiling = P if q > 0 else b

So a transfer of n bytes in t seconds takes max(0, n - b t) from the bucket, and a rate above b lasts q / (rate - b).

Sources: Q was measured as 0.5 to 1.1 hours of baseline (Skyrise traces of c6g and c6gd, 2024). Baselines are those of
EC2's DescribeInstanceTypes, as collected by Karpenter in 2026; peaks are the "up to" values of the product pages, 2026.
All are priors, which measurements replace.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from math import inf

_BUCKET_SECONDS = 3000.0  # Q / b
_BURST_RATIO_MIN = 1.05  # of peak over baseline; less does not count as burst
_MEGABIT_BYTES = 1e6 / 8


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The network rates of one instance type, in one direction."""

    baseline_bytes_per_second: float
    burst_bytes_per_second: float

    @property
    def is_burstable(self) -> bool:
        """Whether the instance can exceed its baseline for a while."""
        return self.burst_bytes_per_second > _BURST_RATIO_MIN * self.baseline_bytes_per_second

    @property
    def credit_bytes_max(self) -> float:
        """The size of the bucket; 0 if the instance is not burstable."""
        return _BUCKET_SECONDS * self.baseline_bytes_per_second if self.is_burstable else 0.0

    def credits_after(self, credit_bytes: float, *, rate_bytes_per_second: float, seconds: float) -> float:
        """The credits left after sending at a rate for some seconds; a rate below the baseline refills the bucket."""
        gained = (self.baseline_bytes_per_second - rate_bytes_per_second) * seconds
        return min(self.credit_bytes_max, max(0.0, credit_bytes + gained))

    def credits_spent(self, transferred_bytes: float, *, seconds: float) -> float:
        """The credits that a transfer takes: the bytes beyond what the baseline carries in the same time."""
        above = transferred_bytes - self.baseline_bytes_per_second * seconds
        return max(0.0, above) if self.is_burstable else 0.0

    def burst_credits_spent(self, transferred_bytes: float) -> float:
        """The most credits that a transfer can take: those it takes at the burst rate."""
        return self.credits_spent(transferred_bytes, seconds=transferred_bytes / self.burst_bytes_per_second)

    def burst_seconds_left(self, credit_bytes: float, *, rate_bytes_per_second: float) -> float:
        """How long a rate can be kept up with these credits; infinite for a rate within the baseline."""
        spent = rate_bytes_per_second - self.baseline_bytes_per_second
        return credit_bytes / spent if spent > 0 else inf


def ceiling(instance_type: str) -> Ceiling | None:
    """The network rates of an instance type; None if the table does not have it."""
    family, _, size = instance_type.partition(".")
    baseline = _BASELINE_MBPS.get(family, {}).get(size)
    if baseline is None:
        return None
    peak = max(baseline, _PEAK_MBPS[family]) if size in _BURSTABLE_SIZES else baseline
    return Ceiling(baseline * _MEGABIT_BYTES, peak * _MEGABIT_BYTES)


def credits_at(
    limits: Ceiling, transfers: Iterable[tuple[float, float, float]], *, at_seconds: float
) -> float:
    """Credits left at a moment after transfers (start seconds, duration seconds, bytes), which may overlap.

    The bucket is assumed to be full before the first of them; unreported traffic is ignored.
    """
    spans = [(started, started + max(duration, 1e-9), size) for started, duration, size in transfers]
    moments = sorted({at_seconds, *(moment for start, end, _ in spans for moment in (start, end))})
    left = limits.credit_bytes_max
    for begin, end in pairwise(moments):
        if end > at_seconds:
            break
        rate = sum(size / (b - a) for a, b, size in spans if a <= begin and end <= b)
        left = limits.credits_after(left, rate_bytes_per_second=rate, seconds=end - begin)
    return left


def _read(table: str) -> dict[str, dict[str, int]]:
    """The numbers of each family by name; an indented line continues the line before."""
    rows = (line.partition(": ") for line in table.strip().replace("\n    ", " ").splitlines())
    return {
        family: {name: int(value) for name, value in map(str.split, said.split(", "))}
        for families, _, said in rows
        for family in families.split()
    }


# In Mbit/s: the peak of each family, and the baseline of each size.
_BASELINE_MBPS = _read("""
m5 m5d r5 r5d r5b: peak 10000, large 750, xlarge 1250, 2xlarge 2500, 4xlarge 5000, 8xlarge 10000, 12xlarge 12000,
    16xlarge 20000, 24xlarge 25000, metal 25000
c5 c5d: peak 10000, large 750, xlarge 1250, 2xlarge 2500, 4xlarge 5000, 9xlarge 12000, 12xlarge 12000, 18xlarge 25000,
    24xlarge 25000, metal 25000
c5a c5ad: peak 10000, large 750, xlarge 1250, 2xlarge 2500, 4xlarge 5000, 8xlarge 10000, 12xlarge 12000,
    16xlarge 20000, 24xlarge 20000
m5a m5ad r5a r5ad: peak 10000, large 750, xlarge 1250, 2xlarge 2500, 4xlarge 5000, 8xlarge 7500, 12xlarge 10000,
    16xlarge 12000, 24xlarge 20000
c6g c6gd m6g m6gd r6g r6gd x2gd: peak 10000, medium 500, large 750, xlarge 1250, 2xlarge 2500, 4xlarge 5000,
    8xlarge 12000, 12xlarge 20000, 16xlarge 25000, metal 25000
c6i c6id c6a m6i m6id m6a r6i r6id r6a c7i c7a m7i m7a r7i r7a: peak 12500, medium 390, large 781, xlarge 1562,
    2xlarge 3125, 4xlarge 6250, 8xlarge 12500, 12xlarge 18750, 16xlarge 25000, 24xlarge 37500, 32xlarge 50000,
    48xlarge 50000, metal 50000, metal-24xl 37500, metal-48xl 50000
c7g c7gd m7g m7gd r7g r7gd: peak 12500, medium 520, large 937, xlarge 1876, 2xlarge 3750, 4xlarge 7500, 8xlarge 15000,
    12xlarge 22500, 16xlarge 30000, metal 30000
c8g c8gd m8g m8gd r8g r8gd x8g: peak 12500, medium 520, large 937, xlarge 1876, 2xlarge 3750, 4xlarge 7500,
    8xlarge 15000, 12xlarge 22500, 16xlarge 30000, 24xlarge 40000, 48xlarge 50000, metal-24xl 40000, metal-48xl 50000
c8i c8id c8a m8i m8id m8a r8i r8id r8a: peak 12500, medium 520, large 937, xlarge 1876, 2xlarge 3750, 4xlarge 7500,
    8xlarge 15000, 12xlarge 22500, 16xlarge 30000, 24xlarge 40000, 32xlarge 50000, 48xlarge 75000, 96xlarge 100000,
    metal-24xl 40000, metal-48xl 75000, metal-96xl 100000
m5n m5dn r5n r5dn: peak 25000, large 2100, xlarge 4100, 2xlarge 8125, 4xlarge 16250, 8xlarge 25000, 12xlarge 50000,
    16xlarge 75000, 24xlarge 100000, metal 100000
c5n: peak 25000, large 3000, xlarge 5000, 2xlarge 10000, 4xlarge 15000, 9xlarge 50000, 18xlarge 100000, metal 100000
c6in m6in m6idn r6in r6idn im4gn: peak 25000, large 3125, xlarge 6250, 2xlarge 12500, 4xlarge 25000, 8xlarge 50000,
    12xlarge 75000, 16xlarge 100000, 24xlarge 150000, 32xlarge 200000, metal 200000
c8in m8in r8in: peak 25000, large 3125, xlarge 6250, 2xlarge 12500, 4xlarge 25000, 8xlarge 50000, 12xlarge 75000,
    16xlarge 100000, 24xlarge 150000, 32xlarge 200000, 48xlarge 300000, 96xlarge 600000, metal 200000,
    metal-48xl 300000, metal-96xl 600000
c6gn: peak 25000, large 3000, xlarge 6300, 2xlarge 12500, 4xlarge 25000, 8xlarge 50000, 12xlarge 75000,
    16xlarge 100000, 24xlarge 150000, 32xlarge 200000, metal 200000
c7gn: peak 30000, medium 3125, large 6250, xlarge 12500, 2xlarge 25000, 4xlarge 50000, 8xlarge 100000,
    12xlarge 150000, 16xlarge 200000, metal 200000
c8gn m8gn r8gn: peak 30000, medium 3125, large 6250, xlarge 12500, 2xlarge 25000, 4xlarge 50000, 8xlarge 100000,
    12xlarge 150000, 16xlarge 200000, 24xlarge 300000, 48xlarge 600000, metal 200000, metal-24xl 300000,
    metal-48xl 600000
t3 t3a t4g: peak 5000, nano 32, micro 64, small 128, medium 256, large 512, xlarge 1024, 2xlarge 2048
i3 r4: peak 10000, large 750, xlarge 1250, 2xlarge 2500, 4xlarge 5000, 8xlarge 10000, 16xlarge 25000, metal 25000
i4i i4g: peak 10000, large 781, xlarge 1875, 2xlarge 4687, 4xlarge 9375, 8xlarge 18750, 12xlarge 28120,
    16xlarge 37500, 24xlarge 56250, 32xlarge 75000, metal 75000
i3en: peak 25000, large 2100, xlarge 4200, 2xlarge 8400, 3xlarge 12500, 6xlarge 25000, 12xlarge 50000,
    24xlarge 100000, metal 100000
g4dn: peak 25000, xlarge 5000, 2xlarge 10000, 4xlarge 20000, 8xlarge 50000, 12xlarge 50000, 16xlarge 50000,
    metal 100000
g5 g6: peak 10000, xlarge 2500, 2xlarge 5000, 4xlarge 10000, 8xlarge 25000, 12xlarge 40000, 16xlarge 25000,
    24xlarge 50000, 48xlarge 100000
trn1: peak 12500, 2xlarge 3125, 32xlarge 800000
p3: peak 10000, 2xlarge 2500, 8xlarge 10000, 16xlarge 25000
p4d p4de: peak 400000, 24xlarge 400000
p3dn: peak 100000, 24xlarge 100000
p5: peak 100000, 4xlarge 100000, 48xlarge 3200000
p5e p5en: peak 3200000, 48xlarge 3200000
""")
_PEAK_MBPS = {family: said.pop("peak") for family, said in _BASELINE_MBPS.items()}
_BURSTABLE_SIZES = frozenset(
    {"nano", "micro", "small", "medium", "large", "xlarge", "2xlarge", "3xlarge", "4xlarge"}
)
