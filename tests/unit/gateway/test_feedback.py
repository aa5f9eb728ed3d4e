"""Truths by HTTP: a learner gets what was signed, and nothing that a client says in its place."""

from types import SimpleNamespace

import pytest

from spillway.agents.gateway.feedback import Signer
from spillway.agents.gateway.plain import Plain
from spillway.lineage.errors import WireError
from spillway.lineage.limits import DEFAULT_LIMITS
from spillway.lineage.message import PREDICTION, Outcome

SIGNER = Signer(b"a secret of the gateway")
OUTCOME = Outcome(PREDICTION, {"y": 1}, flags={"rank": {"keys": {"taste": "ada"}}})
SERVED = SimpleNamespace(name="p", limits=DEFAULT_LIMITS)


def truth(**told):
    told = {"feedback": SIGNER.text_of("p", OUTCOME), "learner": "taste", "truth": 1} | told
    return Plain(None, None, SIGNER)._truth(SERVED, told)


@pytest.mark.parametrize("inputs", [None, {}, {"weight": 2}])
def test_inputs_of_a_client_s_own_go_with_the_answer(inputs):
    sent = truth(inputs=inputs)
    assert (sent.of.outputs, sent.of.flags, sent.inputs) == (OUTCOME.outputs, OUTCOME.flags, inputs)


@pytest.mark.parametrize("name", ["outputs", "flags", "truth"])
def test_inputs_in_place_of_what_was_signed_are_refused(name):
    with pytest.raises(WireError, match=f"inputs.{name}: a learner gets what was signed with the answer"):
        truth(inputs={name: {"rank": {}}})


@pytest.mark.parametrize("inputs", [[], 0, "", False])
def test_inputs_that_are_no_object_are_refused_even_if_empty(inputs):
    with pytest.raises(WireError, match="inputs: must be an object"):
        truth(inputs=inputs)
