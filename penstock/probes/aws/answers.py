"""Knows how to translate error answers of S3 and SQS, and failures without an answer, into the errors of `outside.py`.

Each has a sentence that says what to do.
"""

from __future__ import annotations

import contextlib
import errno
import re
import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from botocore import exceptions as sdk_errors
from botocore.parsers import ResponseParserError

from penstock.probes.outside import (
    Barred,
    Changed,
    Denied,
    Failed,
    Forbidden,
    KeyRequests,
    Missing,
    NoBucket,
    NotOffered,
    Refused,
    RequestError,
    Throttled,
    Unidentified,
    Unreachable,
    Unsent,
)

NOT_OFFERED = "this store does not know the request"
_FEWER = "the service asked for fewer requests"
_EXPIRED = "the session token has expired: renew the credentials"
_UNKNOWN_KEY = "the access key is unknown: check the credentials and the account they belong to"
_NOT_ALLOWED = "the credentials do not permit this: grant the actions of the documented IAM policy"
_CLOCK = "this host's clock is wrong by 5 minutes or more: synchronise it"  # S3 tolerates 15 minutes
_NO_KEY = "the KMS key that encrypts there may not be used: allow kms:GenerateDataKey and kms:Decrypt on it"
_FORBIDDEN = (
    "a policy denies it, whatever others allow: exempt the requests of probes, which name no encryption "
    "and no checksum, or configure another place"
)
_NO_QUEUE = "the queue does not exist"
_CHANGED = "another host wrote it in the meantime"
_UNREADABLE = "the answer did not come from this service: check the endpoint, and the proxies on the way"
_OTHER_REGION = "the bucket is in another region: correct the region"
_REDIRECTED = "requests are redirected elsewhere: check the endpoint, and the proxies on the way"

_KEY_REQUEST_COUNTS = {"aws:kms": 1, "aws:kms:dsse": 2}


class Unchanged(RequestError):
    """The object still has the tag that was named."""


