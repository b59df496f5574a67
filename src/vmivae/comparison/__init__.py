"""Comparisons of methods over seeds: a grid of DVC experiments, and one page of what came of them."""
