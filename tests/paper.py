"""Algorithms 1, 2 and 4 of the paper, transcribed line by line with its letters, in float64.

One correction: the superscript minus of p- is a plus (the literal reading is not the minimiser).
The loss is the mean, as in the augmented Lagrangian.
"""

import numpy as np


def l_update(gamma, c, level):
    """Algorithm 1, one feature."""
    knot = np.sort(np.concatenate([gamma + c, gamma - c]))[::-1]
    f, slope = level, 0.0
    for j in range(1, len(knot)):
        slope += 0.5
        f += slope * (knot[j] - knot[j - 1])
        if f <= 0:
            return max(knot[j] - f / slope, 0.0)
    return max(knot[-1] - f / len(gamma), 0.0)


class _PieceSet:
    """Variables of one convex function and the updates that algorithms 2 and 4 share."""

    def __init__(self, X, rho, lam):
        n, d = X.shape
        self.X, self.rho, self.lam = X, rho, lam
        self.n = n
        self.s, self.alpha = np.zeros((n, n)), np.zeros((n, n))
        self.L = np.zeros(d)
        self.p_plus, self.p_minus, self.u = np.zeros((n, d)), np.zeros((n, d)), np.zeros((n, d))
        self.eta, self.gamma = np.zeros((n, d)), np.zeros((n, d))
        outer = X[:, :, None] * X[:, None, :]
        self.Lam = np.linalg.inv(outer + np.eye(d) / n + outer.mean(0))

    def omega(self):
        X, n, Lam = self.X, self.n, self.Lam
        Lx = np.einsum("iab,ib->ia", Lam, X)
        diagonal = np.einsum("ia,ia->i", X, Lx)
        D = Lx @ X.T + X @ Lx.T + X @ Lam.mean(0) @ X.T - diagonal[None, :] - (Lx.mean(0) @ X.T)[None, :]
        return np.diag(2 / (n**2 * self.rho) + 2 - diagonal) - D / n

    def theta(self):
        t = self.alpha + self.s
        pull = t.sum(1)[:, None] * self.X - t @ self.X
        return (self.p_plus - self.p_minus - self.eta + pull) / self.n

    def v_minus_beta(self):
        Lt = np.einsum("iab,ib->ia", self.Lam, self.theta())
        own = np.einsum("ia,ia->i", self.X, Lt)
        t = self.alpha + self.s
        beta = (t.sum(1) - t.sum(0)) / self.n
        return own + self.X @ Lt.mean(0) - own.mean() - beta

    def update(self, y_hat):
        X = self.X
        shared = (y_hat[:, None] * X).mean(0)
        a = np.einsum("iab,ib->ia", self.Lam, self.theta() + y_hat[:, None] * X + shared)
        c = np.abs(self.eta + a)
        self.L = np.array([l_update(self.gamma[:, j], c[:, j], self.lam / self.rho) for j in range(X.shape[1])])
        r = y_hat[:, None] - y_hat[None, :] - (a * X).sum(1)[:, None] + a @ X.T
        self.s = np.maximum(-self.alpha - r, 0)
        self.u = np.maximum(self.L - self.gamma - c, 0)
        left = self.L - self.gamma - self.u
        self.p_plus = np.maximum(left + self.eta + a, 0) / 2
        self.p_minus = np.maximum(left - self.eta - a, 0) / 2
        self.alpha += self.s + r
        self.gamma += self.u + self.p_plus + self.p_minus - self.L
        self.eta += a - self.p_plus + self.p_minus
        return np.column_stack([a, y_hat - (a * X).sum(1)])


def convex_regression(X, y, rho, lam, T, *, average=False):
    """Algorithm 2: pieces (n, d + 1) for centred X and y, of the last iterate or of the average."""
    f, n = _PieceSet(X, rho, lam), len(X)
    omega = f.omega()
    total = np.zeros((n, X.shape[1] + 1))
    for _ in range(T):
        y_hat = np.linalg.solve(omega, 2 * y / (n**2 * rho) + f.v_minus_beta())
        pieces = f.update(y_hat)
        total += pieces
    return total / T if average else pieces


def dc_regression(X, y, rho, lam, T):
    """Algorithm 4: pieces (2, n, d + 1) for centred X and y."""
    sets, n = [_PieceSet(X, rho, lam), _PieceSet(X, rho, lam)], len(X)
    omega, shift = sets[0].omega(), 2 / (n**2 * rho) * np.eye(n)
    for _ in range(T):
        first, second = (f.v_minus_beta() for f in sets)
        minus = np.linalg.solve(omega + shift, 4 * y / (n**2 * rho) + first - second)
        plus = np.linalg.solve(omega - shift, first + second)
        pieces = np.stack(
            [f.update(y_hat) for f, y_hat in zip(sets, ((plus + minus) / 2, (plus - minus) / 2), strict=True)]
        )
    return pieces


def objective(pieces, X, y, lam, signs=(1,)):
    """Value of the functions that pieces define, with the constant refitted."""
    lifted = np.column_stack([X, np.ones(len(X))])
    fit = sum(s * (lifted @ u.T).max(1) for s, u in zip(signs, pieces, strict=True))
    error = fit - y
    return np.mean((error - error.mean()) ** 2) + lam * sum(np.abs(u[:, :-1]).max(0).sum() for u in pieces)
