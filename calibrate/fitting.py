"""Robust least squares on log ratios, with honest errors: the one fit every calibration uses.

A parameter has a start, bounds and perhaps a prior; what comes back has a value, a standard error,
correlations, and says when it sits at a bound or the data cannot tell it. Standard errors are those
of an M-estimator, H^-1 M H^-1 with H the curvature and M the summed outer products of the scores
(Huber, Robust Statistics, 1981, ch. 6), by cluster where the rows of one sweep err together
(Cameron and Miller, J. Human Resources 50, 2015). They assume nothing about the size of the noise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Status = Literal["ok", "at lower bound", "at upper bound", "not identifiable"]
Model = Callable[[Mapping[str, float]], ArrayLike]

_NEAR_BOUND = 1e-3  # share of the bounds' distance
_NULL_DIRECTION = 1e-5  # singular value of the column-scaled Jacobian, relative to the largest
_LOADING = 0.1  # of a parameter on such a direction
_VAGUE = 1.0  # standard error of a logarithm: known to a factor e at best


@dataclass(frozen=True, slots=True)
class Unknown:
    """A parameter to fit. With `low` > 0 its logarithm is searched, else the value itself.

    `prior_sd` pulls it towards `start` by one more residual, (x - start) / prior_sd: relative where
    the logarithm is searched, in the parameter's own unit otherwise.
    """

    name: str
    start: float
    low: float
    high: float
    prior_sd: float | None = None

    def forward(self, value: float) -> float:
        """Where the search sees `value`."""
        return float(np.log(value)) if self.low > 0 else value / self.high

    def back(self, position: float) -> float:
        """The value at a position of the search."""
        return float(np.exp(position)) if self.low > 0 else position * self.high

    def slope(self, value: float) -> float:
        """d value / d position: turns a deviation of the search into one of the value."""
        return value if self.low > 0 else self.high

    def pull(self, position: float) -> float:
        """The prior's residual; 0 where there is none."""
        if self.prior_sd is None:
            return 0.0
        spread = self.prior_sd if self.low > 0 else self.prior_sd / self.high
        return (position - self.forward(self.start)) / spread


@dataclass(frozen=True, slots=True)
class Estimate:
    """A fitted parameter; `standard_error` is None where none exists, and `status` says why."""

    name: str
    value: float
    standard_error: float | None
    status: Status


@dataclass(frozen=True)
class Sample:
    """What was measured. `weights` default to 1.

    `clusters` labels rows whose errors belong together (one shape, one run); without it every row
    counts as independent. ValueError where there is nothing or a value isn't positive.
    """

    measured: ArrayLike
    weights: ArrayLike | None = None
    clusters: ArrayLike | None = None

    def __post_init__(self) -> None:
        """Refuse what has no logarithm."""
        values = np.asarray(self.measured, dtype=float)
        if values.size == 0 or not np.all(values > 0):
            raise ValueError("measured values must be positive, and there must be some")


@dataclass(frozen=True)
class Fit:
    """Estimates, their correlations (NaN where undefined) and the log ratios measured / model."""

    estimates: tuple[Estimate, ...]
    correlations: Array
    residuals: Array

    def __getitem__(self, name: str) -> Estimate:
        """The estimate of one parameter."""
        return next(estimate for estimate in self.estimates if estimate.name == name)

    @property
    def values(self) -> dict[str, float]:
        """Parameter values by name."""
        return {estimate.name: estimate.value for estimate in self.estimates}

    @property
    def errors(self) -> Errors:
        """How far the model is from what it was fitted to."""
        return Errors.of(self.residuals)


