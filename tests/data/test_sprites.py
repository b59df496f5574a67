"""Sprites show what their factors say: recomputed from the pixels, by moments and not by the renderer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vmivae.data import load_prepared, prepare
from vmivae.data.sprites import AREA, FACTORS, FIRST, LAST, SpriteGrid, Sprites, load_sprites, render
from vmivae.errors import ParameterError

GRID = SpriteGrid()
SQUARE, ELLIPSE, HEART = range(3)


def moment(image: np.ndarray, power: int, turns: int) -> complex:
    """`mean of r^power e^{i·turns·φ}` over white pixels, about their centre; angles clockwise on screen."""
    rows, columns = np.nonzero(image)
    offsets = (columns - columns.mean()) + 1j * (rows - rows.mean())
    return complex((abs(offsets) ** power * np.exp(1j * turns * np.angle(offsets))).mean())


def measured(image: np.ndarray) -> dict[str, float]:
    """Area, centre, shape and angle of a sprite, from its pixels alone."""
    rows, columns = np.nonzero(image)
    area = len(rows)
    # An ellipse has long and short axes; a heart has a side that its tip is on; a square has neither.
    elongation = abs(moment(image, 2, 2)) / area
    skew = abs(moment(image, 3, 3)) / area**1.5
    shape = ELLIPSE if elongation > 0.06 else HEART if skew > 0.01 else SQUARE
    turns = {SQUARE: 4, ELLIPSE: 2, HEART: 3}[shape]
    return {
        "area": area,
        "x": columns.mean() + 0.5,
        "y": rows.mean() + 0.5,
        "shape": shape,
        "turns": turns,
        "phase": float(np.angle(moment(image, turns if shape != SQUARE else 4, turns))),
    }


def test_a_thousand_images_agree_with_their_factors():
    source = load_sprites(GRID)
    classes = source.train.factors
    assert classes is not None
    assert len(source.train) == 737_280
    values = GRID.values(classes)
    upright = {shape: measured(render(np.array([[shape, 1.0, 0.0, 0.5, 0.5]]))[0]) for shape in range(3)}
    chosen = np.random.default_rng(0).choice(len(classes), 1000, replace=False)
    images = source.train.select(chosen).images
    for place, index in enumerate(chosen):
        shape, scale, angle, x, y = values[index]
        found = measured(images[place])
        assert found["shape"] == shape
        assert found["area"] == pytest.approx(AREA * scale**2, rel=0.08)
        assert found["x"] == pytest.approx(FIRST + (LAST - FIRST) * x, abs=0.4)
        assert found["y"] == pytest.approx(FIRST + (LAST - FIRST) * y, abs=0.4)
        # What looks the same after a part of a turn is known only up to that part.
        off = (found["phase"] - upright[int(shape)]["phase"] - found["turns"] * angle) / found["turns"]
        part = 2 * np.pi / found["turns"]
        assert abs((off + part / 2) % part - part / 2) < 0.2, (index, off)


def test_a_heart_points_where_its_angle_says():
    """The moments above know a heart's angle up to a third of a turn; this one settles which."""
    angles = np.linspace(0, 2 * np.pi, 40)
    images = render(np.array([[HEART, 1.0, angle, 0.5, 0.5] for angle in angles]))
    phases = np.array([np.angle(moment(image, 3, 1)) for image in images])
    turned = np.exp(1j * (phases - phases[0] - angles))
    np.testing.assert_allclose(np.angle(turned), 0, atol=0.3)
    widths = (images[0] > 0).sum(axis=1)
    white = np.flatnonzero(widths)
    assert widths[white[-1]] <= 2 < widths[white[0]]  # at 0 the tip is down, the lobes are up
    assert widths[white[len(white) // 4]] > 2 * widths[white[-len(white) // 4]]


def test_factors_count_as_in_dsprites_and_the_last_changes_fastest():
    classes = GRID.classes()
    assert FACTORS == ("shape", "scale", "orientation", "position x", "position y")
    assert classes.shape == (737_280, 5)
    np.testing.assert_array_equal(classes[:2], [[0, 0, 0, 0, 0], [0, 0, 0, 0, 1]])
    np.testing.assert_array_equal(classes[32], [0, 0, 0, 1, 0])
    np.testing.assert_array_equal(classes[32 * 32 * 40 * 6], [1, 0, 0, 0, 0])
    np.testing.assert_array_equal(classes.max(axis=0), [2, 5, 39, 31, 31])
    last = GRID.values(classes[-1:])[0]
    np.testing.assert_allclose(last, [2, 1, 2 * np.pi, 1, 1])


def test_positions_move_the_picture_and_change_nothing_else():
    """Positions of the default grid are whole pixels apart: the picture is the same, pixel by pixel."""
    generator = np.random.default_rng(1)
    for _ in range(50):
        factors = generator.integers(0, [3, 6, 40, 31, 31])
        moved_x, moved_y = factors + np.eye(5, dtype=int)[3], factors + np.eye(5, dtype=int)[4]
        image, right, below = render(GRID.values(np.stack([factors, moved_x, moved_y])))
        np.testing.assert_array_equal(right, np.roll(image, 1, axis=1))
        np.testing.assert_array_equal(below, np.roll(image, 1, axis=0))


def test_shape_scale_and_orientation_change_neither_place_nor_each_other():
    classes = np.array([[s, k, o, 16, 16] for s in range(3) for k in range(6) for o in range(40)])
    found = [measured(image) for image in render(GRID.values(classes))]
    x, y = ([one[axis] for one in found] for axis in "xy")
    np.testing.assert_allclose(x, 32, atol=0.4)
    np.testing.assert_allclose(y, 32, atol=0.4)
    assert [one["shape"] for one in found] == list(classes[:, 0])
    areas = np.array([one["area"] for one in found]).reshape(3, 6, 40)
    # Shape leaves the area alone, and so does the angle, within a pixel or so of each 16 of the outline.
    expected = AREA * np.linspace(0.5, 1, 6) ** 2
    np.testing.assert_allclose(areas.mean(axis=2), np.broadcast_to(expected, (3, 6)), rtol=0.01)
    assert abs(areas / expected[:, None] - 1).max() < 0.08


def test_no_sprite_touches_the_border_and_the_first_and_the_last_angle_look_the_same():
    classes = [[s, 5, o, x, y] for s in range(3) for o in range(40) for x in (0, 31) for y in (0, 31)]
    images = render(GRID.values(np.array(classes)))
    assert set(np.unique(images)) == {0, 255}
    for edge in (images[:, 0], images[:, -1], images[:, :, 0], images[:, :, -1]):
        # A tip may end on the outermost pixel; the shape is not cut off: its area stays.
        assert (edge > 0).sum(axis=1).max() <= 4
    areas = (images > 0).sum(axis=(1, 2)).reshape(3, 40, 4)
    assert np.ptp(areas, axis=2).max() == 0
    by_angle = images.reshape(3, 40, 4, 64, 64)
    np.testing.assert_array_equal(by_angle[:, 0], by_angle[:, -1])


def test_images_drawn_together_one_by_one_and_selected_are_the_same():
    values = GRID.values(GRID.classes()[::3001])
    sprites, expected = Sprites(values), render(values)
    assert len(sprites) == len(expected) > 128
    order = np.random.default_rng(2).permutation(len(values))
    np.testing.assert_array_equal(np.stack([sprites[int(index)] for index in order]), expected[order])
    np.testing.assert_array_equal(np.stack(list(sprites.select(order))), expected[order])


def test_a_subset_is_drawn_without_repetition_by_its_seed():
    first, again, other = (SpriteGrid(count=500, seed=seed).classes() for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert len(np.unique(first, axis=0)) == 500


def test_other_grids():
    grid = SpriteGrid(shape=2, scale=1, orientation=1, position_x=4, position_y=1)
    classes = grid.classes()
    assert classes.shape == (8, 5)
    values = grid.values(classes)
    np.testing.assert_allclose(values[:, 1:3], [[1, 0]] * 8)
    np.testing.assert_allclose(values[:4, 3], [0, 1 / 3, 2 / 3, 1])
    np.testing.assert_allclose(values[:, 4], 0.5)
    with pytest.raises(ParameterError, match=r"^data\.sprites\.count: must be ≤ 8, .* got 9$"):
        load_sprites(SpriteGrid(shape=2, scale=1, orientation=1, position_x=4, position_y=1, count=9))


@pytest.mark.parametrize("size", [32, 64])
def test_prepared_sprites_carry_their_factors(size: int, tmp_path: Path):
    card = prepare(tmp_path / "out", source="sprites", sprites={"count": 400}, image_size=size)
    prepared = load_prepared(tmp_path / "out")
    assert card.factors == list(FACTORS)
    assert (len(prepared.train), len(prepared.test)) == (360, 40)
    for split in (prepared.train, prepared.test):
        assert split.factors is not None
        full = render(GRID.values(split.factors))
        if size == 64:
            np.testing.assert_array_equal(split.images[:, 0], full)
            assert card.grey_pixels == 0
        else:
            halved = full.reshape(-1, 32, 2, 32, 2).mean(axis=(2, 4))
            assert abs(split.images[:, 0] - halved).mean() < 12
    both = np.concatenate([prepared.train.factors, prepared.test.factors])
    np.testing.assert_array_equal(np.unique(both, axis=0), np.unique(SpriteGrid(count=400).classes(), axis=0))


@pytest.mark.slow
def test_the_full_set_goes_through(tmp_path: Path):
    card = prepare(tmp_path / "out", source="sprites", image_size=64)
    assert (card.train.count, card.test.count) == (663_552, 73_728)
    prepared = load_prepared(tmp_path / "out")
    chosen = np.random.default_rng(5).choice(73_728, 200, replace=False)
    assert prepared.test.factors is not None
    np.testing.assert_array_equal(
        prepared.test.images[chosen][:, 0], render(GRID.values(prepared.test.factors[chosen]))
    )
