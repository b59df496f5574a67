import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from known_models import Exact, Wide, drawn, exact_evidence, orthogonal
from torch import Tensor
from torch.distributions import MultivariateNormal

from vmivae.model.reference import LinearGaussian
from vmivae.mutual_information import evidence as room
from vmivae.mutual_information.bounds import mean, sandwich
from vmivae.mutual_information.evidence import doublings, log_evidence
from vmivae.mutual_information.proposals import QProposer

MODEL = orthogonal(4, [2.0, 1.0])


def test_doublings_end_with_the_number_asked_for() -> None:
    assert doublings(1) == [1]
    assert doublings(8) == [1, 2, 4, 8]
    assert doublings(11) == [1, 2, 4, 8, 11]


def test_an_exact_q_gives_the_evidence_at_every_k() -> None:
    codes, images = drawn(MODEL, 30)
    found = log_evidence(MODEL, QProposer(MODEL.prior, Exact(MODEL)), codes, images, 11)
    exact = exact_evidence(MODEL, images).expand(5, -1)
    torch.testing.assert_close(found.low, exact, atol=1e-4, rtol=0)
    torch.testing.assert_close(found.high, exact, atol=1e-4, rtol=0)
    torch.testing.assert_close(found.effective, torch.full((30,), 11.0).double(), atol=1e-3, rtol=0)
    torch.testing.assert_close(found.largest, torch.full((30,), 1 / 11).double(), atol=1e-4, rtol=0)


def test_a_poor_q_brackets_the_evidence_from_the_right_sides_and_tightens() -> None:
    """Swapped or equal bounds would show here."""
    codes, images = drawn(MODEL, 4000)
    generator = torch.Generator().manual_seed(1)
    found = log_evidence(MODEL, QProposer(MODEL.prior, Wide(MODEL)), codes, images, 16, generator=generator)
    exact = exact_evidence(MODEL, images)
    for row in range(5):
        below, above = mean(found.low[row] - exact), mean(found.high[row] - exact)
        assert below.value < -4 * below.se
        assert above.value > 4 * above.se
    for tighter in (found.low[1:] - found.low[:-1], found.high[:-1] - found.high[1:]):
        for step in tighter:
            assert mean(step).value > -3 * mean(step).se
    assert mean(found.high[-1] - found.low[-1]).value < 0.15


def test_weights_average_to_the_evidence() -> None:
    """K weights are divided by K, over the proposals: a mean over another axis would miss by far."""
    codes, images = drawn(MODEL, 3)
    generator = torch.Generator().manual_seed(1)
    found = log_evidence(
        MODEL, QProposer(MODEL.prior, Wide(MODEL)), codes, images, 40_000, generator=generator
    )
    torch.testing.assert_close(found.low[-1], exact_evidence(MODEL, images), atol=0.05, rtol=0)


def test_one_proposal_gives_the_barber_agakov_bound() -> None:
    codes, images = drawn(MODEL, 50)
    q = Wide(MODEL)
    found = sandwich(MODEL, QProposer(MODEL.prior, q), codes, images, 1)
    pointwise = q.proposal(images, codes).log_prob(codes) - MODEL.prior.log_prob(codes)
    torch.testing.assert_close(found.lower[0].float(), pointwise, atol=1e-4, rtol=0)


@pytest.mark.parametrize("known", [("z0",), ("z1",), ("z0", "z1")])
def test_conditional_evidence_of_known_units(known: tuple[str, ...]) -> None:
    """Columns are orthogonal: given some units, x is normal around them with the other units' covariance."""
    codes, images = drawn(MODEL, 20)
    found = log_evidence(MODEL, QProposer(MODEL.prior, Exact(MODEL)), codes, images, 4, known)
    fixed = [int(unit[1]) for unit in known]
    free = [column for column in range(2) if column not in fixed]
    covariance = MODEL.weight[:, free] @ MODEL.weight[:, free].T + torch.eye(4)
    centre = codes[:, fixed] @ MODEL.weight[:, fixed].T
    exact = MultivariateNormal(centre, covariance).log_prob(images).double()
    torch.testing.assert_close(found.low[-1], exact, atol=1e-4, rtol=0)
    torch.testing.assert_close(found.high[-1], exact, atol=1e-4, rtol=0)


def test_memory_does_not_grow_with_the_proposals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "DECODE_BLOCK", 64)
    sizes: list[int] = []

    class Recording:
        latents, prior = MODEL.latents, MODEL.prior

        def likelihood(self, codes: Tensor):
            sizes.append(len(codes))
            return MODEL.likelihood(codes)

    codes, images = drawn(MODEL, 40)
    log_evidence(Recording(), QProposer(MODEL.prior, Exact(MODEL)), codes, images, 1000)
    assert max(sizes) <= 64
    # The true codes are weighed too, once each.
    assert sum(sizes) == 40 * 1000 + 40


def test_running_sum_is_the_sum_of_all_parts() -> None:
    weights = torch.randn(9, 5, generator=torch.Generator().manual_seed(0)).double() * 3
    running = room._RunningSum(5, torch.device("cpu"))
    for part in (weights[:0], weights[:1], weights[1:6], weights[6:]):
        running.add(part)
    w = weights.exp()
    torch.testing.assert_close(running.log_sum, w.sum(0).log())
    torch.testing.assert_close(running.effective, w.sum(0) ** 2 / (w**2).sum(0))
    torch.testing.assert_close(running.largest, w.amax(0) / w.sum(0))


def test_weights_beyond_the_range_of_numbers_do_not_overflow() -> None:
    model = LinearGaussian(MODEL.weight, 1e-3)
    codes, images = drawn(model, 5)
    found = log_evidence(model, QProposer(model.prior, Wide(model)), codes, images + 1e3, 8)
    assert torch.isfinite(found.low).all()
    assert math.isfinite(float(found.high.sum()))


PROPOSALS = """
import sys
import torch
from vmivae.model.reference import LinearGaussian
from vmivae.mutual_information import AggregatePosterior
from vmivae.mutual_information.adapted import AdaptedProposer, StudentFamily
from vmivae.mutual_information.evidence import log_evidence
from vmivae.mutual_information.proposals import QProposer, TiltedProposer
from vmivae.model.q_network import QNetwork

torch.set_num_threads(1)
generator = torch.Generator().manual_seed(0)
model = LinearGaussian(torch.eye(3, 2), 1.0)
codes = model.prior.sample((1,), generator)
images = model.likelihood(codes).mean
r = AggregatePosterior.of(model.posterior, torch.randn(500, 3, generator=generator))
network = QNetwork((3,), model.latents).eval()
with torch.no_grad():
    for proposer in (
        QProposer(model.prior, network),
        TiltedProposer(r, network),
        AdaptedProposer(model, network, StudentFamily(model.prior, network)),
    ):
        found = log_evidence(model, proposer, codes, images, int(sys.argv[1]), generator=generator)
        assert found.low[-1].isfinite().all()
print(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from Linux's /proc")
def test_a_million_proposals_need_no_more_memory_than_a_thousand() -> None:
    def peak(proposals: int) -> int:
        command = [sys.executable, "-c", PROPOSALS, str(proposals)]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    # Kept at once, the weights alone of a million proposals would take 16 MB for each image.
    assert peak(10**6) < peak(10**3) + 16 * 2**10  # KiB
