"""The networks have the sizes of the published ones."""

import pytest
import torch

from vmivae.errors import ParameterError
from vmivae.model import LatentSpec
from vmivae.model.networks import CodeHead, ToPixels, decoder, encoder_trunk, seeded_initialization

LATENTS = LatentSpec(10, (10,))


def parameters(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def convolution(before: int, after: int, bias: int) -> int:
    return before * after * 4 * 4 + bias


@pytest.mark.parametrize(
    ("image_shape", "architecture", "trunk", "mirror"),
    [
        (
            (1, 32, 32),
            "conv",
            convolution(1, 32, 32) + convolution(32, 64, 64) + convolution(64, 64, 64) + 1024 * 256 + 256,
            20 * 256 + 256 + 256 * 1024 + 1024
            + convolution(64, 32, 32) + convolution(32, 32, 32) + convolution(32, 1, 1),
        ),
        (
            (3, 64, 64),
            "conv",
            convolution(3, 32, 32) + convolution(32, 32, 32) + convolution(32, 64, 64)
            + convolution(64, 64, 64) + 1024 * 256 + 256,
            20 * 256 + 256 + 256 * 1024 + 1024
            + convolution(64, 64, 64) + convolution(64, 32, 32)
            + convolution(32, 32, 32) + convolution(32, 3, 3),
        ),
        (
            (1, 28, 28),
            "mlp",
            784 * 512 + 512 + 512 * 256 + 256,
            20 * 256 + 256 + 256 * 512 + 512 + 512 * 784 + 784,
        ),
    ],
)  # fmt: skip
def test_parameter_counts(
    image_shape: tuple[int, int, int], architecture: str, trunk: int, mirror: int
) -> None:
    encoder, features = encoder_trunk(image_shape, architecture)
    assert features == 256
    assert parameters(encoder) == trunk
    assert parameters(decoder(LATENTS, image_shape, architecture)) == mirror
    # Mean, log-variance and one head per categorical unit, each a linear map with bias.
    assert parameters(CodeHead(256, LATENTS)) == 3 * (256 * 10 + 10)


def test_total_of_the_default_model_is_687_359() -> None:
    encoder, _ = encoder_trunk((1, 32, 32), "conv")
    assert (
        sum(map(parameters, [encoder, CodeHead(256, LATENTS), decoder(LATENTS, (1, 32, 32), "conv")]))
        == 687_359
    )


@pytest.mark.parametrize(
    ("image_shape", "architecture"),
    [((1, 32, 32), "conv"), ((3, 64, 64), "conv"), ((3, 8, 12), "mlp")],
)
def test_shapes(image_shape: tuple[int, int, int], architecture: str) -> None:
    encoder, features = encoder_trunk(image_shape, architecture)
    codes = CodeHead(features, LATENTS)(encoder(torch.rand(5, *image_shape)))
    assert codes.batch_shape == (5,)
    assert codes.latents == LATENTS
    assert decoder(LATENTS, image_shape, architecture)(codes.sample()).shape == (5, *image_shape)


@pytest.mark.parametrize(("batch", "outputs", "side"), [(1, 1, 16), (7, 3, 5), (64, 1, 32)])
def test_last_layer_without_gradient_is_the_same_function(batch: int, outputs: int, side: int) -> None:
    layer = ToPixels(32, outputs).double()
    features = torch.randn(batch, 32, side, side, dtype=torch.float64)
    expected = layer(features)
    assert expected.requires_grad
    with torch.no_grad():
        torch.testing.assert_close(layer(features), expected)
        torch.testing.assert_close(
            layer(features.contiguous(memory_format=torch.channels_last)), expected.detach()
        )
    with torch.inference_mode():
        torch.testing.assert_close(layer(features), expected)


def test_heads_are_linear_maps_of_their_own() -> None:
    head = CodeHead(4, LatentSpec(1, (2,)))
    with torch.no_grad():
        head.linear.weight.zero_()
        head.linear.bias.copy_(torch.tensor([3.0, 2.0, 0.0, 5.0]))
    codes = head(torch.zeros(1, 4))
    torch.testing.assert_close(codes.mean, torch.tensor([[3.0]]))
    torch.testing.assert_close(codes.stddev.log(), torch.tensor([[1.0]]))
    torch.testing.assert_close(codes.probs[0], torch.tensor([[0.0, 5.0]]).softmax(-1))


def test_initial_weights_depend_on_the_seed_alone() -> None:
    before = torch.get_rng_state()
    made = []
    for seed in (1, 1, 2):
        with seeded_initialization(seed):
            made.append(torch.nn.Linear(3, 3).weight)
        torch.rand(1)
    assert torch.equal(made[0], made[1])
    assert not torch.equal(made[0], made[2])
    torch.set_rng_state(before)
    with seeded_initialization(1):
        torch.nn.Linear(3, 3)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    ("image_shape", "architecture"),
    [((1, 32, 32), "conv"), ((3, 64, 64), "conv"), ((1, 28, 28), "mlp")],
)
def test_activations_keep_their_size_so_that_images_start_apart(
    image_shape: tuple[int, int, int], architecture: str
) -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(200, *image_shape, generator=generator)
    codes = torch.randn(200, 20, generator=generator)
    with seeded_initialization(0), torch.no_grad():
        encoder, _ = encoder_trunk(image_shape, architecture)
        features = encoder(images)
        pixels = decoder(LATENTS, image_shape, architecture)(codes)
    assert 0.3 < features.square().mean().sqrt() < 3
    assert 0.3 < pixels.std() < 3
    # What differs between images is no small part of what they share.
    assert features.std(0).mean() > 0.3 * features.mean(0).square().mean().sqrt()


@pytest.mark.parametrize(
    ("image_shape", "architecture", "message"),
    [
        ((1, 28, 28), "conv", "conv takes 32×32 or 64×64 pixels .* got 28×28"),
        ((1, 32, 64), "conv", "got 32×64"),
        ((1, 32, 32), "resnet", "model.architecture: must be one of conv, mlp, got resnet"),
        ((0, 8, 8), "mlp", "at least one pixel"),
    ],
)
def test_refused(image_shape: tuple[int, int, int], architecture: str, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        encoder_trunk(image_shape, architecture)
    with pytest.raises(ParameterError, match=message):
        decoder(LATENTS, image_shape, architecture)
