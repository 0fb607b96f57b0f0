"""Settings come from the environment, are checked, and are refused in one sentence."""

from __future__ import annotations

from datetime import timedelta
from ipaddress import ip_network

import pytest
from pydantic import ValidationError

from switchroom.settings import Settings, SettingsError, without_password


def refusal(**environ: str) -> str:
    with pytest.raises(SettingsError) as caught:
        Settings.from_env(environ)
    return str(caught.value)


def test_nothing_set_gives_the_defaults() -> None:
    settings = Settings.from_env({})
    assert settings == Settings()
    assert settings.redis_url is None
    assert (settings.host, settings.port) == ("127.0.0.1", 8000)
    assert settings.lease == timedelta(seconds=15)
    assert settings.retry_delays == (timedelta(seconds=1), timedelta(seconds=5))


def test_variables_are_read_as_seconds_counts_and_names() -> None:
    settings = Settings.from_env(
        {
            "SWITCHROOM_REDIS_URL": "redis://user:secret@redis:6380/2",
            "SWITCHROOM_LEASE": "2.5",
            "SWITCHROOM_REDIS_TIMEOUT": "0.5",
            "SWITCHROOM_RETRY_DELAYS": "0.1, 2",
            "SWITCHROOM_CONCURRENCY": "7",
            "SWITCHROOM_IDEMPOTENCY": "header",
            "SWITCHROOM_PREFIX": "team-a",
            "SWITCHROOM_PROTOCOL_VERSIONS": "1.0, 0.3",
            "SWITCHROOM_LENIENT_VERSION": "true",
            "SWITCHROOM_TRUSTED_PROXIES": "10.0.0.0/8, ::1",
            "SWITCHROOM_PUBLIC_URL": "https://agents.example.com",
            "SWITCHROOM_CARD_KEYS": "/run/secrets/new.pem, old.pem,",
            "SWITCHROOM_AGENT": "",
            "PATH": "/bin",
        }
    )
    assert settings.redis_url == "redis://user:secret@redis:6380/2"
    assert settings.lease == timedelta(seconds=2.5)
    assert settings.retry_delays == (timedelta(seconds=0.1), timedelta(seconds=2))
    assert settings.concurrency == 7
    assert settings.idempotency == "header"
    assert settings.prefix == "team-a"
    assert settings.protocol_versions == Settings().protocol_versions == ("0.3", "1.0")
    assert settings.lenient_version
    assert settings.trusted_proxies == (ip_network("10.0.0.0/8"), ip_network("::1"))
    assert settings.card_keys == ("/run/secrets/new.pem", "old.pem")
    assert settings.agent is None, "an empty variable is an unset one"


