import math

import numpy as np
import pytest
import torch
from small_models import Categorical, LinearGaussian, binary, generator, grey
from torch.distributions import Normal, kl_divergence

from vmivae.evaluation import active_units, elbo_parts, log_likelihood
from vmivae.model import CodeDistribution


@pytest.mark.parametrize(("model", "images"), [(LinearGaussian(), grey(7)), (Categorical(), binary(7))])
def test_with_the_exact_posterior_elbo_and_log_likelihood_are_log_p(model, images):
    # Of the ELBO only the mean over codes is log p(x); log p(x, z) − log q(z|x) is log p(x) at every z.
    truth = model.log_prob(images)
    for samples in (1, 5):
        estimate = log_likelihood(model, images, samples, generator())
        torch.testing.assert_close(estimate, truth, rtol=0, atol=1e-5)
    repeats = np.repeat(images, 1000, axis=0)
    elbo = elbo_parts(model, repeats, generator()).elbo.view(7, 1000)
    z_scores = (elbo.mean(1) - truth) / (elbo.std(1) / math.sqrt(1000) + 1e-6)
    assert z_scores.abs().max() < 4
    assert z_scores.square().sum() < 25


def test_parts_are_those_of_torch_distributions_at_the_drawn_code():
    model, images = LinearGaussian(shrink=1.7), grey(5)
    parts = elbo_parts(model, images, generator(9))
    pixels = torch.from_numpy(images) / 255
    posterior = model.posterior(pixels)
    likelihood = model.likelihood(posterior.sample(generator=generator(9)))
    torch.testing.assert_close(parts.distortion, -likelihood.log_prob(pixels))
    divergence = kl_divergence(Normal(posterior.mean, posterior.stddev), Normal(0.0, 1.0))
    torch.testing.assert_close(parts.rate_per_unit, divergence)
    torch.testing.assert_close(parts.rate, divergence.sum(1))
    torch.testing.assert_close(parts.elbo, likelihood.log_prob(pixels) - divergence.sum(1))
    torch.testing.assert_close(
        parts.squared_error, (likelihood.mean - pixels).square().mean((1, 2, 3)), check_dtype=False
    )


def test_distortion_sums_over_pixels_and_channels():
    images = np.full((2, 3, 2, 2), 255, dtype=np.uint8)

    class Standard(LinearGaussian):
        def likelihood(self, codes):
            return torch.distributions.Independent(Normal(torch.zeros(len(codes), 3, 2, 2), 1.0), 3)

        def posterior(self, images):
            return CodeDistribution(torch.zeros(len(images), 2), torch.ones(len(images), 2))

    parts = elbo_parts(Standard(), images, generator())
    expected = 12 * (0.5 + 0.5 * math.log(2 * math.pi))
    torch.testing.assert_close(parts.distortion, torch.full((2,), expected, dtype=torch.float64))
    torch.testing.assert_close(parts.squared_error, torch.ones(2, dtype=torch.float64))
    torch.testing.assert_close(parts.rate, torch.zeros(2, dtype=torch.float64))


def test_importance_weighting_mends_a_poor_posterior():
    model, images = LinearGaussian(shrink=1.6), grey(200)
    truth = model.log_prob(images).mean()
    elbo = elbo_parts(model, images, generator()).elbo.mean()
    estimates = [float(log_likelihood(model, images, k, generator(k)).mean()) for k in (1, 8, 512)]
    assert elbo < truth - 0.15
    assert estimates[0] < estimates[1] - 0.05
    assert estimates[1] < truth - 0.005
    assert estimates[2] == pytest.approx(float(truth), abs=0.01)


def test_log_likelihood_in_chunks_has_the_right_mean_weight():
    # Weights of all chunks count alike, also when K is no multiple of a chunk: E[mean weight] = p(x).
    model, images = LinearGaussian(shrink=1.3), np.repeat(grey(1), 500, axis=0)
    truth = model.log_prob(images[:1]).exp()
    weights = log_likelihood(model, images, 7, generator(), decodes=3).exp()
    assert abs(weights.mean() - truth) < 4 * weights.std() / math.sqrt(500)
    assert weights.std() < 0.5 * truth


def test_log_likelihood_decodes_boundedly_many_codes_at_once():
    seen = []

    class Watched(LinearGaussian):
        def likelihood(self, codes):
            seen.append(len(codes))
            return super().likelihood(codes)

    images = grey(5)
    log_likelihood(Watched(), images, 1000, generator(), decodes=64)
    assert max(seen) == 64
    assert sum(seen) == 5 * 1000
    seen.clear()
    log_likelihood(Watched(), images, 10, generator(), decodes=32)
    assert seen == [30, 20]


def test_the_last_smaller_batch_counts(monkeypatch):
    monkeypatch.setattr("vmivae.evaluation.elbo._BATCH", 4)
    model, images = LinearGaussian(), grey(10)
    done = []
    parts = elbo_parts(model, images, generator(), lambda what, now, total, state: done.append((now, total)))
    assert done == [(4, 10), (8, 10), (10, 10)]
    torch.testing.assert_close(parts.posterior.mean, model.posterior(torch.from_numpy(images) / 255).mean)
    assert len(parts.distortion) == len(parts.rate) == len(parts.squared_error) == 10
    estimate = log_likelihood(model, images, 1, generator())
    torch.testing.assert_close(estimate, model.log_prob(images), rtol=0, atol=1e-5)


def test_images_are_scored_in_evaluation_mode_without_gradients_and_the_mode_comes_back():
    class Modal(LinearGaussian):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.BatchNorm2d(1)
            self.frozen = torch.nn.Dropout().eval()

        def posterior(self, images):
            assert not any(module.training for module in self.modules())
            return super().posterior(self.norm(images))

    model = Modal()
    before = model.norm.running_mean.clone()
    parts = elbo_parts(model, grey(3), generator())
    log_likelihood(model, grey(3), 2, generator())
    assert not parts.elbo.requires_grad
    assert model.training
    assert model.norm.training
    assert not model.frozen.training
    assert torch.equal(model.norm.running_mean, before)


def test_same_seed_same_numbers_and_the_global_random_state_is_left_alone():
    model, images = LinearGaussian(shrink=2.0), grey(6)
    state = torch.random.get_rng_state()
    first = elbo_parts(model, images, generator(1)).distortion
    assert torch.equal(first, elbo_parts(model, images, generator(1)).distortion)
    assert not torch.equal(first, elbo_parts(model, images, generator(2)).distortion)
    estimate = log_likelihood(model, images, 3, generator(1))
    assert torch.equal(estimate, log_likelihood(model, images, 3, generator(1)))
    assert torch.equal(state, torch.random.get_rng_state())


def test_active_units_by_the_variance_of_means_and_by_information():
    mean = torch.tensor([[0.0, 0.0], [0.2, 0.05], [0.4, 0.1]], dtype=torch.float64)
    certain = torch.tensor([[30.0, 0.0], [0.0, 30.0], [30.0, 0.0]], dtype=torch.float64)
    same = torch.tensor([[1.0, 0.0]] * 3, dtype=torch.float64)
    activity, active = active_units(CodeDistribution(mean, torch.ones_like(mean), [certain, same]))
    entropy = -(2 / 3) * math.log(2 / 3) - (1 / 3) * math.log(1 / 3)
    expected = torch.tensor([0.04, 0.0025, entropy, 0.0], dtype=torch.float64)
    torch.testing.assert_close(activity, expected, atol=1e-9, rtol=0)
    assert active.tolist() == [True, False, True, False]
