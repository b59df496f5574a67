from __future__ import annotations

import io
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from PIL import Image
from torch import Tensor
from torch.distributions import Independent, Normal

from vmivae.model import CodeDistribution, LatentSpec
from vmivae.reporting import charts, images, style
from vmivae.reporting.results import Results

Small = Callable[..., Results]


class Painter:
    """A model whose image is its code: pixel j is 0.5 + 0.1 times column j."""

    def __init__(self, latents: LatentSpec) -> None:
        self.latents = latents

    @property
    def prior(self) -> CodeDistribution:
        return CodeDistribution.prior(self.latents)

    def likelihood(self, codes: Tensor) -> Independent:
        return Independent(Normal((0.5 + 0.1 * codes)[:, None, None, :], 1e-3), 3)

    def posterior(self, pictures: Tensor) -> CodeDistribution:
        count, kinds = len(pictures), self.latents.discrete
        logits = [pictures[:, 0, 0, :size] for size in kinds]
        return CodeDistribution(
            torch.zeros(count, self.latents.continuous), torch.ones(count, self.latents.continuous), logits
        )


def painted(results: Results) -> Results:
    return replace(results, model=Painter(results.latents))  # type: ignore[arg-type]


def codes_of(pixels: Any) -> Any:
    return (np.asarray(pixels)[..., 0, 0, :] - 0.5) / 0.1


def test_the_surrogate_is_drawn_only_where_information_was_raised(small: Small) -> None:
    results = small(2, (3,))
    assert charts.surrogate(results) is None
    curve = np.linspace(0.0, 1.0, len(results.training["epoch"]))
    raised = replace(results, training=results.training | {"information_discrete": curve})
    drawn = charts.surrogate(raised)
    assert drawn is not None
    assert "no bound" in drawn.caption


def test_a_real_unit_goes_from_low_to_high_and_the_others_rest(small: Small) -> None:
    results = painted(small(2, (3,)))
    decoder = images.Decoder(results, seed=0)
    unit = next(unit for unit in results.units if unit.name == "z1")
    codes = codes_of(decoder.traversal(unit))
    assert codes[:, 1] == pytest.approx(np.linspace(-2.5, 2.5, 11), abs=1e-5)
    assert codes[:, 0] == pytest.approx(np.zeros(11), abs=1e-5)
    favourite = results.usage("c0").argmax()
    assert codes[:, 2:] == pytest.approx(np.tile(np.eye(3)[favourite], (11, 1)), abs=1e-5)


def test_a_categorical_unit_shows_exact_categories_in_order(small: Small) -> None:
    results = painted(small(2, (3,)))
    codes = codes_of(images.Decoder(results, seed=0).traversal(results.categorical_units[0]))
    assert codes[:, 2:] == pytest.approx(np.eye(3), abs=1e-5)
    assert codes[:, :2] == pytest.approx(np.zeros((3, 2)), abs=1e-5)


def test_a_reconstruction_starts_from_exact_categories(small: Small) -> None:
    results = painted(small(2, (3,)))
    pictures = torch.tensor([0.1, 0.7, 0.2, 0.0]).expand(1, 1, 1, 4)
    assert images.Decoder(results, seed=0).encode(pictures).tolist() == [[0.0, 0.0, 0.0, 1.0, 0.0]]


def test_draws_are_samples_and_not_means(small: Small) -> None:
    results = small()
    draws = images.Decoder(results, seed=0).samples(results.model.prior.sample((5,)))
    assert set(np.unique(draws)) == {0.0, 1.0}


def test_large_images_are_averaged_down_and_small_ones_kept() -> None:
    checks = (torch.arange(400)[:, None] + torch.arange(400)[None]) % 2
    small = images.thumbnails(checks.float().expand(1, 3, 400, 400))
    assert small.shape == (1, 3, 100, 100)
    assert small == pytest.approx(np.full_like(small, 0.5))
    assert images.thumbnails(torch.full((1, 1, 64, 64), 1.5)).max() == 1.0


