"""What a trained VAE is worth: the ELBO and its parts, a log-likelihood, and how its codes meet the labels.

One file per score: `elbo`, `labels` (with `mixtures`), `factors`, and one in `disentanglement` for each of
its scores. `codes` is what is exported; `summary` puts all together.
"""

from vmivae.evaluation.codes import write_codes
from vmivae.evaluation.elbo import ElboParts, EncodingModel, active_units, elbo_parts, log_likelihood
from vmivae.evaluation.factors import factor_entropies, factor_information
from vmivae.evaluation.labels import (
    categorical_information,
    label_information,
    majority_map,
    real_information,
)
from vmivae.evaluation.summary import Evaluation, evaluate

__all__ = [
    "ElboParts",
    "EncodingModel",
    "Evaluation",
    "active_units",
    "categorical_information",
    "elbo_parts",
    "evaluate",
    "factor_entropies",
    "factor_information",
    "label_information",
    "log_likelihood",
    "majority_map",
    "real_information",
    "write_codes",
]