@dataclass(frozen=True, slots=True)
class Errors:
    """Absolute percentage errors |model / measured - 1| and the signed median, as fractions."""

    rows: int
    median_ape: float
    p90_ape: float
    signed_median: float

    @classmethod
    def of(cls, log_ratios: ArrayLike) -> Errors:
        """From log ratios measured / model.

        >>> Errors.of(np.log([1 / 1.1, 1 / 1.1, 1 / 0.9])).median_ape.__round__(3)
        0.1
        """
        signed = np.expm1(-np.asarray(log_ratios, dtype=float))
        if signed.size == 0:
            return cls(0, float("nan"), float("nan"), float("nan"))
        middle, high = np.quantile(np.abs(signed), (0.5, 0.9))
        return cls(signed.size, float(middle), float(high), float(np.median(signed)))


def fit(
    model: Model,
    unknowns: Sequence[Unknown],
    sample: Sample,
    noise: float = 0.1,
    begin: Mapping[str, float] | None = None,
    tolerance: float = 1e-8,
) -> Fit:
    """Minimise sum of weight x rho(log(measured / model) / noise) with rho = soft L1.

    `noise` is the log ratio beyond which a row counts as an outlier and pulls linearly; it also is
    what a prior is weighed against. The search sets out from `begin` where it names a parameter (the
    result of a like fit), else from the start of the unknown; priors pull to the latter all the same.
    It ends where a step improves the sum by less than `tolerance`, relative to it.
    """
    from scipy.optimize import least_squares

    target = np.asarray(sample.measured, dtype=float)
    weights = np.ones_like(target) if sample.weights is None else np.asarray(sample.weights)
    root = np.sqrt(weights) / noise
    priors = [(i, u) for i, u in enumerate(unknowns) if u.prior_sd is not None]

    def log_ratios(position: Array) -> Array:
        named = {u.name: u.back(x) for u, x in zip(unknowns, position, strict=True)}
        return np.asarray(np.log(target / np.asarray(model(named), dtype=float)))

    def residuals(position: Array) -> Array:
        pulls = [u.pull(position[i]) for i, u in priors]
        return np.concatenate([root * log_ratios(position), pulls])

    low = np.array([unknown.forward(unknown.low) for unknown in unknowns])
    high = np.array([unknown.forward(unknown.high) for unknown in unknowns])
    first = begin or {}
    start = np.array([u.forward(first.get(u.name, u.start)) for u in unknowns])
    margin = _NEAR_BOUND * (high - low)
    start = np.clip(start, low + margin, high - margin)
    # The exact solver's SVD of a tall Jacobian costs far more than the model does on a busy machine;
    # lsmr searches a plane, so it needs two parameters.
    solver = "lsmr" if len(unknowns) > 1 else "exact"
    found = least_squares(
        residuals,
        start,
        bounds=(low, high),
        loss="soft_l1",
        x_scale="jac",
        tr_solver=solver,
        ftol=tolerance,
        xtol=tolerance,
    ).x
    status: list[Status] = [
        "at lower bound" if x - a < d else "at upper bound" if b - x < d else "ok"
        for x, a, b, d in zip(found, low, high, margin, strict=True)
    ]
    free = np.array([entry == "ok" for entry in status])
    clusters = np.arange(target.size) if sample.clusters is None else np.asarray(sample.clusters)
    groups = np.unique(clusters, return_inverse=True)[1]
    jacobian = _jacobian(residuals, found, free)
    covariance, lost = _sandwich(jacobian, residuals(found), groups)
    return _result(unknowns, found, (free, covariance, lost), status, log_ratios(found))


def _jacobian(residuals: Callable[[Array], Array], at: Array, free: NDArray[np.bool_]) -> Array:
    """Central differences with respect to the free parameters."""
    columns = []
    for index in np.flatnonzero(free):
        step = np.zeros_like(at)
        step[index] = 1e-5 * max(1.0, abs(at[index]))
        columns.append((residuals(at + step) - residuals(at - step)) / (2 * step[index]))
    return np.stack(columns, axis=1) if columns else np.zeros((residuals(at).size, 0))


