"""The configuration: defaults, layers, and every mistake at once."""

from pathlib import Path

import botocore.session
import msgspec
import pytest
from botocore.configprovider import ConfiguredEndpointProvider

from penstock.client.targets.stores import STORES_BY_NAME
from penstock.daemon import config_files
from penstock.daemon.config import AdviceSection, Configuration
from penstock.lab import worlds
from penstock.operations.operation import Service
from penstock.operations.s3.upload import UPLOAD
from penstock.operations.sections.objects import ObjectSection
from penstock.operations.sections.values import SECONDS_MAX
from penstock.units import GiB, MiB
from tests.scenario import Scenario, hourly, play


def _problems(folder: Path, text: str) -> list[str]:
    file = folder / "penstock.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(config_files.ConfigError) as caught:
        config_files.load(file, root=folder)
    return [str(problem).removeprefix(f"{file}: ") for problem in caught.value.problems]


def _load(folder: Path, text: str) -> config_files.LoadedConfiguration:
    file = folder / "penstock.toml"
    file.write_text(text, encoding="utf-8")
    return config_files.load(file, root=folder)


def test_no_file_means_the_defaults(tmp_path: Path) -> None:
    """A daemon without any configuration starts, and probes nothing."""
    loaded = config_files.load(root=tmp_path)
    assert loaded.configuration == Configuration()
    assert not loaded.configuration.probes.s3_upload.is_enabled
    assert loaded.files == ()


HERE, THERE = "http://127.0.0.1:9000", "http://10.0.0.7:9000"


