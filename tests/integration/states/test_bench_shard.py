"""The bench's own primary and backup, over a real broker: what is written is what a new backup has."""

from agents.bench.hams.logs import CASES
from agents.bench.hams.shard import Backup, Primary, change, make_state, make_topics
from producers.connection import ClientSettings


def test_a_new_backup_gets_to_the_last_version(broker, unique_name):
    settings = ClientSettings(bootstrap=broker)
    make_topics(settings, unique_name)
    state = make_state(2)
    with Primary(settings, unique_name) as primary:
        for step in range(4):
            change(state, 0.01, step)
            manifest = primary.write(state)
        assert manifest.written_bytes < manifest.state_bytes / 4
        assert primary.written_bytes >= manifest.state_bytes + 3 * manifest.written_bytes
    with Backup(settings, unique_name) as backup:
        applied = backup.until_at(manifest.version)
        assert applied.copied == manifest.state_bytes
        assert backup.read_bytes >= manifest.state_bytes


def test_the_cases_have_what_the_bound_is_for():
    assert any(case.megabytes >= 10 and case.versions == 10_000 for case in CASES)