def _sandwich(
    jacobian: Array, residual: Array, groups: NDArray[np.intp]
) -> tuple[Array, NDArray[np.bool_]]:
    """Covariance of the estimates, and which of them the data does not determine.

    Rows beyond `groups` are priors: their scores have the variance they were given.
    """
    score = 1.0 / np.sqrt(1.0 + residual**2)  # rho'(z) of soft L1, z = r^2
    curvature = np.maximum(score**3, 1e-3)  # d(score r)/dr
    root = jacobian * np.sqrt(curvature)[:, np.newaxis]
    scale = np.linalg.norm(root, axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    squares, vectors = np.linalg.eigh((root / scale).T @ (root / scale))
    singular, directions = np.sqrt(np.maximum(squares, 0.0)), vectors.T
    null = singular <= _NULL_DIRECTION * max(1.0, float(singular.max(initial=0.0)))
    lost = np.any(np.abs(directions[null]) > _LOADING, axis=0)
    kept = directions[~null] / singular[~null, np.newaxis]
    inverse = (kept.T @ kept) / np.outer(scale, scale)
    rows = groups.size
    slopes = jacobian[:rows] * (score * residual)[:rows, np.newaxis]
    summed = _unlevered(slopes, root[:rows], inverse, groups)
    priors = jacobian[rows:]
    meat = summed.T @ summed + priors.T @ priors
    pooled = np.sum((score * residual)[:rows] ** 2) / max(rows - jacobian.shape[1], 1)
    return _at_least(inverse @ meat @ inverse, pooled * np.diag(inverse)), lost


def _at_least(covariance: Array, variances: Array) -> Array:
    """Raise variances to those that the scatter of all rows together gives; keep correlations.

    Where one row decides a parameter, its own residual is 0 and knows nothing of its error.
    """
    own = np.maximum(np.diag(covariance), 1e-300)
    raised = np.sqrt(np.maximum(variances / own, 1.0))
    return covariance * np.outer(raised, raised)


def _unlevered(slopes: Array, root: Array, inverse: Array, groups: NDArray[np.intp]) -> Array:
    """Scores by cluster, as if the fit had not bent towards the cluster: (I - A V)^-1 s.

    A fit follows a cluster that alone decides a parameter, and the residuals left say nothing of its
    error. With A = R'R of the cluster and V the inverse curvature this is the bias-reduced CR3
    estimate, close to leaving each cluster out in turn (Bell and McCaffrey, Survey Methodology 28,
    2002). A cluster that decides a parameter all by itself is damped to a factor of a hundred.
    """
    count, size = int(groups.max()) + 1, root.shape[1]
    summed = np.zeros((count, size))
    np.add.at(summed, groups, slopes)
    held = np.zeros((count, size, size))
    np.add.at(held, groups, root[:, :, np.newaxis] * root[:, np.newaxis, :])
    kept = np.eye(size) - (1.0 - 1e-2) * (held @ inverse)
    return np.asarray(np.linalg.solve(kept, summed[..., np.newaxis])[..., 0])


def _result(
    unknowns: Sequence[Unknown],
    found: Array,
    uncertainty: tuple[NDArray[np.bool_], Array, NDArray[np.bool_]],
    status: list[Status],
    log_ratios: Array,
) -> Fit:
    free, covariance, lost = uncertainty
    size = len(unknowns)
    deviations = np.full(size, np.nan)
    deviations[free] = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    blind = np.zeros(size, dtype=bool)
    blind[free] = lost
    estimates = []
    for index, unknown in enumerate(unknowns):
        value, deviation = unknown.back(found[index]), deviations[index]
        vague = unknown.low > 0 and deviation > _VAGUE
        if status[index] == "ok" and (blind[index] or vague):
            status[index] = "not identifiable"
        error = float(deviation * unknown.slope(value)) if status[index] == "ok" else None
        estimates.append(Estimate(unknown.name, value, error, status[index]))
    usable = np.array([entry == "ok" for entry in status])
    known, spread = covariance[np.ix_(usable[free], usable[free])], deviations[usable]
    correlations = np.full((size, size), np.nan)
    correlations[np.ix_(usable, usable)] = known / np.outer(spread, spread)
    return Fit(tuple(estimates), correlations, log_ratios)
