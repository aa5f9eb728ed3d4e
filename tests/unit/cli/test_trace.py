"""`spillway trace` as a user calls it."""

import json

import pytest

from spillway.agents.cli.main import run
from spillway.producers.load import traces


@pytest.fixture
def spillway(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        code = run(["trace", *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_from_a_recipe_to_a_page(spillway, tmp_path):
    recipe = ("gamma:rate=100,cv2=4,for=60s", "gamma:rate=100..200,cv2=4,for=60s", "+", "poisson:rate=20,for=2min")
    assert spillway("make", *recipe, "-o", "one.csv", "--seed", "3")[0] == 0
    assert spillway("make", *recipe, "-o", "two.csv", "--seed", "3")[0] == 0
    assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "two.csv").read_bytes()
    times = traces.arrivals(tmp_path / "one.csv")

    code, out, _ = spillway("stat", "one.csv", "--json", "--service", "50ms")
    told = json.loads(out)
    assert code == 0
    assert told["requests"] == len(times) == pytest.approx(17_400, rel=0.06)
    assert [scale["seconds"] for scale in told["scales"]] == [0.05 * 2**n for n in range(11)]
    assert all(scale["envelope"] >= told["rate"] for scale in told["scales"])

    code, out, _ = spillway("stat", "one.csv")
    assert f"{len(times):,} requests in" in out
    assert "51.2 s" in out

    assert spillway("import", "one.csv", "-o", "half.csv.gz", "--speed", "2", "--rate", "70")[0] == 0
    half = traces.arrivals(tmp_path / "half.csv.gz")
    assert len(half) / half[-1] == pytest.approx(70, rel=0.05)

    assert spillway("plot", "<b>.csv", "-o", "page.html")[0] == 2  # no such file
    (tmp_path / "<b>.csv").write_text("t\n0\n1\n2\n")  # gaps of one length
    for source in ("one.csv", "<b>.csv"):
        assert spillway("plot", source, "-o", "page.html")[0] == 0
        page = (tmp_path / "page.html").read_text()
        assert page.count("<svg") == 3
        assert "<b>" not in page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["make", "poisson:rate=.001,for=1", "-o", "a.csv"], "the trace has no request"),
        (["make", "poisson:rate=1,for=9s", "-o", "none/a.csv"], "cannot use none/a.csv"),
        (["import", "none.csv", "-o", "a.csv"], "there is no none.csv"),
        (["import", "x.csv", "-o", "a.csv", "--began", "t"], "with --counts"),
        (["import", "x.csv", "-o", "a.csv", "--rate", "1", "--peak", "1"], "give one of them"),
        (["stat", "x.csv"], "two or more times"),
        (["stat", "poisson:9", "--duration", "9", "--service", "61s"], "at most 60"),
    ],
)
def test_mistakes_are_told(spillway, tmp_path, arguments, message):
    (tmp_path / "x.csv").write_text("t\n3\n3\n")
    code, _, err = spillway(*arguments)
    assert code == 2
    assert message in err
