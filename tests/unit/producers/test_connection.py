import pickle

import pytest

from lineage.errors import UsageError
from producers.connection import ClientSettings

SASL = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "u",
    "sasl.password": "geheim",
}


def test_a_plain_cluster_needs_only_its_address():
    settings = ClientSettings.load("localhost:9092")
    confluent = settings.confluent()
    assert confluent.pop("bootstrap.servers") == "localhost:9092"
    # What every client has: it is back soon at a broker that is back, where librdkafka's own wait grows to ten seconds.
    assert confluent.pop("socket.timeout.ms") == 6_000
    assert max(confluent.values()) <= 500
    assert all(".backoff." in key for key in confluent)
    assert settings.aiokafka() == {"bootstrap_servers": ["localhost:9092"], "security_protocol": "PLAINTEXT"}
    assert settings.faust() == {"broker": ["kafka://localhost:9092"]}


def test_several_addresses_reach_every_client():
    settings = ClientSettings(bootstrap="a:1, [::1]:2")
    assert settings.confluent()["bootstrap.servers"] == "a:1,[::1]:2"
    assert settings.aiokafka()["bootstrap_servers"] == ["a:1", "[::1]:2"]


@pytest.mark.parametrize("bootstrap", ["localhost", "localhost:", "a:0", "a:70000", "kafka://a:1", "a:1,,b:2", "a b:1"])
def test_an_address_that_is_none_is_refused(bootstrap):
    with pytest.raises(UsageError, match="HOST:PORT"):
        ClientSettings(bootstrap=bootstrap)


def test_no_address_at_all_says_how_to_give_one():
    with pytest.raises(UsageError, match="SPILLWAY_BOOTSTRAP"):
        ClientSettings.load(None)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "c.properties",
            (
                "# mine\nbootstrap.servers=f:1\nsecurity.protocol=sasl_plaintext\nsasl.mechanisms=plain\n"
                "sasl.username = u\nsasl.password=a=#b\\\n"
            ),
        ),
        (
            "c.yaml",
            (
                "bootstrap.servers: f:1\nsecurity.protocol: SASL_PLAINTEXT\nsasl.mechanism: PLAIN\n"
                "sasl.username: u\nsasl.password: 'a=#b\\'\n"
            ),
        ),
        (
            "c.json",
            (
                '{"bootstrap.servers": "f:1", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",'
                ' "sasl.username": "u", "sasl.password": "a=#b\\\\"}'
            ),
        ),
    ],
)
def test_every_file_form_gives_the_same_settings(tmp_path, name, text):
    file = tmp_path / name
    file.write_text(text)
    settings = ClientSettings.load(None, file)
    assert settings.bootstrap == "f:1"
    assert settings.aiokafka()["sasl_plain_password"] == "a=#b\\"
    assert settings.confluent()["sasl.password"] == "a=#b\\"
    assert settings.faust()["broker_credentials"].password == "a=#b\\"
    assert ClientSettings.load("other:2", file).bootstrap == "other:2"


def test_a_numeric_password_in_yaml_stays_as_written(tmp_path):
    file = tmp_path / "c.yml"
    file.write_text(
        "security.protocol: SASL_PLAINTEXT\nsasl.mechanism: PLAIN\nsasl.username: 007\nsasl.password: 0123\n"
    )
    assert ClientSettings.load("a:1", file).properties["sasl.password"] == "0123"


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"sasl.usrname": "u"}, "did you mean sasl.username"),
        ({"fetch.max.bytes": "1"}, "unknown client property"),
        ({"sasl.jaas.config": "x"}, "sasl.username and sasl.password"),
        ({"security.protocol": "TLS"}, "use one of PLAINTEXT, SSL"),
        ({"sasl.username": "u"}, "set security.protocol"),
        ({"ssl.ca.location": "x"}, "set security.protocol"),
        ({**SASL, "ssl.ca.location": "x"}, "ssl.ca.location has no effect"),
        ({"security.protocol": "SASL_SSL"}, "needs sasl.mechanism and sasl.username and sasl.password"),
        ({**SASL, "sasl.mechanism": "GSSAPI"}, "use one of PLAIN"),
        ({"security.protocol": "SSL", "ssl.key.location": "x"}, "go together"),
        ({**SASL, "sasl.password": ""}, "is empty"),
        ({"socket.timeout.ms": "6 s"}, "give milliseconds, 2000 or more"),
        ({"socket.timeout.ms": "500"}, "give milliseconds, 2000 or more"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(properties, message):
    with pytest.raises(UsageError, match=message):
        ClientSettings(bootstrap="a:1", properties=properties)


def test_a_broker_that_stands_still_is_given_up_after_six_seconds_or_as_told():
    assert ClientSettings(bootstrap="a:1").confluent()["socket.timeout.ms"] == 6_000
    slow = ClientSettings(bootstrap="a:1", properties={"socket.timeout.ms": "60000"})
    assert slow.confluent()["socket.timeout.ms"] == "60000"


def test_a_file_error_names_the_file_and_never_the_secret(tmp_path):
    file = tmp_path / "c.properties"
    file.write_text("sasl.password=geheim\n")
    with pytest.raises(UsageError) as refused:
        ClientSettings.load("a:1", file)
    assert str(file) in str(refused.value)
    assert "geheim" not in str(refused.value)
    with pytest.raises(UsageError, match=r"none\.properties"):
        ClientSettings.load("a:1", tmp_path / "none.properties")
    file.write_text("a=1\nnonsense\n")
    with pytest.raises(UsageError, match=":2: no 'key=value'"):
        ClientSettings.load("a:1", file)


def test_a_secret_is_never_printed_and_survives_a_process_boundary():
    settings = ClientSettings(bootstrap="a:1", properties=SASL)
    assert "geheim" not in f"{settings} {settings!r} {[settings]}"
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_tls_reaches_every_client():
    settings = ClientSettings(bootstrap="a:1", properties={"security.protocol": "ssl"})
    context = settings.aiokafka()["ssl_context"]
    assert context.check_hostname
    assert settings.faust()["broker_credentials"].protocol.value == "SSL"
    assert settings.confluent()["security.protocol"] == "SSL"
    lax = ClientSettings(
        bootstrap="a:1", properties={"security.protocol": "SSL", "enable.ssl.certificate.verification": "False"}
    )
    assert not lax.ssl_context().check_hostname


def test_a_missing_tls_file_is_named():
    settings = ClientSettings(bootstrap="a:1", properties={"security.protocol": "SSL", "ssl.ca.location": "/none.pem"})
    with pytest.raises(UsageError, match=r"/none\.pem"):
        settings.aiokafka()
