"""From tables to statistics, verdicts and figures. Reads `results`; imports neither torch nor the benchmarks."""
