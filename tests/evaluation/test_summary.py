import json
import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from sklearn.metrics import normalized_mutual_info_score
from small_models import Categorical, LinearGaussian, binary, grey

from vmivae.errors import DataError, NonFiniteError
from vmivae.evaluation import evaluate
from vmivae.evaluation.summary import UNIT_COLUMNS


@dataclass
class Split:
    images: np.ndarray
    labels: np.ndarray | None = None
    factors: np.ndarray | None = None


def test_numbers_of_a_linear_gaussian_model():
    model, train, test = LinearGaussian(), Split(grey(40, 1)), Split(grey(30, 2))
    metrics = evaluate(model, train, test, 4, seed=0, device="cpu").metrics
    truth = model.log_prob(test.images)
    assert metrics["images"] == 30
    assert metrics["train"]["images"] == 40
    assert metrics["log_likelihood_iwae"] == pytest.approx(float(truth.mean()), abs=1e-5)
    assert metrics["log_likelihood_iwae_se"] == pytest.approx(
        float(np.std(truth.numpy(), ddof=1)) / math.sqrt(30), rel=1e-5
    )
    assert metrics["elbo"] == pytest.approx(-metrics["distortion"] - metrics["rate"])
    assert metrics["train"]["elbo"] != metrics["elbo"]
    assert metrics["rate"] == pytest.approx(sum(unit["rate"] for unit in metrics["units"].values()))
    assert metrics["rate_continuous"] == metrics["rate"]
    assert metrics["rate_discrete"] == 0
    assert metrics["distortion_kind"] == "negative log-likelihood"
    assert metrics["importance_samples"] == 4
    assert metrics["likelihood_in_support"] is True
    assert metrics["active_units"] == 2
    assert "label_information" not in metrics["units"]["z0"]
    json.dumps(metrics, allow_nan=False)


def test_grey_images_under_a_bernoulli_get_a_cross_entropy_and_no_log_likelihood():
    class Lenient(Categorical):
        def likelihood(self, codes):
            exact = super().likelihood(codes).base_dist
            return torch.distributions.Independent(
                torch.distributions.Bernoulli(exact.probs, validate_args=False), 3, validate_args=False
            )

    metrics = evaluate(Lenient(), Split(grey(9)), Split(grey(9)), 4, 0, device="cpu").metrics
    assert metrics["likelihood_in_support"] is False
    for scores in (metrics, metrics["train"]):
        assert scores["distortion_kind"] == "cross-entropy"
        assert scores["negative_cross_entropy_minus_rate"] == pytest.approx(
            -scores["distortion"] - scores["rate"]
        )
        assert not any("elbo" in name or "likelihood_iwae" in name for name in scores)
    assert "importance_samples" not in metrics


def test_one_grey_image_in_either_split_is_enough_for_a_cross_entropy():
    model, mixed = Categorical(), binary(6)
    mixed[3, 0, 0, 0] = 128
    model.likelihood = lambda codes: torch.distributions.Independent(
        torch.distributions.Bernoulli((codes @ model.probs).view(-1, 1, 2, 3), validate_args=False),
        3,
        validate_args=False,
    )
    for train, test, expected in ((binary(6), binary(6), True), (mixed, binary(6), False)):
        found = evaluate(model, Split(train), Split(test), 2, 0, device="cpu").metrics[
            "likelihood_in_support"
        ]
        assert found is expected


