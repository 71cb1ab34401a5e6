"""Knows what strangers send to the socket: requests that are nearly requests, one connection after another."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

from tests.fuzz.mutation import BYTES, Mutator

METHODS = (
    b"GET", b"GET", b"GET", b"GET", b"POST", b"POST", b"POST", b"POST", b"HEAD", b"PUT", b"DELETE", b"OPTIONS",
    b"PATCH", b"CONNECT", b"TRACE", b"get", b"PRI", b"",
)  # fmt: skip
READING = (
    "/v1/recommendation", "/v1/recommendation", "/v1/explain", "/v1/recommendations", "/v1/status", "/v1/ready",
    "/v1/leases", "/v1/watch", "/metrics", "/", "/v1", "/v1/", "*", "http://localhost/v1/status", "//v1/status",
)  # fmt: skip
WRITING = ("/v1/observations", "/v1/observations", "/v1/leases", "/v1/leases", "/v1/probe", "/-/reload")
QUERY = {
    "operation": ("s3_upload", "sqs_delivery", "s3_nothing", ""),
    "payload_size_bytes": ("1GiB", "64MiB", "1024", "0", "-1", "1e9", "53687091200000", "9" * 5000, "\u0661", "1 GiB"),
    "region": ("eu-west-1", "unknown", "A B", "x" * 63, "x" * 64),
    "instance_type": ("m7i.large", "c6g.4xlarge", "nonsense.9xlarge", "."),
    "service_class": ("standard", "express", "fifo", "fifo-high-throughput", "none"),
    "objective": ("throughput", "peak", "latency", "frugal", "FRUGAL"),
    "regime": ("auto", "sustained", "burst", ""),
    "memory_bytes_max": ("1", "5MiB", "1GiB", "0", "1e30"),
    "bandwidth_bytes_per_second_max": ("1", "1e-300", "50MB/s", "1Gbit/s", "inf", "nan", "-5"),
    "thread_count_max": ("1", "3", "1024", "99999999999999999999", "0", "1.5"),
    "object_count": ("1", "2", "1000000000000000000000", "9" * 60, "0"),
    "message_rate_per_second": ("1", "500", "1e300", "1e-300", "nan"),
    "message_group_count": ("1", "20", "99999999999999999999", "0"),
    "work_seconds": ("0", "20ms", "1e300", "-1", "1y", "nan"),
    "latency_objective_seconds": ("0.1", "1e-300", "1e300", "0"),
    "visibility_timeout_seconds": ("30", "1e-300", "1e300", "12h", "inf"),
    "max_age_seconds": ("60", "nan", "inf", "-1", "1e300"),
    "nonsense": ("", "1"),
}  # fmt: skip
HEADERS = (
    b"Host: localhost", b"Host: localhost", b"Host:", b"Host: \xff", b"Connection: close", b"Connection: keep-alive",
    b"Connection: upgrade", b"Upgrade: websocket", b"Upgrade: h2c", b"Expect: 100-continue", b"Expect: \x00",
    b'If-None-Match: "x"', b"If-None-Match: *", b'If-None-Match: W/"\xff', b"If-None-Match: " + b'"a",' * 2000,
    b"Content-Type: application/json", b"Content-Type: application/json; charset=utf-16", b"Content-Type: \xff/\xff",
    b"Content-Type: multipart/form-data; boundary=", b"Content-Encoding: gzip", b"Content-Encoding: deflate",
    b"Content-Encoding: br", b"Accept-Encoding: gzip", b"Range: bytes=0-0", b"Cookie: a=b; \xff=\x01; ;=;",
    b"Transfer-Encoding: identity", b"Transfer-Encoding: gzip, chunked", b"Sec-WebSocket-Key: x", b": nameless",
    b"X" * 9000 + b": 1", b"X: " + b"y" * 9000, b" folded", b"X\x00: 1", b"X: \x00", b"\xff: \xff",
)  # fmt: skip
QUESTION = {"operation": "s3_upload", "payload_size_bytes": 1 << 30}
CLAIM = {**QUESTION, "weight": 2.0, "resource": "disk", "client": "boto3", "object_count": 4}
PROBE = QUESTION


def a_report(minutes_ago: float = 1.0) -> dict[str, object]:
    """What an honest application says."""
    return {
        "operation": "s3_upload",
        "payload_size_bytes": 64 << 20,
        "setting": {"thread_count": 8, "part_size_bytes": 8 << 20},
        "started_at": (datetime.now(UTC) - timedelta(minutes=minutes_ago)).isoformat(),
        "duration_seconds": 2.0,
        "transferred_bytes": 64 << 20,
        "request_count": 10,
        "throttled_count": 0,
        "latency_seconds_p50": 0.1,
        "latency_seconds_p99": 0.2,
        "client": "boto3",
        "measures": {"attempted_bytes": 64 << 20},
    }


def a_conversation(mutator: Mutator) -> list[bytes]:
    """What one connection sends, in the pieces in which it is sent."""
    count = mutator.one_of((1, 1, 1, 1, 2, 3))
    data = b"".join(a_request(mutator) for _ in range(count))
    if mutator.happens(0.4):
        data = mutator.bent_bytes(data)
    if mutator.happens(0.02):
        data = mutator.chance.randbytes(mutator.one_of((1, 40, 4000)))
    return list(_pieces(mutator, data))


def a_request(mutator: Mutator) -> bytes:
    """One request, more or less."""
    method = mutator.one_of(METHODS)
    path = mutator.one_of(WRITING if method == b"POST" and mutator.happens(0.9) else READING + WRITING)
    body = _body(mutator, path) if method == b"POST" or mutator.happens(0.1) else None
    target = path.encode() + _query(mutator, path)
    version = (
        b"HTTP/1.1" if mutator.happens(0.9) else mutator.one_of((b"HTTP/1.0", b"HTTP/2.0", b"HTTP/9.9", b""))
    )
    headers = [b"Host: localhost"] if mutator.happens(0.9) else []
    headers += [mutator.one_of(HEADERS) for _ in range(mutator.one_of((0, 0, 0, 0, 1, 1, 2, 70)))]
    framing, sent = _framed(mutator, body)
    mutator.chance.shuffle(headers)
    return b"\r\n".join([method + b" " + target + b" " + version, *headers, *framing, b"", b""]) + sent


def _query(mutator: Mutator, path: str) -> bytes:
    if not mutator.happens(0.8 if path in READING[:3] else 0.1):
        return b""
    names = list(QUESTION) if mutator.happens(0.8) else []
    names += [mutator.one_of(list(QUERY)) for _ in range(mutator.one_of((0, 1, 1, 2, 3, 60)))]
    pairs = []
    for name in names:
        values = QUERY[name]
        value = (values[0] if name in QUESTION and mutator.happens(0.8) else mutator.one_of(values)).encode()
        if mutator.happens(0.1):
            value = mutator.bent_bytes(value, times=1)
        pairs.append(name.encode() + b"=" + (quote(value).encode() if mutator.happens(0.8) else value))
    return b"?" + b"&".join(pairs)


def _body(mutator: Mutator, path: str) -> bytes:
    if path == "/v1/observations":
        return mutator.bent_json({"observations": [a_report() for _ in range(mutator.one_of((1, 1, 2, 5)))]})
    if path == "/v1/leases":
        return mutator.bent_json(CLAIM)
    return mutator.bent_json(PROBE) if mutator.happens(0.9) else mutator.one_of(BYTES)


def _framed(mutator: Mutator, body: bytes | None) -> tuple[list[bytes], bytes]:
    """The headers that say where the body ends, true or not, and what is sent of it."""
    if body is None:
        return [], b""
    true = b"Content-Length: %d" % len(body)
    wrong = b"Content-Length: %d" % (len(body) + mutator.one_of((-1, 1, 1000, 10**6, 10**18, 10**40)))
    odd = (b"-1", b"+5", b"0x10", b"1,1", b"", b"9" * 5000, b"\xd9\xa1", b"1e1")
    chunks = b"Transfer-Encoding: chunked"
    headers = mutator.one_of(
        ([true],) * 6
        + ([chunks],) * 2
        + ([chunks, true], [wrong], [true, true], [], [b"Content-Length: " + mutator.one_of(odd)])
    )
    return headers, _chunked(mutator, body) if chunks in headers else body


def _chunked(mutator: Mutator, body: bytes) -> bytes:
    sent, size = b"", mutator.one_of((1, 7, 64, 100_000))
    size = max(size, len(body) // 200)
    for start in range(0, len(body), size):
        piece = body[start : start + size]
        stated = b"%x" % len(piece)
        if mutator.happens(0.03):
            stated = mutator.one_of(
                (b"-1", b"ffffffffffffffff", b"f" * 200, b"", b"zz", b"1;" + b"x" * 9000, b"0")
            )
        sent += stated + (b"\n" if mutator.happens(0.01) else b"\r\n") + piece + b"\r\n"
    return sent + mutator.one_of(
        (b"0\r\n\r\n", b"0\r\n\r\n", b"0\r\n\r\n", b"0\r\nX: \xff\r\n\r\n", b"0\r\n", b"")
    )


def _pieces(mutator: Mutator, data: bytes) -> Sequence[bytes]:
    if mutator.happens(0.7):
        return [data]
    at = mutator.chance.randint(0, len(data))
    return [data[:at], data[at:]]
