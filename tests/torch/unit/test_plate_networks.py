"""What the networks of the plates example are shown: patches of a scene, and each of them in many looks."""

import numpy as np
import pytest
import torch

from examples.plates.demonstration import SECONDS, due_times
from examples.plates.networks import PATCH, Readers, all_looks, crop, judge, looks, view
from examples.plates.scenes import DIGIT, HEIGHT, WIDTH
from examples.stateful.failover import silences

MARGIN = (PATCH - DIGIT) // 2


@pytest.fixture
def scene():
    return torch.arange(HEIGHT * WIDTH, dtype=torch.float32).reshape(HEIGHT, WIDTH)


def test_a_patch_lies_around_its_centre(scene):
    patch = crop(scene, torch.tensor([[20.2, 60.4]]))[0]
    assert patch.shape == (PATCH, PATCH)
    assert torch.equal(patch, scene[8:32, 48:72])


def test_beyond_its_edge_a_scene_goes_on_as_at_the_edge(scene):
    first, last = crop(scene, torch.tensor([[9.0, 9.0], [HEIGHT - 9.0, WIDTH - 9.0]]))
    assert torch.equal(first[3:, 3:], scene[: PATCH - 3, : PATCH - 3])
    assert torch.equal(first[0, 3:], scene[0, : PATCH - 3])
    assert float(last[-1, -1]) == float(scene[-1, -1])


def test_no_digits_no_patches(scene):
    assert crop(scene, torch.empty(0, 2)).shape == (0, PATCH, PATCH)


def test_a_straight_look_is_the_middle_of_the_patch():
    patch = torch.rand(1, PATCH, PATCH)
    seen = view(patch, looks(torch.zeros(1), torch.zeros(1, 2)))
    assert torch.allclose(seen[0, 0], patch[0, MARGIN:-MARGIN, MARGIN:-MARGIN], atol=1e-5)


def test_a_shifted_look_is_as_many_pixels_off():
    patch = torch.rand(1, PATCH, PATCH)
    seen = view(patch, looks(torch.zeros(1), torch.tensor([[1.0, -2.0]])))
    assert torch.allclose(seen[0, 0], patch[0, MARGIN + 1 : DIGIT + MARGIN + 1, MARGIN - 2 : -MARGIN - 2], atol=1e-5)


def test_a_quarter_turn_turns_the_middle():
    patch = torch.rand(1, PATCH, PATCH)
    seen = view(patch, looks(torch.tensor([90.0]), torch.zeros(1, 2)))
    assert torch.allclose(seen[0, 0], torch.rot90(patch[0, MARGIN:-MARGIN, MARGIN:-MARGIN], 1), atol=1e-4)


def test_a_judgement_is_the_mean_over_all_looks_and_readers():
    torch.manual_seed(0)
    readers, grid = Readers().eval(), all_looks()
    patches = torch.rand(3, PATCH, PATCH)
    with torch.inference_mode():
        found = judge(readers, patches, grid)
        alone = [
            torch.softmax(reader(view(patches[1:2], look.unsqueeze(0))), 1) for reader in readers.each for look in grid
        ]
    assert found.shape == (3, 10)
    assert torch.allclose(found[1:2], torch.stack(alone).mean(0), atol=1e-5)
    assert torch.allclose(found.sum(1), torch.ones(3), atol=1e-5)


def test_a_scene_without_digits_is_judged_too():
    with torch.inference_mode():
        assert judge(Readers().eval(), torch.empty(0, PATCH, PATCH), all_looks()).shape == (0, 10)


# The demo's load: relative to what the machine was measured to answer, and the same for every policy.

CALM, FIRST_BURST, SECOND_BURST = (0, 8), (8, 12), (18, 23)  # seconds of traces/bursty.csv


def rate(due, span):
    first, last = span
    return np.count_nonzero((due >= first) & (due < last)) / (last - first)


@pytest.mark.parametrize("answers", [10.0, 45.0, 400.0])
def test_bursts_overload_the_machine_and_what_lies_between_does_not(answers):
    due = due_times(answers)
    assert due.max() < SECONDS
    assert rate(due, CALM) == pytest.approx(0.5 * answers, rel=0.15)
    assert rate(due, FIRST_BURST) == pytest.approx(1.6 * answers, rel=0.15)
    assert rate(due, SECOND_BURST) == pytest.approx(2.0 * answers, rel=0.15)


def test_every_policy_gets_the_same_arrivals():
    assert np.array_equal(due_times(30.0), due_times(30.0))


# What the demo that kills a primary takes for the kill's silence.


def test_a_silence_at_another_time_is_not_the_kills() -> None:
    finished = np.array([0.0, 0.6, 0.7, 0.8, 0.9, 1.2, 1.3, 1.4])
    gap, other = silences(finished, killed=1.0)
    assert round(gap, 3) == 0.3
    assert round(other, 3) == 0.6
