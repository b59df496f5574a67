"""Results mirrored to MLflow: files are the truth, a row per configuration shows them.

A stage runs inside `stage(name, params)`; `python -m vmivae.tracking` has the commands `where`, `ui`, `sync`.
"""

from vmivae.tracking.configuration import configuration_key
from vmivae.tracking.run import StageRun, stage

__all__ = ["StageRun", "configuration_key", "stage"]