def test_tiles_stand_where_their_row_and_column_say() -> None:
    rows = np.zeros((2, 3, 1, 4, 4), dtype=np.float32)
    rows[1, 2] = 0.5
    with style.figures():
        axes: Axes = style.canvas(1).add_subplot()
        images._show(axes, rows, gap=0)
    shown = np.asarray(axes.get_images()[0].get_array())
    assert shown.shape == (8, 12, 3)
    assert (shown[4:, 8:] == 0.5).all()
    assert shown[:4].max() == shown[:, :8].max() == 0


def test_colour_channels_stay_apart() -> None:
    rows = np.zeros((1, 1, 3, 4, 4), dtype=np.float32)
    rows[0, 0, 2] = 1.0
    with style.figures():
        axes: Axes = style.canvas(1).add_subplot()
        images._show(axes, rows, gap=0)
    assert np.asarray(axes.get_images()[0].get_array())[0, 0].tolist() == [0, 0, 1]


def test_a_hundred_units_get_pages_of_twenty_rows(small: Small, coarse: None) -> None:
    results = small(100, ())
    with style.figures():
        pages = images.traversals(results, images.Decoder(results, seed=0))
        bars = charts.information_per_unit(results)
    assert [page.name for page in pages] == [f"traversals_{number}" for number in range(1, 6)]
    assert "The 40 of 100 units with the most information." in bars.caption
    width, height = bars.size
    assert height < 2.2 * width


def test_exactly_two_real_units_have_a_plane(small: Small, coarse: None) -> None:
    results = small(2, ())
    with style.figures():
        assert images.manifold(results, images.Decoder(results, seed=0)) is not None


def test_three_real_units_have_no_plane(small: Small) -> None:
    results = small(3, ())
    assert images.manifold(results, images.Decoder(results, seed=0)) is None
    assert images.codes_map(results) is None


def test_categories_are_ordered_by_the_class_they_mostly_get() -> None:
    table = np.array([[0, 9, 0, 1], [8, 0, 0, 1], [0, 1, 0, 7]], dtype=float)
    assert charts._by_class(table) == [1, 0, 3, 2]


def test_names_at_line_ends_keep_their_order_and_their_distance() -> None:
    with style.figures():
        axes: Axes = style.canvas(2).add_subplot()
        axes.set_ylim(0, 10)
        ends = [(value, f"z{place}", "black") for place, value in enumerate((0.0, 0.1, 0.2, 5.0))]
        charts._label_ends(axes, 1.0, ends)
    placed = {text.get_text(): text.xyann[1] for text in axes.texts}  # type: ignore[attr-defined]
    assert list(placed) == ["z0", "z1", "z2", "z3"]
    assert np.diff(list(placed.values())).min() >= 0.62 - 1e-9
    assert placed["z3"] == pytest.approx(5.0)


def test_figures_leave_the_user_s_settings_and_pyplot_alone(small: Small, coarse: None) -> None:
    results = small()
    with style.figures():
        plain = charts.training(results).png
    with matplotlib.rc_context({"font.size": 30, "axes.grid": True}):
        with style.figures():
            assert charts.training(results).png == plain
        assert matplotlib.rcParams["font.size"] == 30
    assert "matplotlib.pyplot" not in sys.modules or sys.modules["matplotlib.pyplot"].get_fignums() == []


def test_a_png_holds_nothing_but_pixels(small: Small, coarse: None) -> None:
    with style.figures():
        picture = charts.training(small())
    opened = Image.open(io.BytesIO(picture.png))
    opened.load()
    assert opened.info == {}
    assert picture.size == opened.size


def test_a_class_called_like_a_formula_or_a_page_is_drawn(small: Small, coarse: None) -> None:
    results = small(1, (3,), classes=["$\\frac{", "two\nlines", "a" * 200])
    with style.figures():
        assert charts.usage(results, results.categorical_units[0]).png
    assert style.plain("two\nlines\x00") == "two lines"
    assert style.plain("a" * 200) == "a" * 17 + "…"
