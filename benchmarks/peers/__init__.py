"""Independent solvers of the same programs, for comparison only."""
