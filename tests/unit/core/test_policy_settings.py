"""How a policy is named, with and without parameters; and what is said of one that cannot be."""

import pytest

from spillway.agents.cli.main import run
from spillway.agents.core.policies import POLICIES, make, period_of, selected, words_for
from spillway.agents.core.policies.fifo import Fifo
from spillway.agents.core.policy import Parameters, Policy, StageView
from spillway.lineage.errors import UsageError
from spillway.topology.load import parse


@pytest.mark.parametrize("name", list(POLICIES))
def test_every_policy_is_made_by_its_name_even_for_a_stage_of_which_nothing_is_known(name):
    assert isinstance(make(name, StageView("stage")), POLICIES[name])


def test_parameters_are_read_and_checked():
    chosen = selected("pard: quantile=.2, window=auto")
    assert (chosen.name, chosen.parameters.quantile, chosen.parameters.window) == ("pard", 0.2, "auto")
    assert (chosen.parameters.samples, chosen.parameters.duration) == (10_000, "planned")
    assert selected("pard:duration=recent").parameters.duration == "recent"
    assert str(chosen) == "pard:quantile=.2,window=auto"
    assert str(selected("naive")) == "naive"


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("prad", "there is no policy 'prad'; did you mean 'pard'? (one of your own is written module:Class)"),
        ("pard:quantil=.2", "policy pard has no parameter 'quantil'; did you mean 'quantile'?"),
        ("pard:quantile=2", "policy pard, parameter quantile=2: Input should be less than or equal to 1"),
        ("pard:quantile=nan", "policy pard, parameter quantile=nan"),
        ("pard:window=0", "policy pard, parameter window=0"),
        ("pard:window=long", "policy pard, parameter window=long"),
        ("pard:duration=latest", "policy pard, parameter duration=latest: Input should be 'planned' or 'recent'"),
        ("spillway:duration=planned", "policy spillway has no parameter 'duration'"),
        ("pard:quantile", "policy pard: 'quantile' is not a parameter; write it as in quantile=.2"),
        ("pard:quantile=.1,quantile=.2", "parameter 'quantile' is given twice"),
        ("naive:quantile=.1", "policy naive has no parameter 'quantile'; it takes none"),
        ("", "there is no policy ''"),
        ("mine:Mine", "there is no policy 'mine'"),  # the core imports nothing
    ],
)
def test_what_cannot_be_is_refused_with_what_there_is(setting, said):
    with pytest.raises(UsageError) as caught:
        make(setting, StageView("stage"))
    assert said in str(caught.value)


class Longest(Parameters):
    longest: float = 0.1


class Mine(Fifo):
    parameters_type = Longest
    period = 0.5

    def __init__(self, view, parameters):
        super().__init__(view)
        self.longest = parameters.longest


class Orderless(Policy):
    def push(self, now, request):
        pass


class Blind(Fifo):
    def __init__(self):
        pass


class Loose(Fifo):
    parameters_type = dict


@pytest.mark.parametrize(
    ("setting", "found", "said"),
    [
        ("m:C", dict, "policy 'm:C' is no policy: derive the class from spillway.agents.core.policy.Policy"),
        ("m:C", print, "policy 'm:C' is no policy"),
        ("m:C", Orderless, "policy 'm:C' has no method 'pop': define it, or derive from"),
        ("m:C", Blind, "policy 'm:C': its __init__ must take (self, view): too many positional arguments"),
        ("m:C", Loose, "policy 'm:C': parameters_type must be a subclass of Parameters, not <class 'dict'>"),
        ("m:C:longest", Mine, "policy m:C: 'longest' is not a parameter; write it as in quantile=.2"),
        ("m:C:long=1", Mine, "policy m:C has no parameter 'long'; did you mean 'longest'?"),
        ("m:C:longest=far", Mine, "policy m:C, parameter longest=far: Input should be a valid number"),
    ],
)
def test_a_class_that_is_no_policy_is_refused_with_what_it_lacks(setting, found, said):
    with pytest.raises(UsageError) as caught:
        selected(setting, lambda _name: found)
    assert said in str(caught.value)


SPEC = """name: p
slo: 1s
stages:
  - name: a
    emulated: {alpha: 1ms, beta: 1ms}
    policy: POLICY
"""


def written(policy):
    return SPEC.replace("POLICY", policy)


@pytest.mark.parametrize("policy", ["pard", "pard:quantile=.2", "mine:Mine", "mine:Mine:longest=0.2"])
def test_a_pipeline_file_names_one_as_text(policy):
    assert parse(written(policy)).spec.stages[0].policy == policy


def test_the_pipelines_policy_is_that_of_the_stages_that_name_none():
    text = "policy: pard:window=auto\n" + written("naive") + "  - {name: b, after: a, emulated: {beta: 1ms}}\n"
    assert [stage.policy for stage in parse(text).spec.stages] == ["naive", "pard:window=auto"]


def test_a_wrong_policy_of_the_pipeline_is_said_once(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.yaml").write_text("policy: prad\n" + written("naive").replace("    policy: naive\n", ""))
    assert run(["check", "p.yaml"]) == 2
    assert "p.yaml:1:9: policy: there is no policy 'prad'; did you mean 'pard'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "period"),
    [([None], 1.0), (["naive", "pard"], 1.0), (["spillway:quantile=.5"], 0.1), (["pard", None, "spillway"], 0.1)],
)
def test_a_pipeline_synchronises_as_often_as_the_most_eager_of_its_policies_asks(settings, period):
    assert period_of(settings) == period_of(each for each in settings) == period


def test_a_mapping_is_no_setting():
    with pytest.raises(UsageError, match=r"stages\[0\].policy: must be text, not a mapping"):
        parse(written("{name: pard, quantile: .2}"))


@pytest.mark.parametrize("command", [("check",), ("whatif", "poisson:5", "--once", "--duration", "1"), ("serve",)])
def test_a_wrong_parameter_is_said_with_its_place_in_the_file(tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.yaml").write_text(written("pard:quantil=.2"))
    assert run([command[0], "p.yaml", *command[1:]]) == 2
    said = capsys.readouterr().err
    assert "p.yaml:6:13: stages[0].policy: policy pard has no parameter 'quantil'; did you mean 'quantile'?" in said


PIPELINE = (
    "name: p\nslo: 1s\n{whole}stages:\n  - {{name: a, model: 'm:A'}}\n  - {{name: b, model: 'm:B', after: a{own}}}\n"
)
DROPS = "; queries predicted to miss the SLO are dropped ('policy: naive' drops none)"


@pytest.mark.parametrize(
    ("whole", "own", "instead", "words"),
    [
        ("", "", None, f"policy: pard (the default){DROPS}"),
        ("policy: pard\n", "", None, f"policy: pard{DROPS}"),
        ("", "", "expired", f"policy: expired{DROPS}"),
        ("policy: naive\n", "", None, "policy: naive"),
        ("", ", policy: naive", None, "policies: a pard, b naive"),
        ("", ", policy: naive", "expired", f"policy: expired{DROPS}"),
    ],
)
def test_what_the_stages_run_with_is_told_in_a_line(whole, own, instead, words):
    spec = parse(PIPELINE.format(whole=whole, own=own)).spec
    assert words_for(spec, instead) == words
