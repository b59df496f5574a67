"""The VAE: its distributions, and that its files bring the same model back."""

import json
import math
from pathlib import Path

import pytest
import torch

import vmivae
from vmivae.errors import DataError, ParameterError
from vmivae.model import VAE, LatentSpec, LatentVariableModel, load_vae, save_vae
from vmivae.model.vae import SCALE_FLOOR, SCALE_START

LATENTS = LatentSpec(2, (3,))
LIKELIHOODS = ["bernoulli", "continuous_bernoulli", "gaussian"]


def small(likelihood: str = "bernoulli", **arguments: object) -> VAE:
    return VAE((3, 4, 5), LATENTS, architecture="mlp", likelihood=likelihood, **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_likelihood_is_one_event_per_image(likelihood: str) -> None:
    vae = small(likelihood)
    codes = vae.posterior(torch.rand(6, 3, 4, 5)).sample()
    pixels = vae.likelihood(codes)
    assert isinstance(vae, LatentVariableModel)
    assert pixels.batch_shape == (6,)
    assert pixels.event_shape == (3, 4, 5)
    assert pixels.sample().shape == (6, 3, 4, 5)
    assert pixels.log_prob(torch.rand(6, 3, 4, 5)).shape == (6,)


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_log_likelihood_is_summed_over_pixels_and_every_channel(likelihood: str) -> None:
    vae = small(likelihood, scale=0.5)
    with torch.no_grad():
        vae.decoder[-2].weight.zero_()
        vae.decoder[-2].bias.zero_()
    images = torch.zeros(2, 3, 4, 5)
    # All logits 0, all pixels 0: log ½; density 1; N(0; ½, ½²). Times 3·4·5, whatever the batch.
    one_pixel = {
        "bernoulli": -math.log(2),
        "continuous_bernoulli": 0.0,
        "gaussian": -0.5 - math.log(0.5) - 0.5 * math.log(2 * math.pi),
    }
    log_prob = vae.likelihood(torch.zeros(2, 5)).log_prob(images)
    torch.testing.assert_close(log_prob, torch.full((2,), 60 * one_pixel[likelihood]), atol=1e-4, rtol=1e-6)


def test_grey_pixels_give_the_cross_entropy_under_a_bernoulli() -> None:
    vae, images = small(), torch.rand(2, 3, 4, 5)
    pixels = vae.likelihood(torch.zeros(2, 5))
    mean = pixels.mean
    expected = (images * mean.log() + (1 - images) * (1 - mean).log()).sum((1, 2, 3))
    torch.testing.assert_close(pixels.log_prob(images), expected, atol=1e-4, rtol=1e-5)


def test_categorical_codes_and_real_codes_alone() -> None:
    for latents in (LatentSpec(0, (3, 4)), LatentSpec(2, ())):
        vae = VAE((1, 2, 2), latents, architecture="mlp")
        codes = vae.posterior(torch.rand(2, 1, 2, 2))
        assert codes.latents == latents
        assert vae.prior.latents == latents
        assert vae.likelihood(codes.rsample(0.67)).log_prob(torch.rand(2, 1, 2, 2)).shape == (2,)


def test_learned_scale_starts_wide_and_never_reaches_zero() -> None:
    vae = small("gaussian")
    assert vae.scale.item() == pytest.approx(SCALE_START, abs=2 * SCALE_FLOOR)
    with torch.no_grad():
        vae.log_scale.fill_(-1e4)
    assert vae.scale.item() == pytest.approx(SCALE_FLOOR)
    assert vae.likelihood(torch.zeros(1, 5)).log_prob(torch.zeros(1, 3, 4, 5)).isfinite().all()


def test_fixed_scale_is_no_parameter() -> None:
    names = {likelihood: set(small(likelihood).state_dict()) for likelihood in LIKELIHOODS}
    assert names["gaussian"] - names["bernoulli"] == {"log_scale"}
    assert (
        set(small("gaussian", scale=0.1).state_dict()) == names["bernoulli"] == names["continuous_bernoulli"]
    )


def test_initial_weights_depend_on_the_seed_alone() -> None:
    before = torch.get_rng_state()
    first, same, other = small(seed=1), small(seed=1), small(seed=2)
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(first.state_dict()[name], same.state_dict()[name]) for name in first.state_dict())
    assert not torch.equal(first.head.linear.weight, other.head.linear.weight)


