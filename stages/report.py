"""Write reports/report.html and reports/figures from what the other stages wrote."""

from pathlib import Path

from vmivae import load_params, stage, tracking
from vmivae.params import NO_PART_IN_RESULTS
from vmivae.reporting import write_report


def main() -> None:
    """Write reports/report.html and reports/figures from what the other stages wrote."""
    params = load_params()
    with tracking.stage("report", params), stage.ProgressReporter() as progress:
        shown = {key: value for key, value in params.flat().items() if not key.startswith(NO_PART_IN_RESULTS)}
        write_report(Path(), shown, tracking.configuration_key(), params.seed, progress)


if __name__ == "__main__":
    stage.run(main)
