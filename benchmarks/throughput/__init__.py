"""How fast the core is: cases timed by pytest-benchmark, printed by `amago-bench bench`."""
