"""The information that training adds: closed forms, what it rewards, and what it leaves as it was."""

import itertools
import math

import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from vmivae.errors import NonFiniteError, ParameterError
from vmivae.model import VAE, CodeDistribution, LatentSpec
from vmivae.mutual_information import Estimate, EstimateConfig, ImportanceConfig, QNetworkConfig, estimate
from vmivae.training import (
    Beta,
    Capacity,
    History,
    Information,
    Objective,
    Ramp,
    TrainConfig,
    make_information,
    train,
)
from vmivae.training.information import Surrogate, log_mixture_per_unit

LATENTS = LatentSpec(2, (3,))
DIGITS = LatentSpec(4, (10,))
SHAPE = (1, 8, 8)
CPU = torch.device("cpu")
NORMAL = 0.5 * math.log(2 * math.pi * math.e)


def some_images(count: int = 40) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (count, *SHAPE), generator=generator, dtype=torch.uint8)


def trained(
    information: Information | None,
    objective: Objective = Beta(2.0),  # noqa: B008 - frozen
    latents: LatentSpec = LATENTS,
    seed: int = 0,
    **changes: object,
) -> tuple[VAE, History]:
    fixed = {"epochs": 2, "batch_size": 16, "device": "cpu", "precision": "fp32", "compile": False}
    model = VAE(SHAPE, latents, architecture="mlp")
    config = TrainConfig(**(fixed | changes))  # type: ignore[arg-type]
    return model, train(model, some_images(), objective, config, seed, information=information)