def test_no_layer_differs_between_training_and_measuring() -> None:
    vae = VAE((1, 32, 32), LATENTS)
    images = torch.rand(4, 1, 32, 32)
    alone = torch.cat([vae.train().posterior(image[None]).expectation for image in images])
    torch.testing.assert_close(vae.eval().posterior(images).expectation, alone)


@pytest.mark.parametrize(
    "arguments", [{}, {"likelihood": "gaussian"}, {"likelihood": "gaussian", "scale": 0.1}]
)
def test_saved_and_loaded_models_are_the_same(arguments: dict[str, object], tmp_path: Path) -> None:
    vae = VAE((3, 32, 32), LATENTS, architecture="conv", seed=5, **arguments)  # type: ignore[arg-type]
    save_vae(vae, tmp_path / "vae")
    again = vmivae.load_vae(tmp_path / "vae")
    assert not again.training
    assert again.description() == vae.description()
    assert list(again.state_dict()) == list(vae.state_dict())
    assert all(torch.equal(again.state_dict()[name], value) for name, value in vae.state_dict().items())
    save_vae(again, tmp_path / "again")
    for name in ("model.json", "model.safetensors"):
        assert (tmp_path / "vae" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


def test_model_json_holds_all_that_rebuilds_the_model(tmp_path: Path) -> None:
    save_vae(small("gaussian", scale=0.25), tmp_path)
    assert json.loads((tmp_path / "model.json").read_text()) == {
        "format": 1,
        "image_shape": [3, 4, 5],
        "latents": {"continuous": 2, "discrete": [3]},
        "architecture": "mlp",
        "likelihood": "gaussian",
        "scale": 0.25,
    }


def damaged(folder: Path, damage: str) -> None:
    description, weights = folder / "model.json", folder / "model.safetensors"
    content = json.loads(description.read_text())
    match damage:
        case "no folder":
            description.unlink(), weights.unlink(), folder.rmdir()
        case "no weights":
            weights.unlink()
        case "not JSON":
            description.write_text("{")
        case "a list":
            description.write_text("[]")
        case "no latents":
            description.write_text(json.dumps({**content, "latents": {}}))
        case "unknown likelihood":
            description.write_text(json.dumps({**content, "likelihood": "poisson"}))
        case "other format":
            description.write_text(json.dumps({**content, "format": 2}))
        case "truncated weights":
            weights.write_bytes(weights.read_bytes()[:-10])
        case "weights of another model":
            description.write_text(json.dumps({**content, "image_shape": [1, 4, 5]}))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("no folder", r"model.json: cannot be read \(No such file or directory\)"),
        ("no weights", r"model.safetensors: cannot be read \(No such file or directory\)"),
        ("not JSON", "model.json: is not JSON"),
        ("a list", "model.json: does not describe a model"),
        ("no latents", "model.json: does not describe a model"),
        ("unknown likelihood", "got poisson"),
        ("other format", "format must be 1, got 2"),
        ("truncated weights", "model.safetensors: is damaged"),
        ("weights of another model", "does not hold the weights of the model"),
    ],
)
def test_damaged_files_are_named_in_one_line(damage: str, message: str, tmp_path: Path) -> None:
    save_vae(small(), tmp_path / "vae")
    damaged(tmp_path / "vae", damage)
    with pytest.raises(DataError, match=message) as caught:
        load_vae(tmp_path / "vae")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"likelihood": "poisson"}, "model.likelihood: must be one of bernoulli, .*, got poisson"),
        ({"likelihood": "gaussian", "scale": 0.0}, "model.scale: must be learned or a number > 0, got 0.0"),
        ({"likelihood": "gaussian", "scale": "wide"}, "model.scale: .* got wide"),
    ],
)
def test_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        small(**arguments)  # type: ignore[arg-type]


def test_images_of_another_shape_are_refused() -> None:
    with pytest.raises(DataError, match=r"images: must be \(B, 3, 4, 5\) .*, got \(2, 1, 4, 5\)"):
        small().posterior(torch.zeros(2, 1, 4, 5))


def test_importing_the_package_loads_no_torch() -> None:
    import subprocess
    import sys

    code = "import sys, vmivae; sys.exit('torch' in sys.modules or 'pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = vmivae.nothing
