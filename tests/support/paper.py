"""Algorithms 1 to 4 of the paper, transcribed line by line with its letters, in float64.

Two corrections. The superscript minus of p- is a plus (the literal reading is not the minimiser). The constant of the
zeta-update is 1/(n^2 rho): the loss is the mean here, over points (as in the augmented Lagrangian of regression) or
over ordered pairs, where the paper's objective, a sum, asks for 1/rho and its update has 1/(n rho).
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
    """Variables of one convex function and the updates that algorithms 2, 3 and 4 share."""

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

    def omega_breg(self):
        """Regular, with column sums 2: v - beta sums to zero, and so does the solution."""
        X, n, Lam = self.X, self.n, self.Lam
        Lx = np.einsum("iab,ib->ia", Lam, X)
        diagonal = np.einsum("ia,ia->i", X, Lx)
        D = Lx @ X.T + X @ Lx.T + X @ Lam.mean(0) @ X.T - diagonal[None, :] - (Lx.mean(0) @ X.T)[None, :]
        return np.diag(2 - diagonal) - D / n

    def omega(self):
        return self.omega_breg() + 2 / (self.n**2 * self.rho) * np.eye(self.n)

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

    def slack(self, r):
        return np.maximum(-self.alpha - r, 0)

    def update(self, y_hat):
        X = self.X
        shared = (y_hat[:, None] * X).mean(0)
        a = np.einsum("iab,ib->ia", self.Lam, self.theta() + y_hat[:, None] * X + shared)
        c = np.abs(self.eta + a)
        self.L = np.array([l_update(self.gamma[:, j], c[:, j], self.lam / self.rho) for j in range(X.shape[1])])
        r = y_hat[:, None] - y_hat[None, :] - (a * X).sum(1)[:, None] + a @ X.T
        self.s = self.slack(r)
        self.u = np.maximum(self.L - self.gamma - c, 0)
        left = self.L - self.gamma - self.u
        self.p_plus = np.maximum(left + self.eta + a, 0) / 2
        self.p_minus = np.maximum(left - self.eta - a, 0) / 2
        self.alpha += self.s + r
        self.gamma += self.u + self.p_plus + self.p_minus - self.L
        self.eta += a - self.p_plus + self.p_minus
        return np.column_stack([a, y_hat - (a * X).sum(1)])


class _BregmanSet(_PieceSet):
    """What algorithm 3 adds: a hinge zeta with its slack t and multiplier tau for every ordered pair."""

    def __init__(self, X, y, rho, lam):
        super().__init__(X, rho, lam)
        self.iota = np.where(y[:, None] == y[None, :], 1.0, -1.0)
        self.zeta, self.t, self.tau = (np.zeros((self.n, self.n)) for _ in range(3))

    def margin(self):
        return self.iota * self.s - self.iota + self.t + 1

    def slack(self, r):
        """The minimiser of (s - pi2)^2 + (iota s + t - pi1)^2 over s, t >= 0; also sets t."""
        iota = self.iota
        pi1 = -self.tau + iota - 1 + self.zeta
        pi2 = -self.alpha - r
        s = np.maximum(pi2 + iota * pi1 - iota * np.maximum(pi1 - iota * pi2, 0), 0) / 2
        self.t = np.maximum(pi1 - iota * s, 0)
        return s


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


def bregman_learning(X, y, rho, lam, T):
    """Algorithm 3: pieces (n, d + 1) for centred X and labels y; s_ij is D_f(x_j, x_i), tangent at i."""
    f, n = _BregmanSet(X, y, rho, lam), len(X)
    omega_breg = f.omega_breg()
    for _ in range(T):
        f.zeta = np.maximum(-1 / (n**2 * rho) + f.tau + f.margin(), 0)
        z = np.linalg.solve(omega_breg, f.v_minus_beta())
        pieces = f.update(z)
        f.tau += f.margin() - f.zeta
    return pieces


def objective(pieces, X, y, lam, signs=(1,)):
    """Value of the functions that pieces define, with the constant refitted."""
    lifted = np.column_stack([X, np.ones(len(X))])
    fit = sum(s * (lifted @ u.T).max(1) for s, u in zip(signs, pieces, strict=True))
    error = fit - y
    return np.mean((error - error.mean()) ** 2) + lam * sum(np.abs(u[:, :-1]).max(0).sum() for u in pieces)


def bregman_objective(pieces, X, P, M, lam):
    """Value of a feasible function near the pieces, one for each of the distinct points X: the better of two repairs.

    The tangent at a point becomes the piece active there; or (epsilon/2) |x|^2 is added, with the least epsilon that
    makes every slack non-negative. The first alone does not do: where pieces tie at a point, as they do at an
    optimum, it takes any one of them, and the divergences from that point are another piece's.
    """
    values = np.column_stack([X, np.ones(len(X))]) @ pieces.T  # (n, n), one row a point
    active = values.argmax(1)
    s = values.max(1)[None, :] - values[:, active].T  # s_ij = D_f(x_j, x_i)
    retangent = _bregman_value(s, pieces[active, :-1], P, M, lam)
    s = np.diag(values)[None, :] - values.T
    paraboloid = ((X[:, None, :] - X[None, :, :]) ** 2).sum(2) / 2
    epsilon = np.max(np.maximum(-s, 0) / (paraboloid + np.eye(len(X))))
    return min(retangent, _bregman_value(s + epsilon * paraboloid, pieces[:, :-1] + epsilon * X, P, M, lam))


def _bregman_value(s, a, P, M, lam):
    return np.sum(P * s + M * np.maximum(2 - s, 0)) + np.sum(lam * np.abs(a).max(0))
