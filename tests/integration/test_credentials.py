"""Where credentials come from can fail as well: that is told as what it is, and ends when it is mended."""

from __future__ import annotations

import io
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web

from penstock.lab.server import serving
from penstock.probes.aws import credentials
from penstock.probes.aws.access import Access
from penstock.probes.aws.objects import open_object_store
from penstock.probes.outside import Unidentified, Unsent
from tests.waiting import comes

SECRET = "do-not-print-this-anywhere"  # noqa: S105 - it opens nothing
GRANTED = """\
<{operation}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><{operation}Result><Credentials>
<AccessKeyId>KEY</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey><SessionToken>token</SessionToken>
<Expiration>{expires_at:%Y-%m-%dT%H:%M:%SZ}</Expiration></Credentials></{operation}Result></{operation}Response>"""
REFUSED = "<ErrorResponse><Error><Code>{code}</Code><Message>{code} it is</Message></Error></ErrorResponse>"


class Surroundings:
    """An STS that refuses as it is told, and a store that takes whatever is signed; the SDK's files are below."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.refusal: tuple[int, str] | None = None
        self.sts_url = self.store_url = ""
        self.authorizations: list[str] = []

    @asynccontextmanager
    async def there(self) -> AsyncIterator[None]:
        """As long as the context lasts."""
        sts, store = web.Application(), web.Application()
        sts.router.add_post("/", self._assume)
        store.router.add_put("/{path:.*}", self._put)
        async with serving(sts) as self.sts_url, serving(store) as self.store_url:
            yield

    async def _assume(self, request: web.Request) -> web.Response:
        if self.refusal is not None:
            status, code = self.refusal
            return web.Response(status=status, text=REFUSED.format(code=code), content_type="text/xml")
        operation, expires_at = (await request.post())["Action"], datetime.now(UTC) + timedelta(hours=1)
        text = GRANTED.format(operation=operation, secret=SECRET, expires_at=expires_at)
        return web.Response(text=text, content_type="text/xml")

    async def _put(self, request: web.Request) -> web.Response:
        await request.read()
        self.authorizations.append(request.headers["Authorization"])
        return web.Response(headers={"ETag": "tag"})

    async def put(self) -> None:
        """One object, with a client of its own."""
        async with open_object_store(Access(region="eu-west-1", endpoint_url=self.store_url)) as store:
            await store.put_object("bucket", "key", b"x")

    def write(self, name: str, text: str) -> str:
        """A file; its path."""
        (self.folder / name).write_text(text)
        return str(self.folder / name)


@pytest.fixture
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Surroundings:
    """Nothing of the machine's own."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    return Surroundings(tmp_path)


@pytest.mark.parametrize("way", ["web identity", "role"])
@pytest.mark.parametrize(
    ("status", "code"), [(403, "AccessDenied"), (400, "ExpiredTokenException"), (400, "InvalidIdentityToken")]
)
async def test_a_role_that_may_not_be_assumed_is_no_matter_of_the_bucket_and_ends_when_it_may(
    surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch, way: str, status: int, code: str
) -> None:
    """What probes are allowed to do was to be granted, where it is the role that does not trust whoever asks."""
    async with surroundings.there():
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", surroundings.sts_url)
        if way == "role":
            role = "role_arn = arn:aws:iam::1:role/probes\nsource_profile = base\n"
            base = f"[profile base]\naws_access_key_id = KEY\naws_secret_access_key = {SECRET}\n"
            surroundings.write("config", f"[default]\n{role}{base}")
        else:
            monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/probes")
            monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", surroundings.write("token", SECRET))
        access = Access(region="eu-west-1", endpoint_url=surroundings.store_url)
        async with open_object_store(access) as store:
            surroundings.refusal = (status, code)
            with pytest.raises(Unidentified, match=f"was answered {code}, .* whom it trusts") as caught:
                await store.put_object("bucket", "key", b"x")
            assert SECRET not in str(caught.value)
            surroundings.refusal = None
            await store.put_object("bucket", "key", b"x")
        assert len(surroundings.authorizations) == 1


