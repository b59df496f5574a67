import numpy as np

from vmivae.data import DataCard, Prepared, Split, SplitCard


def prepared(binarize: str) -> Prepared:
    # More images than are drawn at once, every grey value as often as any other.
    images = np.broadcast_to(np.arange(256, dtype=np.uint8).reshape(1, 1, 16, 16), (1500, 1, 16, 16))
    split = Split(images, np.arange(1500), None)
    part = SplitCard(1500, [0.5], None)
    card = DataCard("npz", [1, 16, 16], binarize, 254 / 256, part, part, None, None, "")
    return Prepared(split, split, card)


def test_models_are_measured_on_one_fixed_draw_of_each_split():
    first, again = prepared("dynamic").measured(), prepared("dynamic").measured()
    assert first.train.images.dtype == np.uint8
    assert set(np.unique(first.train.images)) == {0, 255}
    np.testing.assert_array_equal(first.train.images, again.train.images)
    np.testing.assert_array_equal(first.test.images, again.test.images)
    assert (first.train.images != first.test.images).mean() > 0.2
    np.testing.assert_array_equal(first.train.labels, np.arange(1500))

    grey = np.arange(256) / 255
    shares = (first.train.images == 255).mean(0).ravel()
    assert np.abs(shares - grey).max() < 5 * 0.5 / np.sqrt(1500)
    assert shares[0] == 0
    assert shares[255] == 1
    # Each block of images has draws of its own.
    assert (first.train.images[:400] != first.train.images[1024:1424]).mean() > 0.2


def test_other_sets_are_measured_as_they_are():
    for binarize in ("none", "threshold"):
        data = prepared(binarize)
        assert data.measured() is data
