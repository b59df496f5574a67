import math
from pathlib import Path

import pytest
import torch
from known_models import Table, orthogonal

from vmivae.errors import DataError, NonFiniteError, ParameterError
from vmivae.model.latents import CodeDistribution, LatentSpec
from vmivae.model.q_network import QNetwork
from vmivae.mutual_information.fit import (
    QNetworkConfig,
    fit_q_network,
    load_q_network,
    save_q_network,
)


def test_fit_finds_the_exact_posterior_of_a_linear_gaussian_model() -> None:
    model = orthogonal(6, [2.0, 0.5])
    network, history = fit_q_network(model, config=QNetworkConfig(steps=400, batch_size=256))
    images = model.likelihood(model.prior.sample((500,), torch.Generator().manual_seed(1))).mean
    fitted, exact = network(images), model.posterior(images)
    assert float(exact.kl(fitted).mean()) < 0.02
    # E log Q = −H(z|x) at best: ½ log det of the precision, less D/2 log 2πe.
    best = 0.5 * float(torch.logdet(model.precision)) - math.log(2 * math.pi * math.e)
    assert history[-1].step == 400
    assert history[-1].validation_log_q == pytest.approx(best, abs=0.1)


def test_codes_and_images_of_any_scale_are_fitted() -> None:
    """Real units in thousands and images in millionths, as another's model may have them."""
    model = orthogonal(6, [2e-9, 0.5e-9], scale=1e-6)

    class Wide:
        latents = LatentSpec(2)

        def sample(self, shape, generator=None):
            return 5e3 + 1e3 * torch.randn(*shape, 2, generator=generator)

    _, history = fit_q_network(model, Wide(), QNetworkConfig(steps=300))
    exact = 0.5 * math.log((1 + 2**2) * (1 + 0.5**2)) - 2 * math.log(1e3) - math.log(2 * math.pi * math.e)
    assert history[-1].validation_log_q == pytest.approx(exact, abs=0.1)


def test_the_same_seed_gives_the_same_bytes_and_another_seed_does_not() -> None:
    model = orthogonal(4, [1.0])
    config = QNetworkConfig(steps=5, batch_size=32)
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = fit_q_network(model, config=config, seed=3)[0].state_dict()
    assert torch.equal(state, torch.get_rng_state())
    torch.manual_seed(2)
    again = fit_q_network(model, config=config, seed=3)[0].state_dict()
    other = fit_q_network(model, config=config, seed=4)[0].state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["head.linear.weight"], other["head.linear.weight"])


def test_the_best_q_is_kept_not_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """A negative best must register too: the running best starts at −∞."""
    from vmivae.mutual_information import fit as room

    scores = iter([-5.0, -3.0, -4.0])
    weights = []

    def scored(network, codes, images):
        weights.append(network.head.linear.weight.detach().clone())
        return next(scores)

    monkeypatch.setattr(room, "validate", scored)
    network, history = fit_q_network(orthogonal(4, [1.0]), config=QNetworkConfig(steps=75, batch_size=16))
    assert [row.step for row in history] == [25, 50, 75]
    assert torch.equal(network.head.linear.weight, weights[1])
    assert not network.training
    assert not any(parameter.requires_grad for parameter in network.parameters())


def test_no_pair_is_seen_twice_and_validation_pairs_are_not_fitted_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = Table(torch.eye(2), 1.0)
    seen: list[torch.Tensor] = []
    forward = QNetwork.features

    def recording(self, images):
        seen.append(images.detach().clone())
        return forward(self, images)

    monkeypatch.setattr(QNetwork, "features", recording)
    fit_q_network(model, config=QNetworkConfig(steps=40, batch_size=128))
    fitted = torch.cat([batch for batch in seen if len(batch) == 128])
    validation = next(batch for batch in seen if len(batch) != 128)
    assert len(fitted) == 40 * 128
    assert len(fitted.unique(dim=0)) == len(fitted)
    assert not (validation[:, None] == fitted[None]).all(-1).any()


def test_a_fit_that_turns_non_finite_stops_with_the_step() -> None:
    model = Table(torch.tensor([[0.0, 1.0], [1.0, math.nan]]), 1.0)
    with pytest.raises(NonFiniteError, match=r"log Q\(z\|x̃\) of c0 is not finite at step 1"):
        fit_q_network(model, config=QNetworkConfig(steps=5, batch_size=16))


def test_the_unit_that_turned_non_finite_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    units = QNetwork.units

    def wrong(self: QNetwork, features: torch.Tensor) -> CodeDistribution:
        codes = units(self, features)
        mean = codes.mean * torch.tensor([1.0, math.inf, 1.0])
        return CodeDistribution(mean, codes.stddev, codes.log_probs)

    monkeypatch.setattr(QNetwork, "units", wrong)
    with pytest.raises(NonFiniteError, match=r"log Q\(z\|x̃\) of z1 is not finite at step 1"):
        fit_q_network(Table(torch.eye(2), 1.0, 3), config=QNetworkConfig(steps=5, batch_size=16))


def test_saved_q_is_read_back(tmp_path: Path) -> None:
    network, _ = fit_q_network(orthogonal(4, [1.0]), config=QNetworkConfig(steps=2, batch_size=16))
    save_q_network(network, tmp_path / "q")
    images = torch.randn(3, 4)
    torch.testing.assert_close(load_q_network(tmp_path / "q")(images).mean, network(images).mean)
    (tmp_path / "q" / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(DataError, match="q"):
        load_q_network(tmp_path / "q")
    with pytest.raises(DataError, match="absent"):
        load_q_network(tmp_path / "absent")


@pytest.mark.parametrize("values", [{"family": "uniform"}, {"steps": 0}, {"batch_size": 0}])
def test_settings_that_are_not_accepted_name_the_key(values: dict) -> None:
    with pytest.raises(ParameterError, match=f"mutual_information.q_network.{next(iter(values))}: must be"):
        QNetworkConfig.from_dict(values)
