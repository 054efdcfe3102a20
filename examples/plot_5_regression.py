"""
Convex and difference-of-convex regression
==========================================

The same solver fits functions to numbers. :class:`bregnet.ConvexRegressor` returns the largest of affine pieces,
:class:`bregnet.DCRegressor` the difference of two such functions, which can be any shape.
"""

# %%
# In one dimension the pieces can be seen. They are tangents of the fitted function; few of them are needed, though
# every point has one of its own.

import matplotlib.pyplot as plt
import numpy as np

from bregnet import ConvexRegressor, DCRegressor

rng = np.random.default_rng(0)
x = np.sort(rng.uniform(-2, 2, 120))
y = np.abs(x) + 0.5 * x**2 + 0.25 * rng.standard_normal(120)
convex = ConvexRegressor(alpha=0.01).fit(x[:, None], y)
print("convex:", convex.result_.status)

grid = np.linspace(-2.2, 2.2, 400)
pieces = np.unique(convex.function_.active(grid[:, None]))
fig, ax = plt.subplots()
for number in pieces:
    line = convex.function_.slopes[number, 0] * grid + convex.function_.intercepts[number]
    ax.plot(grid, line, color="lightgrey", linewidth=0.8)
ax.scatter(x, y, s=8, alpha=0.6)
ax.plot(grid, convex.predict(grid[:, None]), color="tab:red")
ax.set(ylim=(-0.7, 5), title=f"convex: the largest of {len(pieces)} pieces", xlabel="x", ylabel="y")
plt.show()

# %%
# A sine is not convex, but it is the difference of two convex functions.

wave = np.sin(2 * x) + 0.15 * rng.standard_normal(120)
difference = DCRegressor(alpha=0.001, temperature=0.02).fit(x[:, None], wave)
print("DC:", difference.result_.status)
fig, ax = plt.subplots()
ax.scatter(x, wave, s=8, alpha=0.6)
ax.plot(grid, difference.predict(grid[:, None]), color="tab:red", label="f - g")
ax.plot(grid, difference.function_.convex(grid[:, None]) - 4, "--", linewidth=1, label="f - 4")
ax.plot(grid, difference.function_.concave(grid[:, None]) - 4, ":", linewidth=1, label="g - 4")
ax.set(title="difference of two convex functions", xlabel="x", ylim=(-5, 3.5))
ax.legend(fontsize=8, ncols=3, loc="upper center")
plt.show()
r2_of_waves = difference.score(grid[20:-20, None], np.sin(2 * grid[20:-20]))
print(f"R^2 against the noiseless sine: {r2_of_waves:.3f}")

# %%
# In two dimensions the pieces cut the plane into cells. Here the data are a bowl that is monotone in its second
# feature; ``monotone`` makes the fitted function so, too.

X = rng.uniform(-1, 1, (300, 2))
z = X[:, 0] ** 2 + np.exp(X[:, 1]) + 0.05 * rng.standard_normal(300)
bowl = ConvexRegressor(alpha=0.02, monotone=[0, 1]).fit(X, z)
print("bowl:", bowl.result_.status)
side = np.linspace(-1, 1, 150)
plane = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
active = np.unique(bowl.function_.active(plane), return_inverse=True)[1].reshape(150, 150)
fig, ax = plt.subplots()
ax.pcolormesh(side, side, active % 12, cmap="Paired", alpha=0.5, rasterized=True)
contours = ax.contour(side, side, bowl.predict(plane).reshape(150, 150), colors="black", linewidths=0.7)
ax.clabel(contours, fontsize=7)
ax.set(title="two features: cells of the pieces", xlabel="first", ylabel="second")
plt.show()

slopes_of_second = bowl.function_.slopes[np.unique(bowl.function_.active(plane)), 1]
print(f"slopes of the second feature: {slopes_of_second.min():.2f} to {slopes_of_second.max():.2f}")
