"""Which requests a Kafka broker answered, by who asked, API and kind of topic: from its own log of requests.

The log takes the broker's time, so nobody takes processor times from a broker that writes it.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import psutil
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from spillway.producers.connection import ClientSettings

JAVA_OPTIONS: Final = ("-Dorg.slf4j.simpleLogger.log.kafka.request.logger=debug",)
_MARK: Final = "Completed request:"
_LISTENER: Final = "BROKER"  # and not the controller's, which nobody but the broker asks
_BY_TOPIC: Final = ("FETCH", "PRODUCE")
_URL_SAFE: Final = str.maketrans("+/", "-_")

Asked = tuple[str, str]  # who, and what


def count(lines: Iterable[str], who: Mapping[int, str], topics: Mapping[str, str], pipeline: str) -> Counter[Asked]:
    """Count a log's requests; `who` has each client's port, `topics` the names by id."""
    found: Counter[Asked] = Counter()
    for line in lines:
        _, mark, text = line.partition(_MARK)
        if not mark or not text.endswith("}\n"):
            continue
        told = json.loads(text)
        if told["listener"] != _LISTENER:
            continue
        port = int(told["connection"].split("-")[1].rpartition(":")[2])
        found[who.get(port, "others"), _what(told, topics, pipeline)] += 1
    return found


def _what(told: Mapping[str, Any], topics: Mapping[str, str], pipeline: str) -> str:
    name: str = told["requestHeader"]["requestApiKeyName"]
    api = name.title().replace("_", "")
    if name not in _BY_TOPIC:
        return api
    request = told["request"]
    asked = request.get("topics") or request.get("topicData") or ()
    named = (each.get("topic") or each.get("name") or topics.get(each["topicId"], "?") for each in asked)
    kinds = {_kind(topic, pipeline) for topic in named}
    return f"{api} {'+'.join(sorted(kinds)) or 'nothing'}"


_OWN: Final = ("ingress", "outcomes", "egress", "dead", "schemas", "plan", "control", "beat", "owners", "sizes")


def _kind(topic: str, pipeline: str) -> str:
    """Say what a topic is for, whichever stage it belongs to."""
    _, own, rest = topic.partition(f"{pipeline}.")
    if not own:
        return topic
    stage, dot, kind = rest.partition(".")
    return kind if dot else stage if stage in _OWN else "stage"


def ports(pids: Mapping[int, str]) -> dict[int, str]:
    """Name the process behind each local TCP port."""
    found: dict[int, str] = {}
    for connection in psutil.net_connections("tcp"):
        if connection.pid is not None and connection.pid in pids and connection.laddr:
            found[connection.laddr.port] = pids[connection.pid]
    return found


def topic_names(settings: ClientSettings) -> dict[str, str]:
    """All topics' names by their ids, as Java writes these."""
    admin = AdminClient({**settings.confluent(), "log_level": 2})
    names = list(admin.list_topics(timeout=10).topics)
    described = admin.describe_topics(TopicCollection(names))
    return {str(future.result().topic_id).translate(_URL_SAFE): name for name, future in described.items()}