def test_they_never_change() -> None:
    with pytest.raises(ValidationError):
        Settings().lease = timedelta(seconds=1)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("environ", "port"),
    [
        ({"PORT": "5000"}, 5000),
        ({"PORT": "5000", "SWITCHROOM_PORT": "6000"}, 6000),
        ({"SWITCHROOM_PORT": "tcp://10.0.0.1:8000"}, 8000),
        ({"SWITCHROOM_PORT": "tcp://10.0.0.1:8000", "PORT": "5000"}, 5000),
    ],
)
def test_port_is_honoured_and_kubernetes_service_variables_are_not(
    environ: dict[str, str], port: int
) -> None:
    assert Settings.from_env(environ).port == port


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("SWITCHROOM_LEASE", "soon", "a number of seconds above 0, such as 15"),
        ("SWITCHROOM_LEASE", "0", "a number of seconds above 0"),
        ("SWITCHROOM_LEASE", "-3", "a number of seconds above 0"),
        ("SWITCHROOM_LEASE", "nan", "a number of seconds above 0"),
        ("SWITCHROOM_LEASE", "1e300", "a number of seconds above 0"),
        ("SWITCHROOM_RETRY_DELAYS", "1,x", "a number of seconds above 0"),
        ("SWITCHROOM_CONCURRENCY", "0", "greater than or equal to 1"),
        ("SWITCHROOM_CONCURRENCY", "many", "a valid integer"),
        ("SWITCHROOM_IDEMPOTENCY", "maybe", "'request', 'message-id' or 'header'"),
        ("SWITCHROOM_PROTOCOL_VERSIONS", "0.3", "1.0,0.3 or 1.0"),
        ("SWITCHROOM_PROTOCOL_VERSIONS", "1.0,2.0", "1.0,0.3 or 1.0"),
        ("SWITCHROOM_LENIENT_VERSION", "perhaps", "a valid boolean"),
        ("SWITCHROOM_ERROR_TABLE", "0.9", "'1.0.1' or '1.0.0'"),
        ("SWITCHROOM_TRUSTED_PROXIES", "proxy.example", "addresses or networks, comma-separated"),
        ("SWITCHROOM_TRUSTED_PROXIES", "10.0.0.1/8", "addresses or networks, comma-separated"),
        ("SWITCHROOM_TRUSTED_PROXIES", "*", "such as 10.0.0.0/8,::1"),
        ("SWITCHROOM_PREFIX", "a{b}", "1 to 64 of the characters"),
        ("SWITCHROOM_QUEUE", "a b", "1 to 64 of the characters"),
        ("SWITCHROOM_PUBLIC_URL", "example.com", "a URL such as https://agents.example.com"),
        ("SWITCHROOM_PUBLIC_URL", "http://h/?a=1", "without user, query"),
        ("SWITCHROOM_PUBLIC_URL", "http://h/?", "without user, query"),
        ("SWITCHROOM_PUBLIC_URL", "http://h/#", "without user, query"),
        ("SWITCHROOM_PUBLIC_URL", "http://h:x/", "a URL such as"),
        ("SWITCHROOM_PUBLIC_URL", "http://h:70000/", "a URL such as"),
        ("SWITCHROOM_PUBLIC_URL", "http://x y", "a URL such as"),
        ("SWITCHROOM_PUBLIC_URL", "http://h/x y", "or spaces"),
        ("SWITCHROOM_PUBLIC_URL", "http://h\tx/", "a URL such as"),
        ("SWITCHROOM_PUBLIC_URL", "http://h/a\nb", "a URL such as"),
        ("SWITCHROOM_PUBLIC_URL", "http://h/\x7f", "a URL such as"),
        ("SWITCHROOM_PUBLIC_URL", "http://h\\x/", "a URL such as"),
        ("SWITCHROOM_PUBLIC_URL", "http://<host>/", "a URL such as"),
        ("SWITCHROOM_PUBLIC_URL", "http://$HOST/", "a URL such as"),
        ("SWITCHROOM_PUBLIC_URL", "http://bücher.example/", "a URL such as"),
        ("SWITCHROOM_PUBLIC_URL", "http://:80/", "a URL such as"),
        ("SWITCHROOM_REDIS_URL", "http://redis", "a URL such as redis://127.0.0.1:6379"),
        ("SWITCHROOM_REDIS_URL", "redis://", "a URL such as redis://127.0.0.1:6379"),
        ("SWITCHROOM_REDIS_URL", "redis://h:port", "a URL such as redis://127.0.0.1:6379"),
        ("SWITCHROOM_REDIS_URL", "redis://h/prod", "a URL such as redis://127.0.0.1:6379"),
        ("SWITCHROOM_REDIS_URL", "redis://h x", "a URL such as redis://127.0.0.1:6379"),
        ("SWITCHROOM_REDIS_URL", "redis://h\tx", "a URL such as redis://127.0.0.1:6379"),
        ("SWITCHROOM_REDIS_URL", "redis://h:0", "a URL such as redis://127.0.0.1:6379"),
        ("SWITCHROOM_QUEUE_URL", "unix:///a\nb", "a URL such as redis://127.0.0.1:6379"),
        ("SWITCHROOM_QUEUE_URL", "unix://", "a URL such as redis://127.0.0.1:6379"),
        ("SWITCHROOM_REDIS_URL", "sentinel://h/m", "redis+sentinel://HOST:PORT,HOST:PORT/MASTER"),
        ("SWITCHROOM_REDIS_URL", "redis+sentinel:///m", "addresses of the Sentinels between"),
        ("SWITCHROOM_REDIS_URL", "redis+sentinel://h:1,/m", "addresses of the Sentinels between"),
        ("SWITCHROOM_REDIS_URL", "redis+sentinel://h:0/m", "addresses of the Sentinels between"),
        ("SWITCHROOM_REDIS_URL", "redis+sentinel://h:70000/m", "addresses of the Sentinels"),
        ("SWITCHROOM_REDIS_URL", "redis+sentinel://h;i/m", "addresses of the Sentinels between"),
        ("SWITCHROOM_REDIS_URL", "redis+sentinel://::1:2/m", "addresses of the Sentinels between"),
        ("SWITCHROOM_REDIS_URL", "redis+sentinel://h:1,i:2", "with the name that the Sentinels"),
        ("SWITCHROOM_QUEUE_URL", "redis+sentinel://h:1/", "with the name that the Sentinels"),
        ("SWITCHROOM_QUEUE_URL", "rediss+sentinel://h/a b", "with the name that the Sentinels"),
        ("SWITCHROOM_QUEUE_URL", "redis+sentinel://h/m/prod", "the number of a database"),
        ("SWITCHROOM_QUEUE_URL", "redis+sentinel://h/m/1/2", "the number of a database"),
        ("PORT", "http", "a valid integer"),
        ("PORT", "70000", "less than or equal to 65535"),
    ],
)
def test_a_wrong_one_is_named_with_what_was_found_and_expected(
    variable: str, value: str, expected: str
) -> None:
    sentence = refusal(**{variable: value})
    assert sentence.startswith(f"{variable} is {value!r}; it should be ")
    assert expected in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize("password", ["secret", "se@cr/et", "se:cret"])
