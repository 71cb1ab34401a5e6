"""Knows what consumers and producers of SQS can be told: boto3, aiobotocore, Celery, Spring Cloud AWS, sqs-consumer.

From the sources of botocore 1.43, Spring Cloud AWS 3 and sqs-consumer 12; kombu and Celery 5.7, Spring Cloud AWS 4.1
and sqs-consumer 14 were run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.client.operations import SQS_DELIVERY
from penstock.client.targets.target import (
    APPLICATION,
    Option,
    Target,
    assignments,
    carried,
    environment,
    flags,
    python_calls,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.client.targets.advised import Delivery
    from penstock.client.targets.target import Translation

_RECEIVE = {
    "MaxNumberOfMessages": "batch_message_count",
    "WaitTimeSeconds": "wait_time_seconds",
    "VisibilityTimeout": "visibility_timeout_seconds",
}
_OWN_LOOP = {
    name: name
    for name in (
        "sender_thread_count",
        "receiver_thread_count",
        "deleter_thread_count",
        "send_rate_limit_messages_per_second",
        "send_window_message_count",
        "receive_window_message_count",
        "batch_linger_seconds",
        "receive_pause_at_oldest_undeleted_seconds",
    )
}


def _pollers(config: str) -> Callable[[Delivery], Iterator[Option]]:
    """Loops that the application writes itself: arguments of the calls, and numbers for the loops."""

    def say(advised: Delivery) -> Iterator[Option]:
        yield from carried(advised, config, {"max_pool_connections": "connection_pool_count"})
        yield from carried(advised, "receive_message", _RECEIVE)
        # Of send_message_batch and delete_message_batch.
        yield Option(APPLICATION, "entries_per_batch", advised.batch_message_count, ("batch_message_count",))
        yield from carried(advised, APPLICATION, _OWN_LOOP)

    return say


def _celery(advised: Delivery) -> Iterator[Option]:
    # A worker holds concurrency x multiplier unacknowledged messages; kombu requests as many, at most 10 at a time.
    workers = min(advised.receiver_thread_count, advised.in_flight_message_count)
    yield Option("", "worker_concurrency", workers, ("receiver_thread_count",))
    yield Option(
        "",
        "worker_prefetch_multiplier",
        max(1, advised.in_flight_message_count // workers),
        ("receive_window_message_count", "batch_message_count"),
    )
    transport = "broker_transport_options"
    yield from carried(advised, transport, {"visibility_timeout": "visibility_timeout_seconds"})
    yield from carried(advised, transport, {"wait_time_seconds": "wait_time_seconds"})
    if advised.wait_time_seconds:
        yield Option(transport, "polling_interval", 0, ("wait_time_seconds",))  # the long poll itself waits
    yield Option(
        transport,
        "client-config",
        {"max_pool_connections": advised.connection_pool_count},
        ("connection_pool_count",),
    )


def _celery_source(translation: Translation) -> list[str]:
    return [f"{name} = {value!r}" for name, value in translation.named().items()]


def _spring(advised: Delivery) -> Iterator[Option]:
    listener = "spring.cloud.aws.sqs.listener"
    yield from carried(advised, "", {f"{listener}.max-messages-per-poll": "batch_message_count"})
    yield Option(
        "",
        f"{listener}.max-concurrent-messages",
        advised.in_flight_message_count,
        ("receive_window_message_count", "receiver_thread_count"),
    )
    if advised.wait_time_seconds is not None:
        yield Option("", f"{listener}.poll-timeout", f"{advised.wait_time_seconds}s", ("wait_time_seconds",))


def spring_variable(name: str) -> str:
    """The environment variable to which Spring binds a property."""
    return name.replace("-", "").replace(".", "_").upper()


def _sqs_consumer(advised: Delivery) -> Iterator[Option]:
    # A consumer holds one batch at a time, so the number of consumers bounds what is received and not yet deleted.
    batch = advised.batch_message_count
    count = max(1, min(advised.receiver_thread_count, advised.in_flight_message_count // batch))
    yield Option(
        APPLICATION, "consumerCount", count, ("receiver_thread_count", "receive_window_message_count")
    )
    consumer = "Consumer.create"
    yield Option(consumer, "batchSize", batch, ("batch_message_count",))
    yield from carried(advised, consumer, {"waitTimeSeconds": "wait_time_seconds"})
    yield from carried(advised, consumer, {"visibilityTimeout": "visibility_timeout_seconds"})


def _javascript(translation: Translation) -> list[str]:
    groups = translation.groups()
    own = [f"const {name} = {value};" for name, value in groups[APPLICATION].items()]
    options = ", ".join(f"{name}: {value}" for name, value in groups["Consumer.create"].items())
    # With handleMessage instead, each message is deleted by a request of its own, a batch of them at a time.
    create = "each of them: Consumer.create({ queueUrl, handleMessageBatch, ...options })"
    return [*own, f"const options = {{ {options} }};  // {create}"]


_RECEIVES_ONLY = {
    "sender_thread_count": "it only receives",
    "send_rate_limit_messages_per_second": "it only receives",
    "send_window_message_count": "it only receives",
    "batch_linger_seconds": "it only receives",
}
_NO_PAUSE = (
    "it does not watch how old its undeleted messages are; the limit on messages in flight stands in for it"
)

TARGETS = (
    Target(
        name="boto3-sqs",
        operation=SQS_DELIVERY,
        purpose="arguments of boto3's calls, and the numbers for your own loops",
        say=_pollers("Config"),
        reasons={},
        writers={"config": python_calls},
    ),
    Target(
        name="aiobotocore-sqs",
        operation=SQS_DELIVERY,
        purpose="the same for aiobotocore, where threads are tasks",
        say=_pollers("AioConfig"),
        reasons={},
        writers={"config": python_calls},
    ),
    Target(
        name="celery",
        operation=SQS_DELIVERY,
        purpose="settings of a Celery worker, with kombu's broker_transport_options",
        say=_celery,
        reasons={
            "sender_thread_count": "whoever calls a task sends by itself, one message a request",
            "send_rate_limit_messages_per_second": "it limits the execution of tasks (rate_limit), not sending",
            "send_window_message_count": "it does not count what was sent and not yet received",
            "batch_linger_seconds": "it sends one message a request",
            "deleter_thread_count": "a worker deletes in its own loop, one message a request",
            "receive_pause_at_oldest_undeleted_seconds": _NO_PAUSE,
        },
        writers={"config": _celery_source},
    ),
    Target(
        name="spring-cloud-aws",
        operation=SQS_DELIVERY,
        purpose="properties of Spring Cloud AWS's @SqsListener",
        say=_spring,
        reasons={
            **_RECEIVES_ONLY,
            "deleter_thread_count": "acknowledgements are batched by its own executor; there is no property",
            "visibility_timeout_seconds": "no property: @SqsListener(messageVisibilitySeconds = ...), or the queue",
            "connection_pool_count": "no property: maxConcurrency of the SqsAsyncClient's HTTP client",
            "receive_pause_at_oldest_undeleted_seconds": _NO_PAUSE,
        },
        writers={
            "config": assignments("="),
            "env": environment(spring_variable),
            "flags": flags("=", prefix="--"),
        },
    ),
    Target(
        name="sqs-consumer",
        operation=SQS_DELIVERY,
        purpose="options of sqs-consumer (JavaScript), and how many consumers to create",
        say=_sqs_consumer,
        reasons={
            **_RECEIVES_ONLY,
            "deleter_thread_count": "a consumer deletes its own batch before it receives the next one",
            "connection_pool_count": "no option: maxSockets of the SQSClient's HTTPS agent, 50 by default",
            "receive_pause_at_oldest_undeleted_seconds": _NO_PAUSE,
        },
        writers={"config": _javascript},
        comment="//",
    ),
)
