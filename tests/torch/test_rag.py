"""The RAG example: what it knows, what its networks make of a question, and the whole of it on a real broker."""

import pytest
import yaml

from examples.rag.corpus import Document, functions, sentence, topics
from examples.rag.generating import answers
from examples.rag.index import Index
from examples.rag.models import wait
from examples.rag.networks import Language, Rewriter
from examples.rag.payload import QUESTIONS, question
from examples.rag.training import ensure_trained, trained
from spillway.lineage.message import PREDICTION
from spillway.producers.client import Client
from spillway.producers.connection import ClientSettings
from tests.acceptance.serving import ROOT, serving
from tests.waiting import PATIENT_SECONDS

RAG = ROOT / "examples" / "rag" / "pipeline.yaml"
BEST = {  # the passage that answers each of the example's questions
    "How do I join paths?": "os.path.join",
    "How can I copy a file?": "shutil.copy",
    "What is the greatest common divisor?": "math.gcd",
    "How do I shuffle a list?": "random.shuffle",
    "How do I make a temporary directory?": "tempfile.mkdtemp",
    "How do I compress data?": "zlib.compress",
}


def test_the_documents_come_with_python():
    assert len(functions()) > 300
    assert len(topics()) > 50
    assert any(each.name == "os.path.join" for each in functions())


def test_the_index_prefers_rare_words_and_names():
    index = Index(
        (Document("a.join", "puts a path together"), Document("b", "a path"), Document("c", "a path, a path"))
    )
    assert index.search("join a path")[0][1].name == "a.join"
    assert index.search("nothing known") == []


def test_the_emulated_wait_has_a_long_tail_and_is_the_same_for_the_same_query():
    waits = sorted(wait(str(number)) for number in range(2000))
    assert 0.04 < waits[1000] < 0.06
    assert waits[-1] > 0.5
    assert waits[-1] <= 1.0
    assert wait("join paths") == wait("join paths")


def test_an_answer_follows_the_better_passage_and_ends_with_it():
    told = [(9.0, "os.path.join: Join two or more."), (1.0, "shlex.join: Return a string.")]
    untrained = Language()
    assert answers(untrained, [told, []]) == ["os.path.join: Join two or more.", ""]


@pytest.mark.nightly
def test_the_rewriter_keeps_what_is_worth_looking_up():
    net = trained(Rewriter(), "rewrite")
    kept = net.rewrite(["how do i join paths?", "what is the greatest common divisor?"])
    assert "join" in kept[0]
    assert "divisor" in kept[1]
    assert all(not text.startswith(("how", "what")) for text in kept)


@pytest.mark.nightly
def test_the_pipeline_answers_questions_from_the_documentation(broker, unique_name, tmp_path):
    ensure_trained()
    spec = yaml.safe_load(RAG.read_text())
    path = tmp_path / "pipeline.yaml"
    path.write_text(yaml.safe_dump({**spec, "name": unique_name, "slo": PATIENT_SECONDS}, sort_keys=False))
    with (
        serving(path, unique_name, broker, tmp_path, cwd=ROOT) as served,
        Client(unique_name, ClientSettings(bootstrap=broker), slo=PATIENT_SECONDS) as client,
    ):
        outcomes = list(client.outcomes([question(index, None) for index in range(60)]))
        assert {outcome.kind for _, outcome in outcomes} == {PREDICTION}, served.logs()
    assert len(outcomes) == 60
    found = 0
    for index, outcome in outcomes:
        asked = QUESTIONS[index % len(QUESTIONS)]
        assert outcome.outputs["question"] == asked
        assert outcome.outputs["passages"]
        assert ": " in outcome.outputs["answer"]
        found += BEST[asked] in outcome.outputs["passages"]
    # Training is not the same to the last bit everywhere; six of six are found as this is written.
    assert found >= 40, f"{found} of 60 questions found their passage"


def test_a_passage_is_a_first_sentence():
    assert sentence("Join two\nor more. And so on.") == "Join two or more."