def test_a_password_is_never_shown(password: str) -> None:
    assert "cr" not in refusal(SWITCHROOM_REDIS_URL=f"http://user:{password}@host/")
    assert "cr" not in refusal(SWITCHROOM_PUBLIC_URL=f"https://user:{password}@host/")
    settings = Settings(redis_url="redis://:secret@host", queue_url="redis://:secret@host")
    assert "secret" not in repr(settings)
    assert without_password("unix:///run/redis?password=secret") == "unix:///run/redis"
    assert "cr" not in refusal(SWITCHROOM_QUEUE_URL=f"redis+sentinel://user:{password}@h")
    for options in ("", "?a=1", f"?sentinel_password={password}"):
        url = f"redis+sentinel://user:{password}@h:1,i/m{options}"
        assert "cr" not in without_password(url)


def test_a_key_that_was_given_instead_of_its_file_is_never_shown() -> None:
    pem = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0,\n-----END PRIVATE KEY-----"
    assert refusal(SWITCHROOM_CARD_KEYS=pem) == (
        "SWITCHROOM_CARD_KEYS is '…'; it should be names of PEM files, not what is in them."
    )


@pytest.mark.parametrize("place", ["swk_k7abc_secret", "redis://:secret@host", "secret\nfile"])
def test_api_keys_are_named_by_their_place(place: str) -> None:
    assert refusal(SWITCHROOM_API_KEYS=place) == (
        "SWITCHROOM_API_KEYS is '…'; it should be redis, or the path of the file that keeps API "
        "keys."
    )


def test_api_keys_are_kept_in_no_redis_that_ends_with_the_server() -> None:
    assert "without SWITCHROOM_REDIS_URL" in refusal(SWITCHROOM_API_KEYS="redis")
    environ = {"SWITCHROOM_API_KEYS": "redis", "SWITCHROOM_REDIS_URL": "redis://h"}
    assert Settings.from_env(environ).api_keys == "redis"
    assert Settings.from_env({"SWITCHROOM_API_KEYS": "keys.json"}).api_keys == "keys.json"


@pytest.mark.parametrize("variable", ["SWITCHROOM_JWT_ISSUER", "SWITCHROOM_JWT_JWKS_URL"])
class TestIssuer:
    @pytest.mark.parametrize(
        "url",
        [
            "https://login.example.com",
            "https://login.example.com:8443/realms/main/",
            "https://login.example.com/a%20b~c",
            "http://127.0.0.1:9000/",
            "http://localhost",
            "http://[::1]:9000",
        ],
    )
    def test_is_reached_so_that_nobody_can_stand_between(self, variable: str, url: str) -> None:
        settings = Settings.from_env({variable: url, "SWITCHROOM_JWT_AUDIENCE": "a"})
        assert url in (settings.jwt_issuer, settings.jwt_jwks_url)

    @pytest.mark.parametrize(
        "url",
        [
            "login.example.com",
            "http://login.example.com",
            "http://127.0.0.1.example.com",
            "http://127.0.0.1@example.com",
            "file:///etc/keys.json",
            "https://",
            "https://h:x",
            "https://h/#a",
            "https://h/a b",
            "https://h\\a",
        ],
    )
    def test_or_not_at_all(self, variable: str, url: str) -> None:
        sentence = refusal(**{variable: url, "SWITCHROOM_JWT_AUDIENCE": "a"})
        assert sentence.startswith(f"{variable} is ")
        assert "http only for this machine itself" in sentence

    def test_needs_an_audience(self, variable: str) -> None:
        sentence = refusal(**{variable: "https://login.example.com"})
        assert sentence.startswith(f"{variable} is set without SWITCHROOM_JWT_AUDIENCE: ")

    def test_a_password_in_it_is_never_shown(self, variable: str) -> None:
        url = "https://user:secret@login.example.com"
        assert "secret" not in refusal(**{variable: url, "SWITCHROOM_JWT_AUDIENCE": "a"})