def test_the_majority_map_is_fitted_on_the_training_split_and_scored_on_the_test_split():
    model = Categorical(classes=3)
    train, test = Split(binary(60, 1)), Split(binary(50, 2))
    train_classes, test_classes = (
        model.posterior(torch.from_numpy(split.images) / 255).probs[0].argmax(-1).numpy()
        for split in (train, test)
    )
    # In the training split classes 0, 1, 2 are called 2, 0, 0; in the test split 2, 0, 1.
    train.labels = np.array([2, 0, 0])[train_classes]
    test.labels = np.array([2, 0, 1])[test_classes]
    unit = evaluate(model, train, test, 2, 0, device="cpu").metrics["units"]["c0"]
    accuracy = float((test_classes != 2).mean())
    assert 0 < accuracy < 1
    assert unit["majority_map"] == [2, 0, 0]
    assert unit["accuracy"] == pytest.approx(accuracy)
    assert unit["accuracy_se"] == pytest.approx(math.sqrt(accuracy * (1 - accuracy) / 49))
    assert unit["accuracy_train"] == 1
    assert unit["nmi"] == pytest.approx(1)
    assert unit["nmi"] == pytest.approx(normalized_mutual_info_score(test.labels, test_classes))
    assert unit["label_information"] > 5 * unit["label_information_shuffled"] > 0


def test_rows_and_codes_cover_every_unit_and_image():
    train, test = Split(grey(5), np.arange(5) % 2), Split(grey(4), np.arange(4) % 2)
    result = evaluate(LinearGaussian(), train, test, 2, 0, device="cpu")
    assert [row["unit"] for row in result.units] == ["z0", "z1"]
    assert all(tuple(row) == ("unit", *UNIT_COLUMNS) for row in result.units)
    assert all(row["accuracy"] is None for row in result.units)
    assert {name: len(codes.mean) for name, codes in result.codes.items()} == {"train": 5, "test": 4}


def test_same_seed_same_numbers():
    splits = Split(grey(8)), Split(grey(6))
    model = LinearGaussian(shrink=2.0)
    first = evaluate(model, *splits, 3, 5, device="cpu").metrics
    assert first == evaluate(model, *splits, 3, 5, device="cpu").metrics
    assert first != evaluate(model, *splits, 3, 6, device="cpu").metrics


def test_a_split_of_one_image_is_refused():
    with pytest.raises(DataError, match=r"^test split: a standard error needs at least 2 images, got 1$"):
        evaluate(LinearGaussian(), Split(grey(4)), Split(grey(1)), 2, 0, device="cpu")


def test_a_score_that_is_not_finite_is_named():
    model = LinearGaussian()
    model.bias = model.bias * math.nan
    with pytest.raises(NonFiniteError, match=r"^distortion: not finite for 4 of 4 images$"):
        evaluate(model, Split(grey(4)), Split(grey(4)), 2, 0, device="cpu")


def test_known_factors_get_a_table_and_scores():
    model = Categorical(classes=3)
    train, test = Split(binary(400, 1)), Split(binary(300, 2))
    for split in (train, test):
        classes = model.posterior(torch.from_numpy(split.images) / 255).probs[0].argmax(-1).numpy()
        noise = np.random.default_rng(0).integers(0, 4, len(classes))
        # Any whole numbers may stand for the values, and a factor may never vary.
        split.factors = np.stack([np.array([7, -3, 100])[classes], np.full(len(classes), 5), noise], axis=1)
    metrics = evaluate(
        model, train, test, 2, 0, device="cpu", factors=["class", "constant", "noise"], repeats=2
    ).metrics
    found = metrics["disentanglement"]
    assert (found["factors"], found["values"], found["images"]) == (["class", "noise"], [3, 4], 300)
    about_class, about_noise = found["information"]["c0"]
    assert 0.1 < about_class < found["entropies"][0]
    assert about_class > 10 * found["information_shuffled"]["c0"][0]
    assert about_noise < 0.1
    assert found["scores"]["dci_completeness"]["mean"] == 1  # there is one unit
    # Half of what there is to explain: all of the class, nothing of the noise.
    assert found["scores"]["dci_informativeness"]["mean"] == pytest.approx(0.5, abs=0.1)
    assert 0 < found["scores"]["mig"]["std"] < 0.1
    assert found["active_units"] == ["c0"]
    json.dumps(metrics, allow_nan=False)


def test_without_known_factors_there_are_no_scores():
    assert "disentanglement" not in evaluate(LinearGaussian(), Split(grey(5)), Split(grey(4)), 2, 0).metrics
