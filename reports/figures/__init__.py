"""Figures: each a function of data and Axes. Matplotlib is imported in here and nowhere else."""