@pytest.mark.parametrize(
    ("environment", "text", "urls"),
    [
        ({"AWS_ENDPOINT_URL": HERE}, "", (HERE, HERE)),
        ({"AWS_ENDPOINT_URL": HERE, "AWS_ENDPOINT_URL_S3": THERE}, "", (THERE, HERE)),
        ({"AWS_ENDPOINT_URL_SQS": HERE, "AWS_ENDPOINT_URL": ""}, "", ("", HERE)),
        ({"AWS_ENDPOINT_URL_S3": HERE}, f's3_endpoint_url = "{THERE}"', (THERE, "")),
        ({"AWS_ENDPOINT_URL_S3": HERE}, 's3_endpoint_url = ""', (HERE, "")),  # as the SDK has it
        ({"AWS_ENDPOINT_URL": HERE, "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "True"}, "", ("", "")),
        ({"AWS_ENDPOINT_URL_DYNAMODB": HERE}, "", ("", "")),
    ],
)
def test_endpoints_of_the_environment_are_those_of_the_sdk(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    text: str,
    urls: tuple[str, str],
) -> None:
    """What probes would be sent to is what is priced; the SDK itself says which that is."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    loaded = _load(tmp_path, f"[aws]\n{text}\n")
    aws = loaded.configuration.aws
    assert (aws.s3_endpoint_url, aws.sqs_endpoint_url) == urls
    for service, url in aws.endpoint_urls.items():
        stated = THERE if service is Service.S3 and THERE in text else None
        client = botocore.session.Session().create_client(service.value, "eu-west-1", endpoint_url=stated)
        assert (client.meta.endpoint_url == url) == bool(url)
    told = loaded.endpoints_of_environment()
    assert len(told) == sum(bool(url) and url not in text for url in urls)


_SERVICE = f"services = mine\n[services mine]\ns3 =\n  endpoint_url = {HERE}\n"


@pytest.mark.parametrize(
    ("config", "credentials", "environment", "text", "urls"),
    [
        (f"[default]\nendpoint_url = {HERE}", "", {}, "", (HERE, HERE)),
        (f"[default]\nendpoint_url = {THERE}\n{_SERVICE}", "", {}, "", (HERE, THERE)),
        (
            f"[default]\nendpoint_url = {THERE}\n{_SERVICE}",
            "",
            {"AWS_ENDPOINT_URL_SQS": HERE},
            "",
            (HERE, HERE),
        ),
        (f"[profile p]\n{_SERVICE}", "", {}, "", ("", "")),
        (f"[profile p]\n{_SERVICE}", "", {"AWS_PROFILE": "p"}, "", (HERE, "")),
        (f"[profile p]\n{_SERVICE}", "", {"AWS_PROFILE": "none"}, 'profile = "p"', (HERE, "")),
        ("", f"[default]\nendpoint_url = {HERE}", {}, "", (HERE, HERE)),
        (f"[default]\nendpoint_url = {HERE}\nignore_configured_endpoint_urls = true", "", {}, "", ("", "")),
        (
            f"[default]\nservices = other\n[services mine]\ns3 =\n  endpoint_url = {HERE}\n",
            "",
            {},
            "",
            ("", ""),
        ),
        ("[default\nbad", "", {}, "", ("", "")),
        ("[default]\nservices = mine\n[services mine]\ns3 = bad", "", {}, "", ("", "")),
    ],
)
def test_endpoints_of_the_sdks_own_files_are_used_and_named(
    *,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    config: str,
    credentials: str,
    environment: dict[str, str],
    text: str,
    urls: tuple[str, str],
) -> None:
    """A store that only `~/.aws/config` named was probed, and priced and told as if it were AWS."""
    for variable, content in (("AWS_CONFIG_FILE", config), ("AWS_SHARED_CREDENTIALS_FILE", credentials)):
        (tmp_path / variable).write_text(content, encoding="utf-8")
        monkeypatch.setenv(variable, str(tmp_path / variable))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    loaded = _load(tmp_path, f"[aws]\n{text}\n")
    assert tuple(loaded.configuration.aws.endpoint_urls.values()) == urls
    assert len(loaded.endpoints_of_environment()) == sum(map(bool, urls))
    if not any(word in config for word in ("bad", "other", "ignore")):
        session = botocore.session.Session(profile=loaded.configuration.aws.profile or None)
        said = [
            ConfiguredEndpointProvider(
                session.full_config, session.get_scoped_config(), service.value
            ).provide()
            for service in Service
        ]
        assert tuple(url or "" for url in said) == urls


@pytest.mark.parametrize("url", ["http://[::1", "http://::1:9000", "http://host:port", "http://host:99999"])
def test_an_endpoint_that_is_no_url_is_a_mistake(tmp_path: Path, url: str) -> None:
    """Some broke every command by an exception, others each request of a daemon that had found them valid."""
    (problem,) = _problems(tmp_path, f'[aws]\nsqs_endpoint_url = "{url}"')
    assert problem.startswith(f'aws.sqs_endpoint_url: found "{url}"; expected a URL')


def test_an_endpoint_of_the_environment_is_checked_like_one_of_a_file(tmp_path: Path) -> None:
    """A user name in it is not repeated."""
    with pytest.raises(config_files.ConfigError) as caught:
        config_files.load(root=tmp_path, environment={"AWS_ENDPOINT_URL_S3": "http://me:word@127.0.0.1"})
    (problem,) = caught.value.problems
    assert (problem.file, problem.key) == ("AWS_ENDPOINT_URL_S3 of the environment", "aws.s3_endpoint_url")
    assert "word" not in problem.sentence


def test_quantities_may_be_text_or_numbers(tmp_path: Path) -> None:
    """A size is bytes and a duration is seconds, however it is written."""
    text = '[probes.s3_upload]\nobject_size_bytes = ["8MiB", 1073741824]\nmean_interval_seconds = "15m"\n'
    loaded = _load(tmp_path, text + "duration_seconds_max = 3\n").configuration.probes.s3_upload
    assert loaded.object_size_bytes == (8 * MiB, GiB)
    assert loaded.mean_interval_seconds == 900.0
    assert loaded.duration_seconds_max == 3.0


def test_every_mistake_is_reported_at_once(tmp_path: Path) -> None:
    """Each problem names its key, what was found and what was expected."""
    problems = _problems(
        tmp_path,
        """
        [daemon]
        sead = 3
        socket_mode = 666
        [probes.s3_upload]
        is_enabled = true
        mean_interval_seconds = "10 parsecs"
        object_size_bytes = []
        [budget]
        duty_cycle_fraction = 1.5
        usd_per_day = nan
        """,
    )
    assert problems == [
        "daemon.sead: unknown key; did you mean seed?",
        'daemon.socket_mode: found 666; expected octal permissions in quotes, such as "0666"',
        "probes.s3_upload.mean_interval_seconds: '10 parsecs' is not a duration: use us, ms, s, m, h or d",
        "probes.s3_upload.object_size_bytes: found []; expected a list with at least one size",
        "budget.duty_cycle_fraction: found 1.5; expected a fraction between 0 and 1",
        "budget.usd_per_day: found NaN; expected an amount in US dollars of at least 0",
        "probes.s3_upload.bucket: missing; expected the name of a bucket, because probes.s3_upload.is_enabled is true",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("daemon = 3", "daemon: found 3; expected a table, [daemon]"),
        ("[budgt]", "budgt: unknown key; did you mean budget?"),
        ("[advice]\nbucket = 'b'", "advice.bucket: unknown key here; did you mean probes.s3_upload.bucket?"),
        (
            "[probes.sqs_delivery]\nis_enabled = 1",
            "probes.sqs_delivery.is_enabled: found 1; expected true or false",
        ),
        (
            "[watched_queue]\nname = 'orders'\ninterval_seconds = '1s'",
            (
                "watched_queue.interval_seconds: watching takes $0.0346 a day, but "
                "probes.sqs_delivery.usd_per_day allows only $0.03: poll less often"
            ),
        ),
        (
            "[advice]\nobservation_retention_seconds = '999999d'",
            (
                'advice.observation_retention_seconds: found "999999d"; expected a duration from 1h to 36500d, '
                'such as "90d"'
            ),
        ),
        (
            "[advice]\nvalidity_seconds = 1e300",
            'advice.validity_seconds: found 1e+300; expected a duration above 0 and up to 36500d, such as "15m"',
        ),
        (
            "[probes.sqs_delivery]\nservice_class = 'fair'",
            (
                'probes.sqs_delivery.service_class: found "fair"; expected one of "standard", "fifo", '
                '"fifo-high-throughput"'
            ),
        ),
        (
            "[probes.s3_upload]\nregions = ['eu-west-1', 'eu-west-2']\nbucket = 'b-1'",
            'probes.s3_upload.bucket: found "b-1"; expected {region} in the name, because regions lists 2',
        ),
        (
            "[probes.s3_upload]\nkey_prefix = ''",
            'probes.s3_upload.key_prefix: found ""; expected a prefix of keys that is not empty and ends with "/"',
        ),
        (
            "[probes.s3_upload]\nbucket = 'probe-{zone}'",
            'probes.s3_upload.bucket: found "probe-{zone}"; the only word in braces can be {region}',
        ),
    ],
)
def test_sentence(tmp_path: Path, text: str, expected: str) -> None:
    """A mistake is answered with what to write instead."""
    assert _problems(tmp_path, text) == [expected]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("fleet.shared_limits", r'["backups: s3_upload at 800/s\n"]'),
        ("probes.quiet_hours", r'["08:00-18:00 UTC\n"]'),
        ("probes.s3_upload.bucket", r'"my-bucket\n"'),
        ("probes.s3_upload.key_prefix", r'"penstock\u0001/"'),
        ("probes.sqs_delivery.queue_name_prefix", r'"probe\n"'),
        ("probes.s3_upload.regions", r'["eu-central-1\n"]'),
        ("watched_queue.name", r'"backup\n"'),
        ("aws.s3_endpoint_url", r'"http://127.0.0.1:9000\n"'),
        ("daemon.socket_mode", r'"0666\n"'),
        ("daemon.state_directory", r'"/var/lib/pen\u0000stock"'),
    ],
)
def test_what_no_name_can_hold_is_a_mistake(tmp_path: Path, key: str, value: str) -> None:
    """A line feed at the end, as of a template or a secret, ended every command, or all that a probe asked for."""
    (problem,) = _problems(tmp_path, f"{key} = {value}")
    assert problem.startswith(f"{key}: found ")


def test_every_element_of_a_list_that_is_wrong_is_named(tmp_path: Path) -> None:
    """Whoever mends one at a time would read the next mistake each time."""
    text = "object_size_bytes = ['8MiB', 'x', -3, '7 cows', 2.5]\nregions = ['a', 'B', 7]"
    sizes, regions = _problems(tmp_path, f"[probes.s3_upload]\n{text}")
    assert "'x' is not a size such as 8MiB; '7 cows' is not a size: use B" in sizes
    assert "; found -3, 2.5; expected a list, each a size from 1 byte to" in sizes
    assert regions.endswith('regions: found "B", 7; expected a list, each a region, such as "eu-central-1"')


def test_a_daemon_lives_with_the_longest_durations() -> None:
    """Dates have an end, and no moment that follows from them lies beyond it."""
    section = msgspec.structs.replace(hourly(UPLOAD), mean_interval_seconds=SECONDS_MAX)
    advice = AdviceSection(validity_seconds=SECONDS_MAX, observation_retention_seconds=SECONDS_MAX)
    for seed in range(8):
        play(
            Scenario(
                link=worlds.NEAR.link, days=0.1, seed=seed, sections={UPLOAD.name: section}, advice=advice
            )
        )


def test_syntax_errors_have_line_and_column(tmp_path: Path) -> None:
    """What is not TOML is found where it stands."""
    (problem,) = _problems(tmp_path, "[daemon]\nseed = = 1\n")
    assert problem.startswith(f"{tmp_path}/penstock.toml:2:8: not TOML: Invalid value")


@pytest.mark.parametrize(
    ("value", "sentence"),
    [("[" * 5000, "nested deeper than any configuration"), ("9" * 5000, "a number that is longer than any")],
)
def test_what_has_no_end_is_a_mistake(value: str, sentence: str, tmp_path: Path) -> None:
    """And no traceback."""
    (problem,) = _problems(tmp_path, f"a = {value}")
    assert sentence in problem


@pytest.mark.parametrize(
    ("operation", "keys", "least"),
    [
        ("s3_upload", "", "5 MiB"),
        ("s3_download", "", "64 MiB"),
        # What is measured of small objects pays for no putting of large ones.
        ("s3_download", "object_size_bytes = ['64KiB', '1GiB']\n", None),
        ("s3_download", "object_key = 'mine'\n", None),
    ],
)
def test_sizes_that_no_probe_may_move_are_a_mistake(
    operation: str, keys: str, least: str | None, tmp_path: Path
) -> None:
    """Each is fine by itself, and together no probe would ever begin."""
    text = f"[probes.{operation}]\ntransferred_bytes_max = '1MiB'\n{keys}"
    if least is None:
        assert _load(tmp_path, text)
        return
    (problem,) = _problems(tmp_path, text)
    assert problem.startswith(
        f"probes.{operation}.transferred_bytes_max: found 1 MiB; a probe of objects of 64 MiB"
    )
    assert f"moves {least} at the least" in problem


def test_all_files_are_checked(tmp_path: Path) -> None:
    """A file that cannot be read does not hide the mistakes of the others."""
    folder = tmp_path / "penstock.d"
    folder.mkdir()
    (folder / "1.toml").write_bytes(b"\xff")
    (folder / "2.toml").write_text("[daemon]\nseed = -1\n", encoding="utf-8")
    problems = _problems(tmp_path, "[host]\nregion = 'EU!'")
    assert problems[0].startswith("host.region")
    assert problems[1].endswith("1.toml: it is not UTF-8 text (byte 0)")
    assert problems[2].endswith("2.toml: daemon.seed: found -1; expected a whole number from 0 to 2^63 - 1")


@pytest.mark.parametrize("closed", ["etc/penstock", "etc/penstock/penstock.d", "usr/lib/penstock"])
def test_a_folder_that_cannot_be_looked_into_is_a_mistake(tmp_path: Path, closed: str) -> None:
    """A lower budget may be in it: to go on as if there were none would be to spend more than was said."""
    folder = tmp_path / closed
    folder.parent.mkdir(parents=True)
    folder.symlink_to(folder)  # root may look into everything else
    with pytest.raises(config_files.ConfigError, match=f"{closed}.*: it cannot be read: "):
        config_files.load(root=tmp_path)


def test_a_named_file_must_exist(tmp_path: Path) -> None:
    """A typing mistake in --config does not start a daemon on the defaults."""
    with pytest.raises(config_files.ConfigError, match="there is no such file"):
        config_files.load(tmp_path / "typo.toml", root=tmp_path)


def test_later_files_win_key_by_key(tmp_path: Path) -> None:
    """Vendor < main < drop-ins in lexical order, and each value remembers its file."""
    files = {
        "usr/lib/penstock/10-image.toml": "[daemon]\nseed = 1\nlog_level = 'debug'\n[host]\nregion = 'eu-west-1'",
        "etc/penstock/penstock.toml": "[daemon]\nseed = 2\n[aws]\nprofile = 'main'",
        "etc/penstock/penstock.d/20-b.toml": "[aws]\nprofile = 'b'",
        "etc/penstock/penstock.d/10-a.toml": "[aws]\nprofile = 'a'",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    loaded = config_files.load(root=tmp_path)
    assert (loaded.configuration.daemon.seed, loaded.configuration.aws.profile) == (2, "b")
    effective = loaded.effective()
    assert effective["aws"]["profile"]["origin"].endswith("20-b.toml")
    assert effective["daemon"]["log_level"] == {"value": "debug", "origin": str(tmp_path / next(iter(files)))}
    assert effective["budget"]["usd_per_day"] == {"value": 0.05, "origin": "default"}
    assert effective["probes"]["s3_upload"]["object_size_bytes"]["value"] == [64 * MiB, GiB]


def test_a_named_file_brings_its_own_drop_ins(tmp_path: Path) -> None:
    """`--config FILE` looks beside FILE, not in /etc."""
    (tmp_path / "mine.d").mkdir()
    (tmp_path / "mine.toml").write_text("[daemon]\nseed = 1", encoding="utf-8")
    (tmp_path / "mine.d/a.toml").write_text("[daemon]\nseed = 2", encoding="utf-8")
    assert config_files.load(tmp_path / "mine.toml", root=tmp_path).configuration.daemon.seed == 2


@pytest.mark.parametrize(
    "text",
    [
        "[aws]\nsecret_access_key = 'wJalrXUtn'",
        "[aws]\naws_session_token = 'wJalrXUtn'",
        "[aws]\ns3_endpoint_url = 'https://user:wJalrXUtn@host'",
    ],
)
def test_a_secret_is_refused_and_never_repeated(tmp_path: Path, text: str) -> None:
    """The message about a credential in the configuration does not spread it."""
    (problem,) = _problems(tmp_path, text)
    assert "wJalrXUtn" not in problem
    assert "profile" in problem or "without a user name" in problem


def test_a_value_that_cannot_be_read_is_not_missing(tmp_path: Path) -> None:
    """One mistake is told once, and not that of the default that stands in for it."""
    (problem,) = _problems(tmp_path, "[probes.s3_upload]\nis_enabled = true\nbucket = 'ab'")
    assert problem.startswith('probes.s3_upload.bucket: found "ab"; expected the name of a bucket')


def test_what_spans_regions_is_no_bucket_in_one(tmp_path: Path) -> None:
    """The alias of a multi-region access point looks like a name, and S3 would say that there is no such bucket."""
    (problem,) = _problems(tmp_path, '[probes.s3_upload]\nbucket = "mfzwi23gnjvgw.mrap"')
    assert "the alias of an access point in one region" in problem


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("https://my-bucket.s3.eu-central-1.amazonaws.com", "without the bucket"),
        ("https://0a.r2.cloudflarestorage.com/my-bucket", "without the bucket"),
        ("https://s3-accelerate.amazonaws.com", "Transfer Acceleration"),
        ("https://s3-accelerate.dualstack.amazonaws.com", "Transfer Acceleration"),
        ("http://my-bucket.lan:9000", None),  # a host of one's own
        ("https://bucket.vpce-1a2b-5e6f.s3.eu-central-1.vpce.amazonaws.com", None),
    ],
)
def test_an_endpoint_is_that_of_all_buckets(tmp_path: Path, url: str, says: str | None) -> None:
    """What a page of the store shows names the bucket, too: every key would begin with it once more."""
    text = f'[aws]\ns3_endpoint_url = "{url}"\n[probes.s3_upload]\nbucket = "my-bucket"'
    if says is None:
        assert _load(tmp_path, text)
    else:
        (problem,) = _problems(tmp_path, text)
        assert problem.startswith(f'aws.s3_endpoint_url: found "{url}"')
        assert says in problem


def test_bucket_name_may_depend_on_the_region() -> None:
    """One bucket is in one region; a pattern names one for each."""
    assert ObjectSection(bucket="probe-{region}").bucket_in("eu-west-1") == "probe-eu-west-1"


CEPH = 's3_store = "ceph"'


@pytest.mark.parametrize(
    ("text", "key", "found"),
    [
        (f"[aws]\n{CEPH}", "aws.s3_store", "expected aws.s3_endpoint_url"),
        (
            f'[aws]\n{CEPH}\ns3_endpoint_url = "https://storage.googleapis.com"',
            "aws.s3_store",
            "Google Cloud Storage",
        ),
        (
            f'[aws]\n{CEPH}\ns3_endpoint_url = "http://a"\n[probes.s3_upload]\nservice_class = "express"',
            "probes.s3_upload.service_class",
            "Ceph Object Gateway has no directory buckets",
        ),
        ('[aws]\ns3_store = "aws"', "aws.s3_store", '"b2"'),
    ],
)
def test_a_store_is_stated_where_it_can_be(tmp_path: Path, text: str, key: str, found: str) -> None:
    """With its endpoint, and not against what that tells."""
    (problem,) = _problems(tmp_path, text)
    assert problem.startswith(f"{key}: found ")
    assert found in problem


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("", None),
        ('s3_endpoint_url = "http://127.0.0.1:9000"', None),
        ('s3_endpoint_url = "https://0a.r2.cloudflarestorage.com"', "r2"),
        *((f's3_endpoint_url = "http://a"\ns3_store = "{name}"', name) for name in STORES_BY_NAME),
    ],
)
def test_the_store_is_stated_or_found(tmp_path: Path, text: str, name: str | None) -> None:
    """Each row of the table can be stated."""
    store = _load(tmp_path, f"[aws]\n{text}").configuration.aws.store
    assert (store and store.name) == name


PROBED = '[probes.s3_upload]\nis_enabled = true\nbucket = "probe-{region}"\n'


@pytest.mark.parametrize(
    ("text", "key", "found"),
    [
        (f'{PROBED}regions = ["europe"]', "probes.s3_upload.regions", '"europe"'),
        (f'{PROBED}regions = ["eu-central1"]', "probes.s3_upload.regions", "did you mean eu-central-1?"),
        (f'{PROBED}[host]\nregion = "frankfurt"', "host.region", '"frankfurt"'),
        ('[watched_queue]\nname = "orders"\nregion = "europe"', "watched_queue.region", '"europe"'),
    ],
)
def test_what_cannot_be_a_region_of_aws_is_a_mistake(tmp_path: Path, text: str, key: str, found: str) -> None:
    """No request would ever be answered."""
    (problem,) = _problems(tmp_path, text)
    assert problem.startswith(f"{key}: found ")
    assert found in problem
    assert 'expected the name of a region, such as "eu-central-1"' in problem


@pytest.mark.parametrize(
    "text",
    [
        f'{PROBED}regions = ["europe"]\n[aws]\ns3_endpoint_url = "http://localhost:9000"',
        f'{PROBED}[host]\nregion = "europe"\n[aws]\ns3_endpoint_url = "http://localhost:9000"',
        '[host]\nregion = "europe"\n[aws]\ns3_endpoint_url = "http://a"\nsqs_endpoint_url = "http://b"',
        f'{PROBED}regions = ["us-gov-east-1", "eusc-de-east-1", "us-isob-west-1"]',
    ],
)
def test_other_endpoints_and_partitions_have_regions_of_their_own(tmp_path: Path, text: str) -> None:
    """Nothing is said of them."""
    assert _load(tmp_path, text).warnings() == []


def test_a_region_that_the_sdk_does_not_know_is_a_warning(tmp_path: Path) -> None:
    """It may be newer than the SDK, or a slip: the nearest is named."""
    (warning,) = _load(tmp_path, f'{PROBED}regions = ["eu-central-1", "eu-centrl-1"]').warnings()
    assert str(warning).removeprefix(f"{tmp_path}/") == (
        'penstock.toml: probes.s3_upload.regions: found "eu-centrl-1", which is not a region that the SDK knows; '
        "did you mean eu-central-1?"
    )


def test_a_group_that_is_not_here_is_a_warning(tmp_path: Path) -> None:
    """Its members are refused, and nothing else would say why; that of the service is missing beside no service."""
    file = tmp_path / "penstock.toml"
    file.write_text('[daemon]\ncontrol_group = "opreators"', encoding="utf-8")
    (warning,) = config_files.load(file, root=tmp_path).warnings()
    assert str(warning).startswith(f'{file}: daemon.control_group: found "opreators", which is no group here')
    file.write_text('[daemon]\ncontrol_group = "root"', encoding="utf-8")
    assert config_files.load(file, root=tmp_path).warnings() == []


@pytest.mark.parametrize("stated", ["may_write = true", 'shared_limits = ["a: s3_upload at 9/s"]'])
def test_a_bucket_that_is_missing_is_missed_in_the_file_that_wants_it(stated: str, tmp_path: Path) -> None:
    """There is no file called default."""
    file = tmp_path / "penstock.toml"
    file.write_text(f"[fleet]\n{stated}", encoding="utf-8")
    with pytest.raises(config_files.ConfigError) as refused:
        config_files.load(file, root=tmp_path)
    assert [problem.file for problem in refused.value.problems] == [str(file)]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (f"{PROBED}[budget]\nusd_per_day = 0", "budget.usd_per_day"),
        (f"{PROBED}[budget]\nrequest_count_per_day = 0", "budget.request_count_per_day"),
        (f"{PROBED}[budget]\ntransferred_bytes_per_day = 0", "budget.transferred_bytes_per_day"),
        (f"{PROBED}[budget]\nduty_cycle_fraction = 0", "budget.duty_cycle_fraction"),
        ("[probes.sqs_delivery]\nis_enabled = true\nusd_per_day = 0", "probes.sqs_delivery.usd_per_day"),
        (f'{PROBED}service_class = "express"', "probes.s3_upload.bucket"),
        (
            '[probes.s3_upload]\nis_enabled = true\nbucket = "probe--use1-az4--x-s3"',
            "probes.s3_upload.bucket",
        ),
        (
            '[probes.s3_download]\nbucket = "p--use1-az4--x-s3"\nservice_class = "express"\nrequester_pays = true',
            "probes.s3_download.requester_pays",
        ),
    ],
)
def test_a_probe_that_is_enabled_has_what_it_needs(tmp_path: Path, text: str, key: str) -> None:
    """What would never run is said before it does not."""
    (problem,) = _problems(tmp_path, text)
    assert problem.startswith(f"{key}: found ")


def test_a_budget_of_nothing_is_fine_where_nothing_is_probed(tmp_path: Path) -> None:
    """And bytes are of no use to a queue."""
    _load(tmp_path, "[budget]\nusd_per_day = 0\nduty_cycle_fraction = 0")
    _load(tmp_path, "[probes.sqs_delivery]\nis_enabled = true\n[budget]\ntransferred_bytes_per_day = 0")
