"""Between agent and environment: horizon, seeds, counting, checks, slots, worker processes, evaluation."""