def fit_q(
    surrogate: Surrogate, model: VAE, posterior: CodeDistribution, steps: int = 150
) -> tuple[float, Tensor]:
    """Train Q alone; the mean surrogate of the last thirty batches, and the entropy in it."""
    model.requires_grad_(False)
    optimizer = torch.optim.Adam(surrogate.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(5)
    values = []
    for _ in range(120):
        codes = posterior.rsample(0.67, generator=generator).detach()
        value = surrogate(model, posterior, codes, surrogate.noise(len(codes)))
        optimizer.zero_grad()
        (-value.sum()).backward()
        optimizer.step()
        values.append(value.sum().item())
    return sum(values[-30:]) / 30, -log_mixture_per_unit(posterior, codes).mean(0)


def test_a_unit_is_chosen_by_name_or_by_its_weight() -> None:
    assert make_information(LATENTS) is None
    assert make_information(LATENTS, discrete=2.0) == Information(0.0, 2.0, ("c0",))
    assert make_information(LATENTS, 1.0, 2.0) == Information(1.0, 2.0, ("z0", "z1", "c0"))
    chosen = make_information(LATENTS, 1.0, 2.0, ["c0", "z1"], "posterior")
    assert chosen == Information(1.0, 2.0, ("z1", "c0"), "posterior")
    surrogate = Surrogate(LATENTS, SHAPE, chosen, 0, CPU)
    assert surrogate.columns == [1, 2, 3, 4]
    assert surrogate.q_network.latents == LatentSpec(1, (3,))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"continuous": 1.0, "units": ["c0"]}, "information.continuous: must be 0 without a chosen unit"),
        ({"continuous": 1.0, "units": ["z0", "c0"]}, "information.discrete: must be > 0 for c0, got 0.0"),
        ({"continuous": 1.0, "units": ["z0", "z7"]}, "information.units: must be of z0, z1, c0, got z7"),
        ({"latents": LatentSpec(0, (3,)), "continuous": 1.0}, "information.continuous: must be 0 without"),
    ],
)
def test_refused(arguments: dict, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        make_information(**({"latents": LATENTS} | arguments))


def test_entropy_of_a_mixture_by_hand() -> None:
    # A unit with far components, a code one standard deviation from each; and one whose components are one.
    mean = torch.tensor([[0.0, 5.0], [1e3, 5.0], [-1e3, 5.0]])
    components = CodeDistribution(mean, torch.tensor([2.0, 0.01]).expand(3, 2), [100 * torch.eye(3)])
    codes = torch.cat([mean + components.stddev, torch.eye(3)], dim=-1)
    found = (-log_mixture_per_unit(components, codes).mean(0)).tolist()
    assert found[0] == pytest.approx(math.log(3) + NORMAL + math.log(2.0), abs=1e-5)
    assert found[1] == pytest.approx(NORMAL + math.log(0.01), abs=1e-4)
    assert found[2] == pytest.approx(math.log(3), abs=1e-5)
    # Two classes, evenly, whatever the image: log 2, and the class that is never drawn costs nothing.
    half = CodeDistribution(mean, components.stddev, [torch.tensor([0.5, 0.5, 1e-30]).log().expand(3, 3)])
    log_mixture = log_mixture_per_unit(half, torch.cat([mean, torch.eye(3)[[0, 1, 1]]], dim=-1))
    assert log_mixture[:, 2].tolist() == pytest.approx([-math.log(2)] * 3, abs=1e-5)


def test_shrinking_costs_the_entropy_what_it_gains_in_log_q() -> None:
    """All codes times s: a Q that shrinks along gains −log s a unit, and the entropy loses as much."""
    scale = torch.tensor(0.5, requires_grad=True)
    generator = torch.Generator().manual_seed(0)
    mean, noise = torch.randn(2, 64, 3, generator=generator)
    components = CodeDistribution(scale * mean, scale * torch.full((64, 3), 0.3))
    codes = components.mean + components.stddev * noise
    (slope,) = torch.autograd.grad(-log_mixture_per_unit(components, codes).mean(0).sum(), scale)
    assert slope.item() == pytest.approx(3 / 0.5, rel=1e-4)


def test_codes_that_shrink_and_know_nothing_gain_nothing() -> None:
    """Every image has the code N(1, 0.01²), and the decoder ignores it: log Q is high, information zero."""
    latents = LatentSpec(2)
    model = VAE(SHAPE, latents, architecture="mlp")
    model.decoder = nn.Sequential(nn.Linear(2, 64), nn.Unflatten(1, SHAPE))
    nn.init.zeros_(model.decoder[0].weight)
    posterior = CodeDistribution(torch.ones(64, 2), torch.full((64, 2), 0.01))
    chosen = make_information(latents, continuous=1.0, codes="posterior")
    surrogate = Surrogate(latents, SHAPE, chosen, 0, CPU)
    surrogate.q_network.code_mean.fill_(1.0)
    surrogate.q_network.code_stddev.fill_(0.02)
    value, entropy = fit_q(surrogate, model, posterior)
    log_q = value - entropy.sum().item()
    assert log_q > 2 * 3.0
    assert -0.5 < value < 0.05


@pytest.mark.parametrize("codes", ["prior", "posterior"])
def test_a_code_that_can_be_read_gains_its_entropy(codes: str) -> None:
    """Three classes drawn as three far images: log 3, whether drawn from the prior or one per image."""
    latents = LatentSpec(0, (3,))
    model = VAE(SHAPE, latents, architecture="mlp")
    pattern = torch.eye(3).repeat_interleave(21, 1)
    image = nn.Linear(3, 64)
    with torch.no_grad():
        image.weight[:63] = 16 * pattern.T - 8
        image.weight[63] = image.bias[:] = 0.0
    model.decoder = nn.Sequential(image, nn.Unflatten(1, SHAPE))
    posterior = CodeDistribution(torch.zeros(63, 0), torch.ones(63, 0), [100 * torch.eye(3).repeat(21, 1)])
    surrogate = Surrogate(latents, SHAPE, make_information(latents, discrete=1.0, codes=codes), 0, CPU)
    value, _ = fit_q(surrogate, model, posterior)
    assert value == pytest.approx(math.log(3), abs=0.02)


def test_the_gradient_of_categorical_codes_has_no_bias() -> None:
    """Over all draws it averages to that of the sum over classes, `Σ_k π_k(x) (log Q_k(x̃_k) − log π̄_k)`.

    A relaxed or straight-through gradient does not: it favours whatever class was drawn.
    """
    latents = LatentSpec(0, (3,))
    model = VAE((1, 1, 2), latents, architecture="mlp", likelihood="gaussian", scale=1e-4)
    chosen = make_information(latents, discrete=1.0, codes="posterior")
    surrogate = Surrogate(latents, model.image_shape, chosen, 0, CPU)
    with torch.no_grad():
        surrogate.q_network.head.linear.weight.mul_(200)
        images = model.likelihood(torch.eye(3)).mean
        log_q = surrogate.q_network(images).log_probs[0].diagonal()
    logits = torch.tensor([[2.0, 0.0, -1.0], [0.0, 1.0, 0.5]], requires_grad=True)
    posterior = CodeDistribution(torch.zeros(2, 0), torch.ones(2, 0), [logits])
    pi = posterior.probs[0]
    (expected,) = torch.autograd.grad((pi * (log_q - pi.mean(0).log())).sum() / 2, logits, retain_graph=True)
    assert expected.abs().max() > 0.05

    average = torch.zeros_like(logits)
    for first, second in itertools.product(range(3), repeat=2):
        codes = torch.eye(3)[[first, second]]
        value = surrogate(model, posterior, codes, surrogate.noise(2)).sum()
        (slope,) = torch.autograd.grad(value, logits, retain_graph=True)
        average += (pi[0, first] * pi[1, second]).detach() * slope
    torch.testing.assert_close(average, expected, atol=2e-3, rtol=0)


def test_who_gets_a_gradient() -> None:
    """The decoder and Q always; the encoder only where its own codes are decoded."""
    for codes in ("prior", "posterior"):
        model = VAE(SHAPE, LATENTS, architecture="mlp")
        surrogate = Surrogate(LATENTS, SHAPE, make_information(LATENTS, 1.0, 1.0, codes=codes), 0, CPU)
        posterior = model.posterior(some_images(16).float() / 255)
        relaxed = posterior.rsample(0.67, generator=torch.Generator().manual_seed(0))
        surrogate(model, posterior, relaxed, surrogate.noise(16)).sum().backward()
        reached = [name for name, weights in model.named_parameters() if weights.grad is not None]
        assert any(name.startswith("decoder") for name in reached)
        assert any(name.startswith(("trunk", "head")) for name in reached) == (codes == "posterior")
        assert all(weights.grad is not None for weights in surrogate.parameters())


def test_rows_and_the_loss() -> None:
    _, history = trained(make_information(LATENTS, 0.5, 3.0))
    for row in history.rows:
        added = 0.5 * row["information_continuous"] + 3.0 * row["information_discrete"]
        assert row["loss"] == pytest.approx(row["distortion"] + 2 * row["rate"] - added, rel=1e-5)
        # At the start Q knows nothing: about the entropy of a Q too wide below zero, never above the most.
        assert row["information_discrete"] < math.log(3)
    assert "information_continuous" in history.summary()


@pytest.mark.parametrize("latents", [LatentSpec(2), LatentSpec(0, (3, 2)), LatentSpec(3, (2,))])
@pytest.mark.parametrize("codes", ["prior", "posterior"])
def test_any_mix_of_units(latents: LatentSpec, codes: str) -> None:
    chosen = make_information(
        latents, 1.0 if latents.continuous else 0.0, 1.0 if latents.discrete else 0.0, codes=codes
    )
    objective = Capacity(
        (5.0, 5.0),
        Ramp(0.0, 1.0, 3) if latents.continuous else None,
        Ramp(0.0, 0.5, 3) if latents.discrete else None,
    )
    _, history = trained(chosen, objective, latents)
    columns = [name for name in history.rows[-1] if name.startswith("information_")]
    assert columns == [f"information_{kind}" for kind in chosen.weights]


def test_without_a_weight_nothing_changes() -> None:
    """Not the weights, a column, or a random stream: a weight too small to matter gives the same numbers."""
    (plain, history), (absent, same) = trained(None), trained(make_information(LATENTS, 0.0, 0.0))
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), absent.parameters(), strict=True))
    assert history.rows == same.rows
    _, tiny = trained(make_information(LATENTS, 1e-20, 1e-20))
    for row, other in zip(history.rows, tiny.rows, strict=True):
        shown = {name: value for name, value in row.items() if value is not None}
        assert {name: other[name] for name in shown} == pytest.approx(shown, rel=1e-6)