@pytest.mark.parametrize(
    ("environ", "fault"),
    [
        ({"JWT_AUDIENCE": "a"}, "JWT_AUDIENCE is set without SWITCHROOM_JWT_ISSUER or"),
        ({"JWT_TENANT_CLAIM": "t"}, "JWT_TENANT_CLAIM is set without SWITCHROOM_JWT_ISSUER or"),
        ({"JWT_ISSUER": "https://h/?a", "JWT_AUDIENCE": "a"}, "JWT_ISSUER has a query"),
        ({"CLIENT_CERT_HEADER": "X-S"}, "CLIENT_CERT_HEADER is set without SWITCHROOM_TRUSTED_PRO"),
        (
            {"CLIENT_CERT_HEADER": "X S", "TRUSTED_PROXIES": "::1"},
            "CLIENT_CERT_HEADER is 'X S'; it should be the name of a header",
        ),
        ({"JWT_ALGORITHMS": "none"}, "JWT_ALGORITHMS is 'none'; it should be names of asymmetric"),
        ({"JWT_ALGORITHMS": "RS256,HS256"}, "JWT_ALGORITHMS is 'RS256,HS256'; it should be names"),
        ({"JWT_ALGORITHMS": "rs256"}, "JWT_ALGORITHMS is 'rs256'; it should be names"),
        ({"JWT_ALGORITHMS": ","}, "JWT_ALGORITHMS is ','; it should be names"),
    ],
)
def test_half_a_way_to_tell_who_calls_is_refused(environ: dict[str, str], fault: str) -> None:
    sentence = refusal(**{f"SWITCHROOM_{name}": value for name, value in environ.items()})
    assert sentence.startswith(f"SWITCHROOM_{fault}")


def test_algorithms_are_listed() -> None:
    settings = Settings.from_env({"SWITCHROOM_JWT_ALGORITHMS": "ES512, RS256,ES512"})
    assert settings.jwt_algorithms == ("ES512", "RS256")


def test_nothing_is_signed_for_an_address_that_a_request_names() -> None:
    assert "without SWITCHROOM_PUBLIC_URL" in refusal(SWITCHROOM_CARD_KEYS="key.pem")


@pytest.mark.parametrize(
    ("environ", "names"),
    [
        ({"CLAIM_TTL": "20", "RETENTION": "10", "LOG_RETENTION": "1"}, "CLAIM_TTL RETENTION"),
        ({"CLAIM_TTL": "1", "RETENTION": "10", "LOG_RETENTION": "20"}, "LOG_RETENTION RETENTION"),
        ({"EVENT_LIMIT": "10", "TASK_LIMIT": "9"}, "EVENT_LIMIT TASK_LIMIT"),
        ({"EVENT_LIMIT": "10", "REPLAY_BYTES": "9"}, "EVENT_LIMIT REPLAY_BYTES"),
        ({"CANCEL_GRACE": "3", "CANCEL_WAIT": "3"}, "CANCEL_GRACE CANCEL_WAIT"),
        ({"REDIS_TIMEOUT": "15"}, "REDIS_TIMEOUT LEASE"),
    ],
)
def test_they_are_checked_against_each_other(environ: dict[str, str], names: str) -> None:
    sentence = refusal(**{f"SWITCHROOM_{name}": value for name, value in environ.items()})
    for name in names.split():
        assert f"SWITCHROOM_{name} (" in sentence


@pytest.mark.parametrize(
    "url",
    [
        "https://agents.example.com",
        "HTTPS://agents.example.com:8443/a/b-c_d.e~f/%20/",
        "http://my_host",
        "http://127.0.0.1:8000/@me",
        "http://[2001:db8::1]:8000/",
    ],
)
def test_a_public_url_may_have_a_port_a_path_and_an_address(url: str) -> None:
    assert Settings.from_env({"SWITCHROOM_PUBLIC_URL": url}).public_url == url


