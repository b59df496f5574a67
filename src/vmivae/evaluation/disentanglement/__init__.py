"""How well the units of a code keep the known factors of variation apart.

One file per score, `scores` for all of them together; docs/disentanglement.md says what each means.
"""

from vmivae.evaluation.disentanglement.betavae import betavae_score
from vmivae.evaluation.disentanglement.dci import Dci, dci
from vmivae.evaluation.disentanglement.factorvae import factorvae_score
from vmivae.evaluation.disentanglement.irs import irs
from vmivae.evaluation.disentanglement.mig import mutual_information_gap
from vmivae.evaluation.disentanglement.modularity import explicitness, modularity
from vmivae.evaluation.disentanglement.representation import Representation
from vmivae.evaluation.disentanglement.sap import sap
from vmivae.evaluation.disentanglement.scores import SCORES, disentanglement_scores

__all__ = [
    "SCORES",
    "Dci",
    "Representation",
    "betavae_score",
    "dci",
    "disentanglement_scores",
    "explicitness",
    "factorvae_score",
    "irs",
    "modularity",
    "mutual_information_gap",
    "sap",
]
