"""The solver: two-block ADMM with one state matrix. Knows no estimator."""
