"""T-Maze: the environment, and the tasks with their budgets and settings."""