# Error answers, by their code.
_ANSWERS: Mapping[str, tuple[type[RequestError], str]] = {
    "BandwidthLimitExceeded": (Throttled, _FEWER),
    "KmsThrottled": (Throttled, _FEWER),
    "KMS.ThrottlingException": (Throttled, _FEWER),  # the same in S3's spelling
    "OverLimit": (Throttled, "too many messages are in flight (received and not deleted)"),
    "RequestLimitExceeded": (Throttled, _FEWER),
    "RequestThrottled": (Throttled, _FEWER),
    "ServiceUnavailable": (Throttled, _FEWER),
    "SlowDown": (Throttled, _FEWER),
    "Throttling": (Throttled, _FEWER),
    "ThrottlingException": (Throttled, _FEWER),
    "TooManyRequests": (Throttled, _FEWER),
    "TooManyRequestsException": (Throttled, _FEWER),
    "ExpiredToken": (Unidentified, _EXPIRED),
    "ExpiredTokenException": (Unidentified, _EXPIRED),
    "TokenRefreshRequired": (Unidentified, _EXPIRED),
    "InvalidAccessKeyId": (Unidentified, _UNKNOWN_KEY),
    "InvalidClientTokenId": (Unidentified, _UNKNOWN_KEY),
    "UnrecognizedClientException": (Unidentified, _UNKNOWN_KEY),
    "XAdminUserNotFound": (Unidentified, _UNKNOWN_KEY),  # of versitygw, with status 404
    "InvalidToken": (Unidentified, "the session token is not valid: renew the credentials"),
    "SignatureDoesNotMatch": (
        Unidentified,
        "the secret key does not match the access key: check the credentials",
    ),
    "InvalidSignatureException": (
        Unidentified,
        "the secret key does not match the access key: check both",
    ),
    "RequestTimeTooSkewed": (Barred, _CLOCK),
    "AccessDenied": (Denied, _NOT_ALLOWED),
    "AccessDeniedException": (Denied, _NOT_ALLOWED),
    "KmsAccessDenied": (Barred, _NO_KEY),
    "KMS.AccessDeniedException": (Barred, _NO_KEY),
    "AllAccessDisabled": (Barred, "all access to the bucket has been disabled by its provider"),
    "OptInRequired": (Barred, "the account is not signed up for this region or service: enable it"),
    "NoSuchBucket": (NoBucket, "the bucket does not exist: create it in this region, or configure another"),
    "PreconditionFailed": (Changed, _CHANGED),
    "ConditionalRequestConflict": (Changed, _CHANGED),  # two at once; perhaps neither has succeeded
    "InvalidRange": (Refused, "the object ends before the requested range: name a larger one"),
    "InvalidObjectState": (Refused, "the object is archived: restore it, or name another"),
    "NoSuchKey": (Missing, "the object is not there"),
    "NoSuchUpload": (Missing, "the unfinished upload no longer exists: it was completed or aborted"),
    "NonExistentQueue": (Missing, _NO_QUEUE),
    "QueueDoesNotExist": (Missing, _NO_QUEUE),
    "AuthorizationHeaderMalformed": (Refused, _OTHER_REGION),
    "IllegalLocationConstraintException": (Refused, _OTHER_REGION),
    "PermanentRedirect": (Refused, _OTHER_REGION),
    "304": (Unchanged, "it is as it was"),
    "301": (Refused, _OTHER_REGION),
    "307": (Refused, _OTHER_REGION),
    "MalformedXML": (NotOffered, NOT_OFFERED),  # from some stores
    "MethodNotAllowed": (NotOffered, NOT_OFFERED),
    "NotImplemented": (NotOffered, NOT_OFFERED),
    "QueueDeletedRecently": (Refused, "a queue of this name was deleted less than 60 s ago: wait a minute"),
}
# Error answers whose message alone tells the reason, by words in it.
_MESSAGES: Mapping[str, tuple[type[RequestError], str]] = {
    "Signature expired": (Barred, _CLOCK),
    "Signature not yet current": (Barred, _CLOCK),
    "not authorized to perform: kms:": (Barred, _NO_KEY),
    "Mfa Authentication must be used": (
        Barred,
        "the bucket requires MFA delete, and probes have no MFA device",
    ),
    "with an explicit deny": (Forbidden, _FORBIDDEN),
}
# The part of a message that names the policy, where the services tell it.
_REASON = re.compile(r"\b(?:because|with an explicit deny) .*", re.DOTALL)
# Error answers with a code that is not listed, by their HTTP status.
_STATUSES: Mapping[int, tuple[type[RequestError], str]] = {
    302: (Refused, _REDIRECTED),
    303: (Refused, _REDIRECTED),
    307: (Refused, "the route to the bucket is not settled yet: a new bucket takes up to a day"),
    308: (Refused, _REDIRECTED),
    401: (Denied, _NOT_ALLOWED),
    403: (Denied, _NOT_ALLOWED),
    404: (Missing, "it is not there"),
    405: (NotOffered, NOT_OFFERED),
    412: (Changed, _CHANGED),
    429: (Throttled, _FEWER),
    501: (NotOffered, NOT_OFFERED),
    503: (Throttled, _FEWER),
}
# Failures before there was an answer; more special classes first.
_FAILURES: Mapping[type[RequestError], Mapping[type[Exception], str]] = {
    Unidentified: {
        sdk_errors.PartialCredentialsError: "give both the access key and the secret key",
        sdk_errors.NoCredentialsError: (
            "no credentials found: give the instance a role (a container needs a metadata hop limit of 2 "
            "to reach it), or name a profile"
        ),
        sdk_errors.ProfileNotFound: "the profile does not exist: correct its name, or add it to the file of profiles",
        sdk_errors.RefreshWithMFAUnsupportedError: (
            "the role requires an MFA code, which nobody can type here: name a profile without mfa_serial"
        ),
        sdk_errors.MetadataRetrievalError: "the credentials could not be fetched from the metadata service",
        sdk_errors.TokenRetrievalError: "the session's token could not be fetched: log in again",
        sdk_errors.NoAuthTokenError: "there is no session token: log in again",
        sdk_errors.SSOError: "the single sign-on has lapsed: log in again",
        sdk_errors.LoginError: "the login has lapsed: log in again",
    },
    Unsent: {
        sdk_errors.SSLError: "TLS failed: check the endpoint's certificate, the CA bundle and the clock",
        sdk_errors.ProxyConnectionError: "the proxy does not answer, or refuses: check HTTPS_PROXY and NO_PROXY",
        sdk_errors.ConnectTimeoutError: "no connection in time: check the route, the firewall and the endpoint",
    },
    Unreachable: {
        sdk_errors.ReadTimeoutError: "connected, but there was no answer in time",
        sdk_errors.ConnectionClosedError: "the connection was closed before the answer",
    },
}
# Why no connection was made, by the operating system's error number.
_CONNECTION_TROUBLES: Mapping[int | None, str] = {
    errno.ECONNREFUSED: "{host} refused the connection: check that it runs and that the port is right",
    errno.ENETUNREACH: "there is no route to {host}: check the route table or the VPC endpoint",
    errno.EHOSTUNREACH: "there is no route to {host}: check the route table or the VPC endpoint",
    errno.EMFILE: "this process has too many open files: raise LimitNOFILE, or allow fewer threads",
    errno.ENFILE: "this host has too many open files: raise fs.file-max",
}


