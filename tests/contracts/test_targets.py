"""What every row of the table of targets owes: each field expressed or excused, options legal, every form usable."""

import ast
import re
import shlex
from typing import Any

import pytest

from penstock.client.targets.advised import READERS, delivery_of, download_of, stated, upload_of
from penstock.client.targets.launch import PROGRAMS
from penstock.client.targets.table import TARGETS
from penstock.client.targets.target import Target, Translation, translate
from penstock.models.s3.download import S3DownloadSetting
from penstock.models.s3.upload import S3UploadSetting
from penstock.models.sqs.setting import SqsDeliverySetting
from penstock.units import GiB, KiB, MiB
from penstock.vocabulary import knobs

UPLOAD: dict[str, Any] = {
    "operation": "s3_upload",
    "payload_size_bytes": GiB,
    "setting": {"thread_count": 12, "part_size_bytes": 16 * MiB},
    "derived": {
        "connection_pool_count": 13,
        "multipart_threshold_bytes": 16 * MiB,
        "memory_bytes": 192 * MiB,
        "crt_target_gbps": 4.8,
        "request_rate_per_second": 6.0,
        "hedge_timeout_seconds": 3.1,
        "rate_limit_bytes_per_second": 50e6,
    },
    "demand": {"object_count": 1},
}
DELIVERY: dict[str, Any] = {
    "operation": "sqs_delivery",
    "payload_size_bytes": KiB,
    "setting": {
        "sender_thread_count": 4,
        "receiver_thread_count": 6,
        "deleter_thread_count": 5,
        "batch_message_count": 10,
        "send_rate_limit_messages_per_second": 525.0,
        "send_window_message_count": 300,
        "receive_window_message_count": 200,
    },
    "derived": {
        "connection_pool_count": 17,
        "wait_time_seconds": 20.0,
        "visibility_timeout_seconds": 30.0,
        "batch_linger_seconds": 0.02,
        "receive_pause_at_oldest_undeleted_seconds": 12.0,
        "usd_per_million_messages": 0.12,
    },
}
DOWNLOAD: dict[str, Any] = UPLOAD | {
    "operation": "s3_download",
    "setting": {"thread_count": 12, "range_size_bytes": 16 * MiB},
    "derived": UPLOAD["derived"]
    | {
        "read_ahead_bytes": 192.0 * MiB,
        "block_size_bytes": 20e6,
        "coalesced_gap_bytes": 2e6,
        "io_chunk_bytes": 256.0 * KiB,
    },
}
DOCUMENTS = {"s3_upload": UPLOAD, "s3_download": DOWNLOAD, "sqs_delivery": DELIVERY}

every_target = pytest.mark.parametrize("target", TARGETS.values(), ids=lambda target: target.name)


def said(target: Target, document: dict[str, Any] | None = None) -> Translation:
    return translate(target, document or DOCUMENTS[target.operation])


def test_every_knob_of_a_setting_is_one_that_clients_are_told() -> None:
    """A knob that a model gains is not passed over in silence."""
    assert set(knobs(S3UploadSetting)) <= set(stated(upload_of(UPLOAD)))
    assert set(knobs(S3DownloadSetting)) <= set(stated(download_of(DOWNLOAD)))
    assert set(knobs(SqsDeliverySetting)) <= set(stated(delivery_of(DELIVERY)))


@every_target
def test_each_field_is_expressed_or_excused_with_a_reason(target: Target) -> None:
    """Nothing is dropped: what no option carries has a sentence, and what one carries has none."""
    document = DOCUMENTS[target.operation]
    for demand in ({}, {"object_count": 4}, {"access": "random"}):
        translation = said(target, document | {"demand": demand})
        told = {field for option in translation.options for field in option.fields}
        fields = stated(READERS[target.operation](document, None))
        assert told | set(translation.inexpressible) == set(fields)
        assert not told & set(translation.inexpressible)
        assert all(len(reason) > 10 for reason in translation.inexpressible.values())


@every_target
def test_options_are_distinct_and_have_values(target: Target) -> None:
    """No option is said twice, and none is left empty."""
    options = said(target).options
    assert options
    names = [(option.group, option.name) for option in options]
    assert len(set(names)) == len(names)
    assert all(option.value not in {None, ""} for option in options if not isinstance(option.value, dict))


@every_target
def test_every_form_holds_every_value(target: Target) -> None:
    """Whatever form is asked for, no option is lost on the way."""
    translation = said(target)
    values = [value for option in translation.options for value in _leaves(option.value)]
    for form, write in target.writers.items():
        text = "\n".join(write(translation)).lower()  # what is False in Python is false elsewhere
        assert not [value for value in values if str(value).lower() not in text], form


def _leaves(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else [value]


@every_target
def test_what_a_shell_evaluates_is_words_and_assignments(target: Target) -> None:
    """Flags are one line; environment lines are exports; commands have no quotes to go wrong."""
    translation = said(target)
    forms = {form: write(translation) for form, write in target.writers.items()}
    assert len(forms.get("flags", [""])) == 1
    assert all(len(shlex.split(line)) >= 1 for line in forms.get("flags", ["x"]))
    assert all(re.fullmatch(r"export [A-Z0-9_]+=\S+", line) for line in forms.get("env", []))
    assert all(line.startswith("aws configure set ") for line in forms.get("commands", []))


@every_target
def test_small_objects_and_several_at_a_time_can_be_said(target: Target) -> None:
    """Threads become objects in flight where objects are not split, or are several; never more than advised."""
    if target.operation == "sqs_delivery":
        return
    document = DOCUMENTS[target.operation]
    for change, objects in (({"payload_size_bytes": 64 * KiB}, 12), ({"demand": {"object_count": 4}}, 4)):
        advised: Any = READERS[target.operation](document | change, None)
        assert advised.object_concurrency == objects
        assert objects * advised.request_concurrency <= advised.thread_count
        assert said(target, document | change).options


def test_what_runs_a_program_can_tell_it_of_both_ways() -> None:
    """`penstock exec` chooses by what the command does."""
    for program in PROGRAMS.values():
        assert TARGETS[program.target].operation == "s3_upload"
        assert TARGETS[program.download_target].operation == "s3_download"


@pytest.mark.parametrize(
    "name",
    [
        *("boto3", "aiobotocore", "awscrt", "s3fs", "pytorch", "pyarrow", "boto3-sqs", "celery"),
        *("boto3-download", "aiobotocore-download", "awscrt-download", "s3fs-download"),
        *("fsspec-download", "pytorch-download", "pyarrow-download"),
    ],
)
def test_fragments_of_python_are_python(name: str) -> None:
    """What is pasted into a program can be parsed."""
    ast.parse("\n".join(TARGETS[name].writers["config"](said(TARGETS[name]))))
