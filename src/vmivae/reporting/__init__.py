"""The report: one self-contained HTML page, and its figures as PNG, from the files of the other stages."""

from vmivae.reporting.page import write_report

__all__ = ["write_report"]
