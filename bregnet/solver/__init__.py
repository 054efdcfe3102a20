"""The solver: points, problems, two-block ADMM and its certificate. Knows no estimator."""
