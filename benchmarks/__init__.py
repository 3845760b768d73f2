"""Tasks and agents of AMAGO Bench, and the harness that runs one on the other."""