@contextlib.contextmanager
def translated(doing: str) -> Iterator[None]:
    """Turn the library's exceptions into those of `outside.py`; `doing` begins the message."""
    try:
        yield
    except sdk_errors.ClientError as error:
        raise _from_answer(error, doing) from error
    except (
        *(ResponseParserError, UnicodeDecodeError),
        *(LookupError, TypeError, AttributeError, RecursionError),
    ) as error:
        # A portal's page, a truncated answer, unexpected JSON: the request may have been carried out.
        raise Unreachable(
            f"{_UNREADABLE} ({type(error).__name__}: {_one_line(error)})", doing=doing
        ) from error
    except (sdk_errors.BotoCoreError, aiohttp.ClientError, OSError, ValueError) as error:
        raise _from_failure(error, doing) from error


@contextlib.contextmanager
def identified() -> Iterator[None]:
    """Turn exceptions of fetching credentials into Unidentified or Unreachable: they say nothing about S3 or SQS."""
    doing = "fetching the credentials"
    try:
        yield
    except sdk_errors.ClientError as error:
        message = _one_line(error.response.get("Error", {}).get("Message", ""))
        told = f"{error.operation_name} was answered {_code_of(error.response)}, {message}"
        raise Unidentified(
            f"{doing}: {told}: check the role, whom it trusts, and the identity that asks"
        ) from error
    except sdk_errors.CredentialRetrievalError as error:
        provider, why = error.kwargs["provider"], f" ({_one_line(error.kwargs['error_msg'])})"
        told = "" if provider == "custom-process" else why  # it may contain anything the program printed
        raise Unidentified(
            f"{doing}: {provider} gave none{told}: renew the token or login it uses"
        ) from error
    except (sdk_errors.BotoCoreError, aiohttp.ClientError, TimeoutError, ConnectionError) as error:
        trouble = _from_failure(error, doing)
        raise (trouble if isinstance(trouble, Unreachable) else Unidentified(str(trouble))) from error
    # An unreadable file, invalid output of a program, credentials that had expired already.
    except (OSError, RuntimeError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise Unidentified(f"{doing}: {_one_line(error)}") from error


def key_requests(headers: Mapping[str, str]) -> KeyRequests:
    """S3's requests to AWS KMS for this answer: one, also for a part or a range, and two for dual-layer encryption.

    With a bucket key they are so rare, and at moments of S3's own choice, that answers do not tell them: then 0.
    """
    count = _KEY_REQUEST_COUNTS.get(headers.get("x-amz-server-side-encryption", ""), 0)
    if headers.get("x-amz-server-side-encryption-bucket-key-enabled", "").lower() == "true":
        count = 0
    return KeyRequests(count, count)


def is_unidentified(answer: Mapping[str, Any]) -> bool:  # Any: of the SDK
    """Whether the service rejects the credentials as unknown, invalid or expired."""
    kind, _ = _ANSWERS.get(_code_of(answer), (RequestError, ""))
    return issubclass(kind, Unidentified)


def _code_of(answer: Mapping[str, Any]) -> str:
    code = str(answer.get("Error", {}).get("Code", "unknown"))
    return code.removeprefix("AWS.SimpleQueueService.").split("#")[-1]


def _from_answer(error: sdk_errors.ClientError, doing: str) -> RequestError:
    """The error for an error answer, by its code, or else by its status."""
    told = error.response.get("Error", {})
    code = _code_of(error.response)
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    message = str(told.get("Message", ""))
    by_message = next((known for words, known in _MESSAGES.items() if words in message), None)
    by_word = by_message or _ANSWERS.get(code)
    known = by_word or _STATUSES.get(status)
    if known is None:
        failure = Failed if status >= 500 else Refused
        return failure(f"the answer was {status} {code}: {_one_line(message)}", doing=doing)
    kind, sentence = known
    more = _named_region(error) if sentence is _OTHER_REGION else ""
    if by_word is None and message:  # the status alone says too little, as about an account with a problem
        more = f", {_one_line(message)}"
    if issubclass(kind, Denied) and (reason := _REASON.search(message)) is not None:
        more = f", {_one_line(reason[0])}"
    return kind(f"{sentence} ({code or status}{more})", doing=doing)


def _named_region(error: sdk_errors.ClientError) -> str:
    headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    region = error.response.get("Error", {}).get("Region") or headers.get("x-amz-bucket-region")
    return f", it is in {region}" if region else ""


def _from_failure(error: Exception, doing: str) -> RequestError:
    """The error for a failure before there was an answer."""
    for kind, failures in _FAILURES.items():
        for failure, sentence in failures.items():
            if isinstance(error, failure):
                return kind(sentence, doing=doing)
    if isinstance(error, sdk_errors.EndpointConnectionError):
        is_made = not isinstance(error.kwargs.get("error"), aiohttp.ClientConnectorError)
        unanswered = Unreachable if is_made else Unsent
        return unanswered(_connection_trouble(error, is_made=is_made), doing=doing)
    cause: object = error.kwargs.get("error") if isinstance(error, sdk_errors.BotoCoreError) else error
    if isinstance(cause, (FileNotFoundError, IsADirectoryError, PermissionError, ssl.SSLError)):
        return Unsent(f"the CA bundle cannot be read: check AWS_CA_BUNDLE ({_one_line(cause)})", doing=doing)
    if isinstance(cause, aiohttp.ClientResponseError):  # not HTTP, or malformed
        return Unreachable(f"{_UNREADABLE} ({_one_line(cause.message)})", doing=doing)
    if isinstance(error, (sdk_errors.HTTPClientError, aiohttp.ClientError, OSError)):
        return Unreachable(f"the connection failed ({_one_line(error)})", doing=doing)
    return Refused(f"the request could not be made: {_one_line(error)}", doing=doing)


def _connection_trouble(error: sdk_errors.EndpointConnectionError, *, is_made: bool) -> str:
    """A sentence about why the connection was not made or broke, as the operating system tells it."""
    failure = error.kwargs.get("error")
    cause = getattr(failure, "os_error", failure)
    host = urlsplit(str(error.kwargs.get("endpoint_url", ""))).netloc
    if isinstance(cause, socket.gaierror):
        name = getattr(failure, "host", host)  # may be that of a proxy
        more = ", and use_fips_endpoint, as few regions have a FIPS endpoint" if "-fips" in name else ""
        return f"the name {name} cannot be resolved: check the region, the endpoint, the proxy and DNS{more}"
    if is_made:
        return f"{host} closed the connection before the answer"
    sentence = _CONNECTION_TROUBLES.get(getattr(cause, "errno", None))
    return sentence.format(host=host) if sentence else f"no connection to {host} ({_one_line(cause)})"


def raise_first(failures: Sequence[Mapping[str, Any]], status: int, doing: str) -> None:
    """Raise the error of the first failed entry of a batch, if there is one."""
    if failures:
        answer = {"Error": failures[0], "ResponseMetadata": {"HTTPStatusCode": status}}
        raise _from_answer(sdk_errors.ClientError(answer, "batch"), doing)


def _one_line(trouble: object) -> str:
    return " ".join(str(trouble).split())[:200]


def must_have(name: str, answer: Mapping[str, Any]) -> None:
    """Raise KeyError if a successful answer lacks a field that S3 and SQS always send."""
    answer[name]