PROGRAMS = {
    "sh -c 'echo {secret} >&2; exit 3'": "custom-process gave none",
    "/nothing/here": "'/nothing/here'",
    "echo {secret}": "Expecting value",
    """echo '{{"Version": 1, "AccessKeyId": "K", "SecretAccessKey": "{secret}", "SessionToken": "T", \
"Expiration": "2020-01-01T00:00:00Z"}}'""": "still expired",
}


@pytest.mark.parametrize(("program", "says"), PROGRAMS.items(), ids=PROGRAMS.values())
async def test_a_program_that_gives_no_credentials_is_named_and_what_it_wrote_is_not_told(
    surroundings: Surroundings, program: str, says: str
) -> None:
    """One whose credentials are old ended the daemon; one that is not there was taken for a bundle of authorities."""
    surroundings.write("config", f"[default]\ncredential_process = {program.format(secret=SECRET)}\n")
    async with surroundings.there():
        with pytest.raises(Unidentified, match=f"fetching the credentials: .*{says}") as caught:
            await surroundings.put()
    assert SECRET not in str(caught.value)


async def test_a_program_that_never_ends_is_ended_and_not_waited_for(
    surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon probed for good, doctor said nothing, and each try left a program behind."""
    monkeypatch.setattr(credentials, "FINDING_SECONDS_MAX", 0.5)
    mark = f"{os.getpid()}.{3600}"  # seconds that nobody else sleeps for
    base = f"[profile base]\ncredential_process = sh -c 'sleep {mark}; true'\n"
    role = "[default]\nrole_arn = arn:aws:iam::1:role/probes\nsource_profile = base\n"
    for text in (base.replace("profile base", "default"), role + base):
        surroundings.write("config", text)
        async with surroundings.there():
            with pytest.raises(Unidentified, match=r"none came within 0\.5 s"):
                await surroundings.put()
    await comes(lambda: not any(mark in command for command in commands()), 20.0)


def commands() -> Iterator[str]:
    """Of all that runs."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # gone meanwhile
            yield path.read_text(errors="replace")


async def test_a_code_that_nobody_can_type_is_not_asked_for(
    surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK asked for it at the connection to the daemon, which failed three cycles, and ended it."""
    monkeypatch.setattr("sys.stdin", io.StringIO())
    role = (
        "role_arn = arn:aws:iam::1:role/probes\nsource_profile = base\nmfa_serial = arn:aws:iam::1:mfa/me\n"
    )
    base = f"[profile base]\naws_access_key_id = KEY\naws_secret_access_key = {SECRET}\n"
    surroundings.write("config", f"[default]\n{role}{base}")
    access = Access(region="eu-west-1", endpoint_url="http://127.0.0.1:1")
    async with open_object_store(access) as store:
        for _ in range(2):
            with pytest.raises(Unidentified, match="name a profile without mfa_serial"):
                await store.put_object("bucket", "key", b"x")


async def test_what_a_container_is_told_in_place_of_credentials_is_told(
    surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever had no association with a role was told to renew something, and not why."""

    async def refuse(_: web.Request) -> web.Response:
        return web.Response(status=404, text="Association not found for this pod")

    agent = web.Application()
    agent.router.add_get("/", refuse)
    async with surroundings.there(), serving(agent) as url:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url)
        with pytest.raises(Unidentified, match=r"container-role gave none .* 404 .* Association not found"):
            await surroundings.put()


async def test_a_token_that_is_not_there_is_named(
    surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its file."""
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/probes")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(surroundings.folder / "token"))
    async with surroundings.there():
        with pytest.raises(Unidentified, match=r"No such file or directory: '.*/token'"):
            await surroundings.put()


async def test_an_sts_that_is_out_of_reach_is_named(
    surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said of that place, and not of the bucket's."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/probes")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", surroundings.write("token", SECRET))
    async with surroundings.there():
        with pytest.raises(Unsent, match=r"fetching the credentials: 127\.0\.0\.1:1 refused"):
            await surroundings.put()


async def test_a_configuration_of_the_sdk_that_cannot_be_read_is_named(surroundings: Surroundings) -> None:
    """By its file."""
    path = surroundings.write("config", "[profile p\nbad")
    async with surroundings.there():
        with pytest.raises(Unidentified, match=path):
            await surroundings.put()
