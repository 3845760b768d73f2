"""The training core of AMAGO: torch, numpy and gymnasium, and no knowledge of any benchmark."""
