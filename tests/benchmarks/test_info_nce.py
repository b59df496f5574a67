import math

import pytest
import torch
from info_nce import info_nce, log_prob_of_pairs
from torch.distributions import Bernoulli, Independent, Normal

from vmivae.model import VAE, CodeDistribution, LatentSpec
from vmivae.model.reference import LinearGaussian


class Table:
    """A K-way code that names one of K images without noise worth mentioning."""

    latents = LatentSpec(discrete=(4,))
    prior = CodeDistribution.prior(latents)

    def likelihood(self, codes):
        return Independent(Normal(10 * codes, 0.1, validate_args=False), 1, validate_args=False)


class TestInfoNCE:
    @pytest.mark.parametrize("batch", [2, 5, 600])
    def test_a_noiseless_code_meets_its_closed_form(self, batch: int) -> None:
        """Of B codes `1 + Binomial(B − 1, 1/K)` are the image's own: `log B − E[log that many]`."""
        share = 1 / 4
        exact = math.log(batch) - sum(
            math.exp(
                math.lgamma(batch)
                - math.lgamma(n + 1)
                - math.lgamma(batch - n)
                + n * math.log(share)
                + (batch - 1 - n) * math.log(1 - share)
            )
            * math.log(1 + n)
            for n in range(batch)
        )
        runs = [info_nce(Table(), Table.prior, images=16, batch=batch, seed=seed) for seed in range(100)]
        lower = torch.tensor([run.lower for run in runs])
        assert float(lower.mean()) == pytest.approx(exact, abs=4 * float(lower.std()) / 10 + 1e-6)

    def test_no_information_gives_nothing_from_either_side(self) -> None:
        bounds = info_nce(
            LinearGaussian(torch.zeros(3, 2), 1.0), CodeDistribution.prior(LatentSpec(2)), batch=9
        )
        assert bounds.lower == pytest.approx(0, abs=1e-6)
        assert bounds.upper == pytest.approx(0, abs=1e-6)

    def test_it_never_exceeds_the_logarithm_of_the_batch(self) -> None:
        model = LinearGaussian(1000 * torch.eye(4), 1.0)
        bounds = info_nce(model, model.prior, images=64, batch=8)
        assert float(model.information()) > 27
        assert bounds.lower == pytest.approx(math.log(8), abs=1e-9)
        assert bounds.lower_se == pytest.approx(0, abs=1e-9)

    def test_a_large_batch_brackets_what_is_known(self) -> None:
        model = LinearGaussian(torch.tensor([[1.0], [0.5]]), 1.0)
        bounds = info_nce(model, model.prior, images=2000, batch=4096)
        truth = float(model.information())
        assert bounds.lower <= bounds.upper
        assert bounds.lower == pytest.approx(truth, abs=0.01 + 3 * bounds.lower_se)
        assert bounds.upper == pytest.approx(truth, abs=0.01 + 3 * bounds.upper_se)
        small = info_nce(model, model.prior, images=2000, batch=2)
        assert small.lower < bounds.lower - 0.1

    def test_time_ends_it_and_the_batch_says_where(self) -> None:
        model = LinearGaussian(torch.ones(2, 1), 1.0)
        bounds = info_nce(model, model.prior, images=4, seconds=0.0)
        assert bounds.batch == 257
        assert bounds.lower <= math.log(257)

    def test_the_global_random_state_is_left_alone(self) -> None:
        before = torch.get_rng_state()
        info_nce(Table(), Table.prior, images=2, batch=3)
        assert torch.equal(torch.get_rng_state(), before)


class TestLogProbOfPairs:
    def test_the_matrix_product_of_bernoulli_pixels_is_their_log_likelihood(self) -> None:
        vae = VAE((1, 4, 4), LatentSpec(2, (3,)), architecture="mlp")
        with torch.no_grad():
            likelihood = vae.likelihood(vae.prior.sample((5,)))
            images = likelihood.sample()[:3]
            pairs = log_prob_of_pairs(likelihood, images)
            each = [
                Independent(Bernoulli(logits=likelihood.base_dist.logits[j]), 3).log_prob(images)
                for j in range(5)
            ]
        torch.testing.assert_close(pairs, torch.stack(each, -1))

    def test_other_likelihoods_are_asked(self) -> None:
        likelihood = LinearGaussian(torch.eye(2), 1.0).likelihood(torch.tensor([[0.0, 0.0], [3.0, 0.0]]))
        pairs = log_prob_of_pairs(likelihood, torch.zeros(1, 2))
        assert float(pairs[0, 0] - pairs[0, 1]) == pytest.approx(4.5)