def test_repeats_are_the_same_to_the_bit_and_the_global_state_is_kept() -> None:
    chosen = make_information(LATENTS, 1.0, 1.0, codes="posterior")
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first, history = trained(chosen)
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(2)
    second, again = trained(chosen)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert history.rows == again.rows
    assert set(first.state_dict()) == set(VAE(SHAPE, LATENTS, architecture="mlp").state_dict())


def test_a_surrogate_that_is_not_finite_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def poisoned(self: Surrogate, *arguments: object) -> Tensor:
        return torch.tensor([math.nan])

    monkeypatch.setattr(Surrogate, "forward", poisoned)
    with pytest.raises(NonFiniteError, match="at step 1: information_discrete is not finite"):
        trained(make_information(LATENTS, discrete=1.0))


@pytest.mark.slow
def test_compiled_training_is_the_same_up_to_rounding() -> None:
    chosen = make_information(LATENTS, 1.0, 1.0, codes="posterior")
    _, eager = trained(chosen, epochs=3)
    _, compiled = trained(chosen, epochs=3, compile=True)
    assert compiled.rows[-1]["loss"] == pytest.approx(eager.rows[-1]["loss"], rel=1e-3)


def on_digits(information: Information | None, units: str = "categorical") -> Estimate:
    """The information that codes of a VAE under β = 4 have of 8×8 digits, after a short training."""
    images = torch.from_numpy((load_digits().images * 255 / 16).astype("uint8"))[:, None]
    model = VAE(SHAPE, DIGITS, architecture="mlp")
    train(model, images, Beta(4.0), TrainConfig(epochs=20, device="cpu"), 0, information=information)
    importance = ImportanceConfig(images=64, samples=256, units=units)
    config = EstimateConfig(q_network=QNetworkConfig(steps=300), samples=4000, importance=importance)
    return estimate(model, images, config, device="cpu")


@pytest.mark.slow
def test_a_categorical_unit_that_collapsed_is_cured() -> None:
    """Both sides are the evidence: a low lower bound alone proves no collapse."""
    plain = on_digits(None).per_unit["c0"]
    raised = on_digits(make_information(DIGITS, discrete=10.0)).per_unit["c0"]
    assert plain["upper"] + 2 * plain["upper_se"] < 0.3
    assert raised["lower"] - 2 * raised["se"] > 1.2


@pytest.mark.slow
def test_a_chosen_unit_rises_against_the_others() -> None:
    per_unit = on_digits(make_information(DIGITS, continuous=10.0, units=["z0"]), units="all").per_unit
    others = [per_unit[unit] for unit in DIGITS.continuous_units if unit != "z0"]
    highest = max(other["upper"] + 2 * other["upper_se"] for other in others)
    assert per_unit["z0"]["lower"] - 2 * per_unit["z0"]["se"] > highest + 0.3
