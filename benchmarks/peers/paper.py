"""The paper's algorithms 2, 3 and 4 as printed, in float64 torch, with every n x n variable it keeps.

The loss is the mean, over points or over ordered pairs; rho and lambda are for that loss. Set-up inverts the paper's
Omega once, as the authors do. The one loop of algorithm 1 is vectorized, or it would dominate.
"""

from __future__ import annotations

import torch
from torch import Tensor


def l_update(gamma: Tensor, c: Tensor, level: float) -> Tensor:
    """Algorithm 1 for all features: the root of a decreasing piecewise linear function of L, by one sort."""
    n = len(gamma)
    knots = torch.cat([gamma + c, gamma - c]).sort(0, descending=True).values  # (2 n, d)
    slope = torch.arange(1, 2 * n, dtype=c.dtype)[:, None] / 2
    fall = torch.cat([torch.zeros_like(knots[:1]), (slope * knots.diff(dim=0)).cumsum(0)]) + level
    first = (fall <= 0).int().argmax(0)
    found = (fall <= 0).any(0)
    at = torch.where(found, first, 2 * n - 1)
    rate = torch.where(found, first / 2, float(n))
    return (knots.gather(0, at[None])[0] - fall.gather(0, at[None])[0] / rate).clamp_min(0)


class _PieceSet:
    def __init__(self, points: Tensor, rho: float, lam: float) -> None:
        n, d = points.shape
        self.X, self.rho, self.lam, self.n = points, rho, lam, n
        zeros = torch.zeros((n, d), dtype=points.dtype)
        self.s = torch.zeros((n, n), dtype=points.dtype)
        self.alpha = self.s.clone()
        self.p_plus, self.p_minus, self.eta, self.gamma = (zeros.clone() for _ in range(4))
        outer = points[:, :, None] * points[:, None, :]
        self.Lam = torch.linalg.inv(outer + torch.eye(d, dtype=points.dtype) / n + outer.mean(0))

    def omega_breg(self) -> Tensor:
        X, n = self.X, self.n
        Lx = torch.einsum("iab,ib->ia", self.Lam, X)
        diagonal = (X * Lx).sum(1)
        D = Lx @ X.T + X @ Lx.T + X @ self.Lam.mean(0) @ X.T - diagonal - Lx.mean(0) @ X.T
        return torch.diag(2 - diagonal) - D / n

    def omega(self) -> Tensor:
        return self.omega_breg() + 2 / (self.n**2 * self.rho) * torch.eye(self.n, dtype=self.X.dtype)

    def theta(self) -> Tensor:
        t = self.alpha + self.s
        return (self.p_plus - self.p_minus - self.eta + t.sum(1, keepdim=True) * self.X - t @ self.X) / self.n

    def v_minus_beta(self) -> Tensor:
        Lt = torch.einsum("iab,ib->ia", self.Lam, self.theta())
        own = (self.X * Lt).sum(1)
        beta = (self.alpha.sum(1) - self.alpha.sum(0) + self.s.sum(1) - self.s.sum(0)) / self.n
        return own + self.X @ Lt.mean(0) - own.mean() - beta

    def slack(self, r: Tensor) -> Tensor:
        return (-self.alpha - r).clamp_min(0)

    def update(self, y_hat: Tensor) -> Tensor:
        X = self.X
        shared = (y_hat[:, None] * X).mean(0)
        a = torch.einsum("iab,ib->ia", self.Lam, self.theta() + y_hat[:, None] * X + shared)
        c = (self.eta + a).abs()
        L = l_update(self.gamma, c, self.lam / self.rho)
        r = y_hat[:, None] - y_hat[None, :] - (a * X).sum(1, keepdim=True) + a @ X.T
        self.s = self.slack(r)
        u = (L - self.gamma - c).clamp_min(0)
        left = L - self.gamma - u
        self.p_plus = (left + self.eta + a).clamp_min(0) / 2
        self.p_minus = (left - self.eta - a).clamp_min(0) / 2
        self.alpha = self.alpha + self.s + r
        self.gamma = self.gamma + u + self.p_plus + self.p_minus - L
        self.eta = self.eta + a - self.p_plus + self.p_minus
        return torch.cat([a, (y_hat - (a * X).sum(1))[:, None]], dim=1)


class _BregmanSet(_PieceSet):
    def __init__(self, points: Tensor, labels: Tensor, rho: float, lam: float) -> None:
        super().__init__(points, rho, lam)
        self.iota = 2 * (labels[:, None] == labels[None, :]).to(points.dtype) - 1
        self.zeta, self.t, self.tau = (torch.zeros_like(self.s) for _ in range(3))

    def margin(self) -> Tensor:
        return self.iota * self.s - self.iota + self.t + 1

    def slack(self, r: Tensor) -> Tensor:
        """The minimizer of (s - pi2)^2 + (iota s + t - pi1)^2 over s, t >= 0; also sets t."""
        pi1 = -self.tau + self.iota - 1 + self.zeta
        pi2 = -self.alpha - r
        s = (pi2 + self.iota * pi1 - self.iota * (pi1 - self.iota * pi2).clamp_min(0)).clamp_min(0) / 2
        self.t = (pi1 - self.iota * s).clamp_min(0)
        return s


class PaperAlgorithm:
    """Algorithm 2 (one piece set) or 4 (two), one `step` at a time."""

    def __init__(self, points: Tensor, targets: Tensor, *, rho: float, lam: float, dc: bool) -> None:
        n = len(points)
        self._y, self._rho, self._n = targets, rho, n
        self._sets = [_PieceSet(points, rho, lam) for _ in range(2 if dc else 1)]
        omega = self._sets[0].omega()
        if dc:
            shift = 2 / (n**2 * rho) * torch.eye(n, dtype=points.dtype)
            self._inverses = [torch.linalg.inv(omega + shift), torch.linalg.inv(omega - shift)]
        else:
            self._inverses = [torch.linalg.inv(omega)]

    def step(self) -> Tensor:
        """One iteration; pieces (Q, n, d + 1)."""
        right = [f.v_minus_beta() for f in self._sets]
        scale = 2 / (self._n**2 * self._rho)
        if len(self._sets) == 1:
            values = [self._inverses[0] @ (scale * self._y + right[0])]
        else:
            minus = self._inverses[0] @ (2 * scale * self._y + right[0] - right[1])
            plus = self._inverses[1] @ (right[0] + right[1])
            values = [(plus + minus) / 2, (plus - minus) / 2]
        return torch.stack([f.update(y) for f, y in zip(self._sets, values, strict=True)])


class PaperBregman:
    """Algorithm 3 for centered points and their labels, one `step` at a time."""

    def __init__(self, points: Tensor, labels: Tensor, *, rho: float, lam: float) -> None:
        self._set = _BregmanSet(points, labels, rho, lam)
        self._inverse = torch.linalg.inv(self._set.omega_breg())
        self._shrink = 1 / (len(points) ** 2 * rho)  # 1/(n rho) in print, where the loss is a sum

    def step(self) -> Tensor:
        """One iteration; pieces (n, d + 1)."""
        f = self._set
        f.zeta = (f.tau + f.margin() - self._shrink).clamp_min(0)
        pieces = f.update(self._inverse @ f.v_minus_beta())
        f.tau = f.tau + f.margin() - f.zeta
        return pieces