@pytest.mark.parametrize(
    "url",
    [
        "redis://h",
        "redis://user:p w@h:6380/2",
        "rediss://[::1]:6379/0",
        "redis://my_redis/",
        "unix:///path with/spaces?db=1",
        "fake://any thing",
        "redis+sentinel://h/my-master",
        "redis+sentinel://user:p%40ss@h:26379,i,[::1]:26380,[2001:db8::1]/my.master_1/2?sentinel_username=x",
        "REDISS+Sentinel://:secret@10.0.0.1:1/m/",
    ],
)
def test_redis_may_be_reached_in_many_ways(url: str) -> None:
    assert Settings.from_env({"SWITCHROOM_REDIS_URL": url}).redis_url == url


def test_what_kubernetes_sets_for_services_is_not_misspelt() -> None:
    environ = {
        "SWITCHROOM_PORT": "tcp://10.0.0.1:8000",
        "SWITCHROOM_PORT_8000_TCP": "tcp://10.0.0.1:8000",
        "SWITCHROOM_PORT_8000_TCP_ADDR": "10.0.0.1",
        "SWITCHROOM_PORT_8000_TCP_PROTO": "tcp",
        "SWITCHROOM_SERVICE_HOST": "10.0.0.1",
        "SWITCHROOM_SERVICE_PORT": "8000",
        "SWITCHROOM_SERVICE_PORT_HTTP": "8000",
        "SWITCHROOM_REDIS_PORT": "tcp://10.0.0.2:6379",
        "SWITCHROOM_REDIS_SERVICE_HOST": "10.0.0.2",
        "SWITCHROOM_REDIS_PORT_6379_TCP_PORT": "6379",
    }
    assert Settings.unknown(environ) == {}


def test_a_misspelt_variable_is_found() -> None:
    environ = {"SWITCHROOM_LEASES": "1", "SWITCHROOM_LEESE": "3", "SWITCHROOM_REDISURL": "x"}
    environ |= {"SWITCHROOM_ZZZ": "1", "SWITCHROOM_LEASE": "1", "HOME": "", "switchroom_leese": ""}
    assert Settings.unknown(environ) == {
        "SWITCHROOM_LEASES": "SWITCHROOM_LEASE",
        "SWITCHROOM_LEESE": "SWITCHROOM_LEASE",
        "SWITCHROOM_REDISURL": "SWITCHROOM_REDIS_URL",
        "SWITCHROOM_ZZZ": None,
    }


def test_no_queue_is_named_like_another_ones_running_set() -> None:
    with pytest.raises(SettingsError, match="SWITCHROOM_QUEUE is 'a:running'"):
        Settings.from_env({"SWITCHROOM_QUEUE": "a:running"})


@pytest.mark.parametrize(
    ("environ", "fault"),
    [
        (
            {"SEND_RATE": "5", "TENANT_SEND_RATE": "2"},
            "SWITCHROOM_SEND_RATE (5) is above SWITCHROOM_TENANT_SEND_RATE (2)",
        ),
        (
            {"CALLER_TASKS": "50", "TENANT_TASKS": "20"},
            "SWITCHROOM_CALLER_TASKS (50) is above SWITCHROOM_TENANT_TASKS (20)",
        ),
        (
            {
                "SEND_RATE": "1",
                "TENANT_SEND_RATE": "2",
                "SEND_BURST": "9",
                "TENANT_SEND_BURST": "3",
            },
            "SWITCHROOM_SEND_BURST (9) is above SWITCHROOM_TENANT_SEND_BURST (3)",
        ),
        ({"SEND_RATE": "-1"}, "SWITCHROOM_SEND_RATE is '-1'"),
        ({"SEND_RATE": "inf"}, "SWITCHROOM_SEND_RATE is 'inf'"),
        ({"LIMITS_UNKNOWN": "perhaps"}, "SWITCHROOM_LIMITS_UNKNOWN is 'perhaps'"),
    ],
)
def test_limits_that_contradict_each_other_are_refused(environ: dict[str, str], fault: str) -> None:
    told = refusal(**{f"SWITCHROOM_{name}": value for name, value in environ.items()})
    assert fault in told
