"""Measurements: what each method costs in time, memory and multiply-adds, here and against other libraries.

Machines are noisy, so everything that is compared is measured inside one run, in turns, and reported as medians.
Methods come from the registry of mixers: a new one appears in every table and plot by itself.
"""
