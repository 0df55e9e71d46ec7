"""Target functions of users: right ones are recognized in every library and signature, and mistakes are named.

The formulas are written here once more, from the papers and from the descriptions of public implementations, and do not use `actiongap`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from functools import partial
from types import FunctionType, SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from array_api_compat import torch as array_torch

import actiongap as ag
from actiongap.api.mistakes import fits, mistakes
from actiongap.api.targets import Check
from actiongap.api.transitions import NAMES, Batch, catalogue
from actiongap.operators import parse
from actiongap.td import persistent_q_learning, td_target

# Its options are read from tables, and what it finds is read without a test for None.
check_target: Any = ag.check_target

LIBRARIES: dict[str, Any] = {
    "numpy": SimpleNamespace(xp=np, stop=lambda x: x, vmap=None),
    "torch": SimpleNamespace(xp=array_torch, stop=lambda x: x.detach(), vmap=torch.vmap),
    "jax": SimpleNamespace(xp=jnp, stop=jax.lax.stop_gradient, vmap=jax.vmap),
}


def best(xp, q):
    return xp.max(q, axis=-1)


def of(xp, q, a):
    """Q(., a)."""
    return xp.take_along_axis(q, a[..., None], axis=-1)[..., 0]


def log_policy(xp, q, tau):
    scaled = (q - xp.max(q, axis=-1, keepdims=True)) / tau
    return scaled - xp.log(xp.sum(xp.exp(scaled), axis=-1, keepdims=True))


def munchausen(xp, q, a, r, d, n, tau=0.03, alpha=0.9, low=-1.0):
    """As the paper writes it: the expectation of Q - tau log pi under pi at x'."""
    reward = r + alpha * xp.clip(tau * of(xp, log_policy(xp, q, tau), a), low, 0.0)
    log_next = log_policy(xp, n, tau)
    return reward + d * xp.sum(xp.exp(log_next) * (n - tau * log_next), axis=-1)


def dpp(xp, q, a, r, d, n, tau=0.1):
    def mean(q):
        return xp.sum(xp.exp(log_policy(xp, q, tau)) * q, axis=-1)

    return of(xp, q, a) - mean(q) + r + d * mean(n)


def lazy(xp, q, a, r, d, n, alpha):
    aim, keep = r + d * best(xp, n), of(xp, q, a)
    return xp.where((keep <= aim) & (aim <= alpha * best(xp, q) + (1 - alpha) * keep), keep, aim)


def gap(xp, q, a):
    return best(xp, q) - of(xp, q, a)


def alive(xp, d):
    return xp.where(d > 0, xp.ones_like(d), xp.zeros_like(d))


RIGHT: dict[str, Any] = {
    "bellman": lambda xp, q, a, r, d, n: r + d * best(xp, n),
    # Q(x', .) is Q(x, .) where x' is x, and nowhere else.
    "consistent": lambda xp, q, a, r, d, n: r + d * xp.where(xp.all(q == n, axis=-1), of(xp, n, a), best(xp, n)),
    "al:0.9": lambda xp, q, a, r, d, n: r + d * best(xp, n) - 0.9 * gap(xp, q, a),
    "al:1": lambda xp, q, a, r, d, n: r + d * best(xp, n) - gap(xp, q, a),
    "al:0": lambda xp, q, a, r, d, n: r + d * best(xp, n),
    "pal:0.9": lambda xp, q, a, r, d, n: xp.maximum(r + d * best(xp, n) - 0.9 * gap(xp, q, a), r + d * of(xp, n, a)),
    "pal-dqn:0.9": lambda xp, q, a, r, d, n: r + d * best(xp, n) + 0.9 * xp.maximum(-gap(xp, q, a), -alive(xp, d) * gap(xp, n, a)),
    "lazy:0.9": partial(lazy, alpha=0.9),
    "lazy:0.5": partial(lazy, alpha=0.5),
    "baird:0.5": lambda xp, q, a, r, d, n: best(xp, q) + (r + d * best(xp, n) - best(xp, q)) / 0.5,
    "clipped-al:0.9,0.8": lambda xp, q, a, r, d, n: (
        r + d * best(xp, n) - xp.where(of(xp, q, a) >= 0.8 * best(xp, q), 0.9 * gap(xp, q, a), xp.zeros_like(r))
    ),
    "clipped-al:0.5,0.5,-10": lambda xp, q, a, r, d, n: (
        r + d * best(xp, n) - xp.where(of(xp, q, a) + 10 >= 0.5 * (best(xp, q) + 10), 0.5 * gap(xp, q, a), xp.zeros_like(r))
    ),
    "sal:0.5,0.9": lambda xp, q, a, r, d, n: 0.1 * of(xp, q, a) + 0.9 * (r + d * best(xp, n)) - 0.5 * gap(xp, q, a),
    "munchausen:0.03,0.9": munchausen,
    "munchausen:1,0.5,-2": partial(munchausen, tau=1.0, alpha=0.5, low=-2.0),
    "dpp:0.1": dpp,
    "dpp:2": partial(dpp, tau=2.0),
}
"""Formulas of the papers."""


def made(library: str, formula: Any):
    """A target function of the documented signature."""
    tools = LIBRARIES[library]

    def target(q_tm1, a_tm1, r_t, discount_t, q_t):
        return tools.stop(formula(tools.xp, q_tm1, a_tm1, r_t, discount_t, q_t))

    return target


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("operator", RIGHT)
def test_right_functions_are_equal(operator, library):
    found = check_target(made(library, RIGHT[operator]), operator)
    assert found, found
    assert (found.library, found.layout, found.mistake, found.transition) == (library, "batch", None, None)
    assert repr(found).startswith(f"equal to {parse(operator).name} on {found.count} transitions")


@pytest.mark.parametrize("operator", RIGHT)
@pytest.mark.parametrize("other", [*RIGHT, "pal-dqn:0.5", "munchausen:0.03,0.8", "munchausen:0.03,0.9,-0.5", "lazy:0.4"])
def test_another_operator_is_not_equal(operator, other):
    same = parse(operator).name == parse(other).name or {operator, other} == {"bellman", "al:0"}
    function = made("numpy", RIGHT[other]) if other in RIGHT else partial(td_target, other)
    assert bool(check_target(function, operator)) == same


@pytest.mark.parametrize("library", ["torch", "jax"])
@pytest.mark.parametrize("operator", ["bellman", "pal-dqn:0.9", "munchausen:0.03,0.9"])
def test_mapped_functions_of_one_transition_are_equal(operator, library):
    mapped = LIBRARIES[library].vmap(made(library, RIGHT[operator]))
    assert check_target(mapped, operator).layout == "batch"
    assert check_target(mapped, operator)


@pytest.mark.parametrize("operator", ["al:0.9", "pal-dqn:0.9"])
def test_functions_of_one_transition_are_equal(operator):
    def numpy_one(q_tm1, a_tm1, r_t, discount_t, q_t):
        corrections = [q_tm1.max() - q_tm1[a_tm1], q_t.max() - q_t[a_tm1] if discount_t > 0 else 0.0]
        return r_t + discount_t * q_t.max() - 0.9 * (corrections[0] if operator == "al:0.9" else min(corrections))

    def torch_one(q_tm1, a_tm1, r_t, discount_t, q_t):
        return torch.as_tensor(numpy_one(q_tm1, a_tm1, r_t, discount_t, q_t)).detach()

    @jax.jit
    def jax_one(q_tm1, a_tm1, r_t, discount_t, q_t):
        next_gap = jnp.where(discount_t > 0, jnp.max(q_t) - q_t[a_tm1], 0.0 if operator != "al:0.9" else jnp.inf)
        next_gap = jnp.inf if operator == "al:0.9" else next_gap
        correction = jnp.minimum(jnp.max(q_tm1) - q_tm1[a_tm1], next_gap)
        return jax.lax.stop_gradient(r_t + discount_t * jnp.max(q_t) - 0.9 * correction)

    for one, library in ((numpy_one, "numpy"), (torch_one, "torch"), (jax_one, "jax")):
        found = check_target(one, operator, library=library)
        assert found, found
        assert (found.layout, found.library) == ("single", library)


def test_a_maximum_over_the_batch_is_right_for_one_transition_alone():
    def target(q_tm1, a_tm1, r_t, discount_t, q_t):
        return r_t + discount_t * q_t.max()

    found = check_target(target)
    assert (found.equal, found.layout) == (True, "single")
    assert "it is wrong for a batch (V(x') is the maximum over the whole batch: " in found.note
    assert repr(found).endswith(f"; {found.note}")
    assert "V(x') is the maximum over the whole batch" in check_target(target, layout="batch").mistake
    assert check_target(target, layout="single").note is None
    correction = made("numpy", lambda xp, q, a, r, d, n: r + d * best(xp, n) - 0.9 * (xp.max(q) - of(xp, q, a)))
    assert "V(x) is the maximum over the whole batch" in check_target(correction, "al:0.9", layout="batch").mistake
    own = check_target(lambda r, done, next_q: r + 0.95 * (1 - done) * next_q.max())
    assert (own.equal, own.gamma) == (True, 0.95)
    assert "wrong for a batch" in own.note


# What public implementations and their like do, and what must be said about it.
WRONG: dict[str, tuple[str, Any, str]] = {
    "no correction": ("al:0.9", RIGHT["bellman"], "plain Bellman"),
    "RLax and TRFL": (
        "pal-dqn:0.9",
        lambda xp, q, a, r, d, n: r + d * (0.1 * best(xp, n) + 0.9 * of(xp, n, a)),
        "no outer maximum",
    ),
    "RLax and TRFL, T_PAL": (
        "pal:0.9",
        lambda xp, q, a, r, d, n: r + d * (0.1 * best(xp, n) + 0.9 * of(xp, n, a)),
        "no outer maximum",
    ),
    "persistence alone": (
        "pal-dqn:0.9",
        lambda xp, q, a, r, d, n: r + d * best(xp, n) - 0.9 * gap(xp, n, a) * alive(xp, d),
        "no outer maximum",
    ),
    "repeats alone": ("pal:0.9", lambda xp, q, a, r, d, n: r + d * of(xp, n, a), "no outer maximum"),
    "PFRL for T_PAL": (
        "pal:0.9",
        lambda xp, q, a, r, d, n: r + d * best(xp, n) - 0.9 * xp.minimum(gap(xp, q, a), gap(xp, n, a)),
        "it computes pal-dqn:0.9, not pal:0.9, and the persistence term is not masked at terminal states",
    ),
    "RLax for advantage learning": (
        "al:0.9",
        lambda xp, q, a, r, d, n: r + d * (0.1 * best(xp, n) + 0.9 * of(xp, n, a)),
        "mixes V(x') and Q(x', a)",
    ),
    "discounted next gap": (
        "pal-dqn:0.9",
        lambda xp, q, a, r, d, n: r + d * best(xp, n) - 0.9 * xp.minimum(gap(xp, q, a), d * gap(xp, n, a)),
        "the gap at x', V(x') - Q(x', a), is multiplied by the discount",
    ),
    "one alpha in T_PAL": (
        "pal:0.9",
        lambda xp, q, a, r, d, n: r + d * best(xp, n) - xp.minimum(0.9 * gap(xp, q, a), 0.9 * d * gap(xp, n, a)),
        "alpha also multiplies the persistence term",
    ),
    "one alpha": (
        "pal-dqn:0.9",
        lambda xp, q, a, r, d, n: r + d * best(xp, n) - xp.minimum(0.9 * gap(xp, q, a), alive(xp, d) * gap(xp, n, a)),
        "alpha does not multiply the gap at x'",
    ),
    "no reward where it persists": (
        "pal:0.9",
        lambda xp, q, a, r, d, n: xp.maximum(r + d * best(xp, n) - 0.9 * gap(xp, q, a), d * of(xp, n, a)),
        "the reward is missing in the persistence term",
    ),
    "sign in T_PAL": (
        "pal:0.9",
        lambda xp, q, a, r, d, n: xp.maximum(r + d * best(xp, n) + 0.9 * gap(xp, q, a), r + d * of(xp, n, a)),
        "the gap at x is added instead of subtracted",
    ),
    "correction in the discount of T_PAL": (
        "pal:0.9",
        lambda xp, q, a, r, d, n: xp.maximum(r + d * (best(xp, n) - 0.9 * gap(xp, q, a)), r + d * of(xp, n, a)),
        "the gap at x is multiplied by the discount",
    ),
    "V(x') in the gap": (
        "al:0.9",
        lambda xp, q, a, r, d, n: r + d * best(xp, n) - 0.9 * (best(xp, n) - of(xp, q, a)),
        "V(x') instead of V(x)",
    ),
    "Q(x', a) in the gap": (
        "al:0.9",
        lambda xp, q, a, r, d, n: r + d * best(xp, n) - 0.9 * (best(xp, q) - of(xp, n, a)),
        "Q(x', a) instead of Q(x, a)",
    ),
    "gap of the best two": (
        "al:0.9",
        lambda xp, q, a, r, d, n: r + d * best(xp, n) - 0.9 * (best(xp, q) - xp.sort(q, axis=-1)[:, -2]),
        "between the best two actions",
    ),
    "log-policy of x'": (
        "munchausen:0.03,0.9",
        lambda xp, q, a, r, d, n: (
            munchausen(xp, q, a, r, d, n, alpha=0.0) + 0.9 * xp.clip(0.03 * of(xp, log_policy(xp, n, 0.03), a), -1.0, 0.0)
        ),
        "the correction takes the values of x'",
    ),
    "sal from V": (
        "sal:0.3,0.5",
        lambda xp, q, a, r, d, n: 0.5 * best(xp, q) + 0.5 * (r + d * best(xp, n)) - 0.3 * gap(xp, q, a),
        "starts from V(x)",
    ),
    "discount squared": ("bellman", lambda xp, q, a, r, d, n: r + d * d * best(xp, n), "the discount is squared"),
    "no persistence": ("pal-dqn:0.9", RIGHT["al:0.9"], "it computes al:0.9"),
    "minimum": (
        "pal-dqn:0.9",
        lambda xp, q, a, r, d, n: r + d * best(xp, n) - 0.9 * xp.maximum(gap(xp, q, a), alive(xp, d) * gap(xp, n, a)),
        "minimum of the two terms",
    ),
    "PFRL": (
        "pal-dqn:0.9",
        lambda xp, q, a, r, d, n: r + d * best(xp, n) - 0.9 * xp.minimum(gap(xp, q, a), gap(xp, n, a)),
        "not masked at terminal states",
    ),
    "Coach with one network": (
        "pal-dqn:0.9",
        lambda xp, q, a, r, d, n: r + d * best(xp, n) - 0.9 * xp.minimum(gap(xp, q, a), gap(xp, n, xp.argmax(n, axis=-1))),
        "greedy action instead of the replayed one",
    ),
    "rsrl": (
        "pal-dqn:0.9",
        lambda xp, q, a, r, d, n: (
            r
            + d * of(xp, n, xp.argmax(q, axis=-1))
            - 0.9 * xp.minimum(gap(xp, q, a), alive(xp, d) * (of(xp, n, xp.argmax(q, axis=-1)) - of(xp, n, a)))
        ),
        "bootstraps with the action greedy at x instead of the one greedy at x'",
    ),
    "greedy at x": (
        "pal-dqn:0.9",
        lambda xp, q, a, r, d, n: r + d * best(xp, n) - 0.9 * xp.minimum(gap(xp, q, a), alive(xp, d) * gap(xp, n, xp.argmax(q, axis=-1))),
        "greedy at x instead of the replayed one",
    ),
    "clip by min": (
        "munchausen:0.03,0.9",
        lambda xp, q, a, r, d, n: (
            munchausen(xp, q, a, r, d, n, alpha=0.0) + 0.9 * xp.minimum(0.03 * of(xp, log_policy(xp, q, 0.03), a), -xp.ones_like(r))
        ),
        "clipped on the wrong side",
    ),
    "clip before tau": (
        "munchausen:0.03,0.9",
        lambda xp, q, a, r, d, n: (
            munchausen(xp, q, a, r, d, n, alpha=0.0) + 0.9 * 0.03 * xp.clip(of(xp, log_policy(xp, q, 0.03), a), -1.0, 1.0)
        ),
        "clipped before it is multiplied by tau",
    ),
    "no clip": ("munchausen:0.03,0.9", partial(munchausen, low=-np.inf), "not clipped"),
    "clip to [0, 1]": (
        "munchausen:0.03,0.9",
        lambda xp, q, a, r, d, n: (
            munchausen(xp, q, a, r, d, n, alpha=0.0) + 0.9 * xp.clip(0.03 * of(xp, log_policy(xp, q, 0.03), a), 0.0, 1.0)
        ),
        "clipped on the wrong side",
    ),
    "sign": ("al:0.9", lambda xp, q, a, r, d, n: r + d * best(xp, n) + 0.9 * gap(xp, q, a), "added instead of subtracted"),
    "alpha": ("al:0.9", lambda xp, q, a, r, d, n: r + d * best(xp, n) - 0.73 * gap(xp, q, a), "it behaves like al:0.73"),
    "alpha of munchausen": ("munchausen:0.03,0.9", partial(munchausen, alpha=0.35), "it behaves like munchausen:0.03,0.35"),
    "K": ("baird:0.5", lambda xp, q, a, r, d, n: best(xp, q) + 0.5 * (r + d * best(xp, n) - best(xp, q)), "multiplies by K"),
    "correction in the discount": (
        "al:0.9",
        lambda xp, q, a, r, d, n: r + d * (best(xp, n) - 0.9 * gap(xp, q, a)),
        "multiplied by the discount",
    ),
    "correction masked": (
        "al:0.9",
        lambda xp, q, a, r, d, n: r + d * best(xp, n) - 0.9 * alive(xp, d) * gap(xp, q, a),
        "dropped at terminal states",
    ),
    "terminal ignored": ("bellman", lambda xp, q, a, r, d, n: r + 0.99 * best(xp, n), "terminal states are ignored"),
    "terminal ignored with a correction": (
        "al:0.9",
        lambda xp, q, a, r, d, n: r + 0.97 * best(xp, n) - 0.9 * gap(xp, q, a),
        "terminal states are ignored",
    ),
    "discount as a flag": ("bellman", lambda xp, q, a, r, d, n: r + 0.99 * (1 - d) * best(xp, n), "taken for a done flag"),
    "always repeats": ("consistent", lambda xp, q, a, r, d, n: r + d * of(xp, n, a), "in every next state"),
    "never repeats": ("consistent", RIGHT["bellman"], "plain Bellman"),
    "reward clipped": ("bellman", lambda xp, q, a, r, d, n: xp.clip(r, -1.0, 1.0) + d * best(xp, n), "clipped to [-1, 1]"),
    "x for x'": ("bellman", lambda xp, q, a, r, d, n: r + d * best(xp, q), "values of x"),
    "mean": ("al:0.9", lambda xp, q, a, r, d, n: r + d * best(xp, n) - 0.9 * (xp.mean(q, axis=-1) - of(xp, q, a)), "mean over actions"),
    "lazy the other way": ("lazy:0.9", partial(lazy, alpha=0.1), "exchanged"),
    "tiny": ("bellman", lambda xp, q, a, r, d, n: r + d * best(xp, n) + 1e-7, "rounding of float32"),
}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("case", WRONG)
def test_mistakes_are_named(case, library):
    operator, formula, words = WRONG[case]
    function = made(library, formula)
    found = check_target(function, operator)
    assert not found
    assert words in found.mistake, found
    assert (found.library, found.layout) == (library, "batch")
    assert 0 < found.differing <= found.count
    # The first transition that differs, given to the function and to the library again, gives both numbers.
    one = {name: np.asarray([value]) for name, value in found.transition.items()}
    assert td_target(operator, **one, returned=np.all(one["q_tm1"] == one["q_t"], axis=-1)).item() == pytest.approx(found.expected)
    assert made("numpy", formula)(**one).item() == pytest.approx(found.got, abs=1e-5)
    count = f"{found.differing} of {found.count} transitions"
    assert repr(found).startswith(f"differs from {parse(operator).name} on {count}: {found.mistake}; for q_tm1=[")
    assert "\n" not in repr(found)


def test_what_no_known_mistake_explains_is_shown_with_both_numbers():
    found = check_target(lambda q_tm1, a_tm1, r_t, discount_t, q_t: r_t**2 + discount_t * q_t.max(axis=-1))
    assert (found.equal, found.mistake) == (False, None)
    assert found.got != found.expected
    assert "no known mistake explains it; for q_tm1=[" in repr(found)


def test_random_functions_are_named():
    noise, calls = np.random.default_rng(0), []

    def explores(r_t, discount_t, q_t):
        return r_t + discount_t * np.where(noise.random(len(r_t)) < 0.1, q_t.min(axis=1), q_t.max(axis=1))

    def counts(r_t, discount_t, q_t):
        calls.append(r_t)
        return r_t + discount_t * q_t.max(axis=1) + 0.125 * len(calls)

    assert "it is random" in check_target(explores).mistake
    assert "two calls" in check_target(counts).mistake


def test_gradients_must_not_flow_through_the_target():
    def in_torch(q_tm1, a_tm1, r_t, discount_t, q_t):
        return r_t + discount_t * q_t.max(dim=-1).values

    def in_jax(q_tm1, a_tm1, r_t, discount_t, q_t):
        return r_t + discount_t * jnp.max(q_t, axis=-1)

    for function, remedy in ((in_torch, "target.detach()"), (in_jax, "jax.lax.stop_gradient(target)"), (jax.vmap(in_jax), "stop_gradient")):
        found = check_target(function)
        assert not found
        assert "gradient" in found.mistake
        assert remedy in found.mistake
        assert (found.expected, found.got) == (0.0, pytest.approx(0.9))
        # The first transition, and all but the terminal ones.
        assert found.transition["r_t"] == pytest.approx(catalogue()[0].r_t[0])
        assert found.differing == sum((~t.terminated).sum() for t in catalogue())
        assert not check_target(function, dtype="float64")
        assert check_target(function, gradients=False)
    assert check_target(torch.no_grad()(in_torch))


@pytest.mark.parametrize(("stop", "words"), [("target", None), ("nothing", "flows through the target to q_t"), ("all", "teaches nothing")])
def test_gradients_of_a_td_error_flow_to_the_online_value_alone(stop, words):
    def error(q_tm1, a_tm1, r_t, discount_t, q_t):
        constant = jax.lax.stop_gradient if stop != "nothing" else lambda x: x
        found = constant(r_t + discount_t * jnp.max(q_t)) - q_tm1[a_tm1]
        return jax.lax.stop_gradient(found) if stop == "all" else found

    found = check_target(error, returns="td_error")
    assert found.equal == (words is None), found
    assert words is None or words in found.mistake


def test_rlax_like_errors_of_one_transition():
    def rlax(q_tm1, a_tm1, r_t, discount_t, q_t, action_gap_scale=0.9, stop_target_gradients=True):
        corrected_q_t = (1.0 - action_gap_scale) * jnp.max(q_t) + action_gap_scale * q_t[a_tm1]
        target_tm1 = jax.lax.stop_gradient(r_t + discount_t * corrected_q_t)
        return target_tm1 - q_tm1[a_tm1]

    found = check_target(rlax, "pal-dqn:0.9", returns="td_error")
    assert not found
    assert "no outer maximum" in found.mistake
    axes = (0, 0, 0, 0, 0, None)
    mapped = jax.vmap(rlax, in_axes=axes[:5])
    assert "no outer maximum" in check_target(mapped, "pal-dqn:0.9", returns="td_error").mistake
    assert check_target(partial(persistent_q_learning, action_gap_scale=0.9), "pal-dqn:0.9", returns="td_error")
    required = check_target(lambda q_tm1, a_tm1, r_t, discount_t, q_t: -rlax(q_tm1, a_tm1, r_t, discount_t, q_t, 0.0), returns="td_error")
    assert "the sign is wrong" in required.mistake


def test_a_target_and_an_error_are_told_apart():
    target = made("numpy", RIGHT["al:0.9"])

    def error(q_tm1, a_tm1, r_t, discount_t, q_t):
        return target(q_tm1, a_tm1, r_t, discount_t, q_t) - of(np, q_tm1, a_tm1)

    assert check_target(error, "al:0.9", returns="td_error")
    assert "pass returns='td_error'" in check_target(error, "al:0.9").mistake
    assert "pass returns='target'" in check_target(target, "al:0.9", returns="td_error").mistake


def test_functions_with_done_flags():
    def cleanrl(q, actions, rewards, dones, next_q, gamma=0.99):
        with torch.no_grad():
            target_max, _ = next_q.max(dim=1)
            return rewards.flatten() + gamma * target_max * (1 - dones.flatten())

    def stable_baselines(q_values, actions, rewards, dones, next_q_values):
        with torch.no_grad():
            next_v = next_q_values.max(dim=1, keepdim=True).values
            gap = q_values.max(dim=1, keepdim=True).values - torch.gather(q_values, dim=1, index=actions.long())
            return rewards + (1 - dones) * 0.99 * next_v - 0.9 * gap

    def boolean(q, a, r, terminated, next_q, gamma):
        return np.where(~terminated, r + gamma * next_q.max(axis=1), r)

    def torch_boolean(q, a, r, done, next_q, discount):
        return r + discount * (~done) * next_q.max(dim=1).values.detach()

    assert check_target(cleanrl)
    assert check_target(cleanrl, gamma=0.95)
    assert check_target(cleanrl, gamma=np.float32(0.5)).gamma == 0.5
    found = check_target(stable_baselines, "al:0.9")
    assert (found.layout, found.gamma, repr(found)) == (
        "columns",
        0.99,
        "equal to al:0.9 on 147 transitions in columns (torch, discount 0.99)",
    )
    assert check_target(stable_baselines, "al:0.9")
    assert check_target(boolean)
    assert check_target(torch_boolean)
    wrong = check_target(stable_baselines, "al:0.9", gamma=0.9)
    assert "the discount is 0.99 instead of gamma" in wrong.mistake
    # A discount that the function is not given is its own affair.
    own = check_target(lambda q, a, r, done, next_q: r + 0.937 * (1 - done) * next_q.max(axis=-1))
    assert (bool(own), own.gamma) == (True, 0.937)
    assert not check_target(lambda q, a, r, done, next_q, gamma: r + 0.937 * (1 - done) * next_q.max(axis=-1))
    assert not check_target(lambda q, a, r, done, next_q: r + 0.0 * next_q.max(axis=-1))


def test_mistakes_of_functions_with_a_discount_of_their_own_are_named():
    def one(q, a, r, done, q2, *, alpha=0.9, masked=True):
        alive = 1 - done if masked else 1.0
        return r + 0.95 * alive * q2.max(axis=1) - alpha * gap(np, q, a)

    def pfrl(q, a, r, done, q2):
        return r + 0.95 * (1 - done) * best(np, q2) - 0.9 * np.minimum(gap(np, q, a), gap(np, q2, a))

    def smoothed(q, a, r, done, q2):
        return 0.1 * of(np, q, a) + 0.9 * (r + 0.95 * (1 - done) * best(np, q2)) + 0.5 * gap(np, q, a)

    cases = [
        ("al:0.9", partial(one, alpha=0.5), "it behaves like al:0.5"),
        ("al:0.9", partial(one, masked=False), "terminal states are ignored"),
    ]
    cases += [("pal-dqn:0.9", pfrl, "not masked"), ("sal:0.5,0.9", smoothed, "added instead of subtracted")]
    for operator, function, words in cases:
        found = check_target(function, operator)
        assert words in found.mistake
        assert found.gamma == 0.95
    # A mistake that is not known is shown with this discount, too.
    unknown = check_target(lambda q, a, r, done, q2: np.where(r > 0, r, 0) + 0.95 * (1 - done) * q2.max(axis=1))
    assert (unknown.mistake, unknown.gamma, unknown.transition["r"] <= 0) == (None, 0.95, True)


def test_parameters_with_other_names_are_read_in_order():
    assert check_target(lambda q, a, r, d, q2: r + d * q2.max(-1))
    assert check_target(lambda q, a, r, done, q2: r + 0.99 * (1 - done) * q2.max(-1))
    assert check_target(lambda *some: some[2] + some[3] * some[4].max(-1))
    listed = check_target(lambda one, two, three: one + 0.99 * (1 - three) * two.max(-1), inputs=("r_t", "q_t", "done"))
    assert listed


def test_where_the_discount_or_its_mask_is_missing():
    def persistent(q, a, r, discount, next_q):
        repeated = r + alive(np, discount) * of(np, next_q, a)
        return np.maximum(r + discount * best(np, next_q) - 0.9 * gap(np, q, a), repeated)

    def repeats(q, a, r, done, next_q, returned, gamma, *, returned_gamma=None, masks=(1, 1)):
        after, again = (1 - mask * done for mask in masks)
        there = (gamma if returned_gamma is None else returned_gamma) * again * of(np, q, a)
        return r + np.where(returned, there, gamma * after * best(np, next_q))

    def exchanged(r, terminated, truncated, next_q, gamma):
        return r + gamma * (1 - truncated) * best(np, next_q)

    assert check_target(repeats, "consistent")
    assert "missing in the persistence term" in check_target(persistent, "pal:0.9").mistake
    assert "missing where x' is x" in check_target(partial(repeats, returned_gamma=1.0), "consistent").mistake
    assert "ignored where x' is x" in check_target(partial(repeats, masks=(1, 0)), "consistent").mistake
    assert "exchanged" in check_target(exchanged).mistake


def test_terminal_states_and_truncation_with_flags():
    def ignores(q, a, r, done, next_q):
        return r + 0.99 * next_q.max(axis=1)

    def mixes(q, a, r, terminated, truncated, next_q, gamma):
        return r + gamma * (1 - np.maximum(terminated, truncated)) * next_q.max(axis=1)

    def right(q, a, r, terminated, truncated, next_q, gamma):
        return r + gamma * (1 - terminated) * next_q.max(axis=1)

    def reverses(q, a, r, done, next_q):
        return r + 0.99 * done * next_q.max(axis=1)

    assert check_target(right)
    assert "terminal states are ignored" in check_target(ignores).mistake
    assert "truncation is treated as terminal" in check_target(mixes).mistake
    assert "reversed" in check_target(reverses).mistake


@pytest.mark.parametrize(
    ("q_x", "q_next", "words"),
    [
        ("target", "target", None),
        ("online", "target", "Q(x, .) from the online network instead of the target network"),
        ("target", "online", "Q(x', .) from the online network instead of the target network"),
        ("online", "online", "all values from the online network instead of the target network"),
    ],
)
@pytest.mark.parametrize("operator", ["al:0.9", "pal-dqn:0.9", "munchausen:0.03,0.9"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_online_and_target_networks(operator, q_x, q_next, words, library):
    tools, formula = LIBRARIES[library], RIGHT[operator]

    def target(q_tm1, a_tm1, r_t, discount_t, q_t, target_q_tm1, target_q_t):
        x, after = {"target": target_q_tm1, "online": q_tm1}[q_x], {"target": target_q_t, "online": q_t}[q_next]
        return tools.stop(formula(tools.xp, x, a_tm1, r_t, discount_t, after))

    found = check_target(target, operator)
    assert found.equal == (words is None), found
    assert words is None or words in found.mistake


def test_mixtures_of_networks():
    def coach(q_tm1, a_tm1, r_t, done, q_t, target_q_tm1, target_q_t, gamma):
        chosen = q_t.argmax(axis=1)
        correction = np.minimum(gap(np, target_q_tm1, a_tm1), (1 - done) * (best(np, target_q_t) - of(np, target_q_t, chosen)))
        return r_t + gamma * (1 - done) * of(np, target_q_t, chosen) - 0.9 * correction

    def alone(q_tm1, a_tm1, r_t, done, q_t, target_q_tm1, target_q_t, gamma):
        return r_t + gamma * (1 - done) * of(np, target_q_t, q_t.argmax(axis=1))

    def double(q_tm1, a_tm1, r_t, done, q_t, target_q_tm1, target_q_t, gamma):
        return r_t + gamma * (1 - done) * of(np, target_q_t, q_t.argmax(axis=1)) - 0.9 * gap(np, target_q_tm1, a_tm1)

    def correction(q_tm1, a_tm1, r_t, done, q_t, target_q_tm1, target_q_t, gamma):
        both = np.minimum(gap(np, q_tm1, a_tm1), (1 - done) * gap(np, q_t, a_tm1))
        return r_t + gamma * (1 - done) * best(np, target_q_t) - 0.9 * both

    def half(q_tm1, a_tm1, r_t, done, q_t, target_q_tm1, target_q_t, gamma):
        return r_t + gamma * (1 - done) * best(np, target_q_t) - 0.9 * (best(np, target_q_tm1) - of(np, q_tm1, a_tm1))

    def returning(q_tm1, a_tm1, r_t, done, q_t, returned, target_q_tm1, target_q_t, gamma):
        return r_t + gamma * (1 - done) * np.where(returned, of(np, q_tm1, a_tm1), best(np, target_q_t))

    def moving(q_tm1, a_tm1, r_t, done, q_t, returned, target_q_tm1, target_q_t, gamma):
        return r_t + gamma * (1 - done) * np.where(returned, of(np, target_q_tm1, a_tm1), best(np, q_t))

    assert "x' is x (returned), it takes Q(x, a) from the online network" in check_target(returning, "consistent").mistake
    assert "x' is not x, it takes V(x') from the online network" in check_target(moving, "consistent").mistake
    for operator in ("pal:0.9", "pal-dqn:0.9"):
        assert "the greedy action instead of the replayed one, a_tm1" in check_target(alone, operator).mistake
    assert "the greedy action instead of the replayed one" in check_target(coach, "pal-dqn:0.9").mistake
    assert "as Double DQN does" in check_target(double, "al:0.9").mistake
    assert "from the online network instead of the target network" in check_target(correction, "pal-dqn:0.9").mistake
    assert "Q(x, a) from the online network and V(x) from the target network" in check_target(half, "al:0.9").mistake


def test_a_td_error_subtracts_the_online_value():
    def error(q_tm1, a_tm1, r_t, discount_t, q_t, target_q_tm1, target_q_t):
        return RIGHT["al:0.9"](np, target_q_tm1, a_tm1, r_t, discount_t, target_q_t) - of(np, q_tm1, a_tm1)

    assert check_target(error, "al:0.9", returns="td_error")

    def other(q_tm1, a_tm1, r_t, discount_t, q_t, target_q_tm1, target_q_t):
        return RIGHT["al:0.9"](np, target_q_tm1, a_tm1, r_t, discount_t, target_q_t) - of(np, target_q_tm1, a_tm1)

    assert "subtracts Q(x, a) of the target network" in check_target(other, "al:0.9", returns="td_error").mistake


def test_the_gap_times_gamma():
    def times(q, a, r, done, next_q, gamma):
        return r + gamma * (1 - done) * best(np, next_q) - gamma * 0.9 * gap(np, q, a)

    def persistent(q, a, r, done, next_q, gamma):
        left = r + gamma * (1 - done) * best(np, next_q) - gamma * 0.9 * gap(np, q, a)
        return np.maximum(left, r + gamma * (1 - done) * of(np, next_q, a))

    assert "multiplied by the discount, at terminal states too" in check_target(times, "al:0.9").mistake
    assert "the gap at x is multiplied by the discount" in check_target(persistent, "pal:0.9").mistake


def test_where_the_state_is_left_and_where_it_is_not():
    def function(wrong):
        def target(q_tm1, a_tm1, r_t, discount_t, q_t, returned):
            repeat, v = of(np, q_tm1, a_tm1), best(np, q_t)
            if wrong == "reversed":
                return r_t + discount_t * np.where(returned, v, of(np, q_t, a_tm1))
            return r_t + np.where(returned, repeat, discount_t * v)

        return target

    assert "returned is reversed" in check_target(function("reversed"), "consistent").mistake
    assert "the discount is missing where x' is x" in check_target(function("discount"), "consistent").mistake


def test_a_column_broadcast_against_a_row_is_named():
    def matrix(q_tm1, a_tm1, r_t, discount_t, q_t):
        return r_t + discount_t * q_t.max(axis=1, keepdims=True)

    def column(q_tm1, a_tm1, r_t, discount_t, q_t):
        return r_t[:, None] + discount_t[:, None] * q_t.max(axis=1, keepdims=True)

    found = check_target(matrix)
    assert not found
    assert "broadcasts a column" in found.mistake
    assert found.expected != found.got
    assert found.differing > 49
    assert "returns a column" in check_target(column).mistake
    assert " of " not in repr(check_target(column)).partition(":")[0]
    assert check_target(matrix, layout="columns")


def test_a_row_broadcast_against_columns_is_named():
    def rows(q_values, actions, rewards, dones, next_q_values, gamma):
        with torch.no_grad():
            correction = q_values.max(dim=1, keepdim=True).values - torch.gather(q_values, 1, actions)
            return rewards + (1 - dones) * gamma * next_q_values.max(dim=1).values - 0.9 * correction

    for options in ({}, {"layout": "columns"}):
        found = check_target(rows, "al:0.9", **options)
        assert "broadcasts a column" in found.mistake
        assert "keepdim=True" in found.mistake
        assert (found.layout, found.differing > 49) == ("columns", True)
    flat = made("numpy", RIGHT["bellman"])
    assert "layout='batch'" in check_target(flat, layout="columns").mistake
    # Of a function that works on a batch, the matrix for columns is not shown.
    assert check_target(lambda q_tm1, a_tm1, r_t, discount_t, q_t: r_t**2 + discount_t * q_t.max(-1)).mistake is None


def test_lost_precision_is_named():
    def half(q_tm1, a_tm1, r_t, discount_t, q_t):
        return (r_t + discount_t * q_t.max(axis=1)).astype(np.float32)

    def constant(q_tm1, a_tm1, r_t, discount_t, q_t):
        return r_t + discount_t * q_t.max(axis=1) - float(np.float32(0.9)) * gap(np, q_tm1, a_tm1)

    assert "the precision is lost: it returns float32" in check_target(half).mistake
    assert check_target(half, dtype="float32")
    assert not check_target(constant, "al:0.9")
    assert check_target(constant, "al:0.9", dtype="float32")
    assert check_target(constant, "al:0.9", rtol=1e-5)
    assert not check_target(made("numpy", WRONG["tiny"][1]))
    assert check_target(made("numpy", WRONG["tiny"][1]), atol=1e-6)


def test_flags_in_float32_hide_no_other_mistake():
    def target(q, action, reward, terminated, truncated, next_q, gamma, *, alpha=0.9, ends=lambda terminated, truncated: terminated):
        done = ends(terminated, truncated).float()
        gap = q.amax(1) - q.gather(1, action[:, None]).squeeze(1)
        return (reward + gamma * (1 - done) * next_q.amax(1) - alpha * gap).detach()

    assert "rounding of float32" in check_target(target, "al:0.9").mistake
    assert check_target(target, "al:0.9", dtype="float32")
    cases = [({"alpha": 0.5}, "it behaves like al:0.5"), ({"ends": torch.maximum}, "truncation is treated as terminal")]
    cases += [({"ends": lambda terminated, truncated: 0 * terminated}, "terminal states are ignored")]
    for options, words in cases:
        found = check_target(partial(target, **options), "al:0.9")
        assert words in found.mistake
        assert abs(found.expected - found.got) > 1e-3


@pytest.mark.parametrize("dtype", [None, "float32"])
@pytest.mark.parametrize(
    "half", [lambda y: y.astype(np.float16), lambda y: torch.as_tensor(y).bfloat16(), lambda y: jnp.asarray(y, jnp.bfloat16)]
)
def test_half_precision_is_too_little_for_float32(half, dtype):
    def target(q_tm1, a_tm1, r_t, discount_t, q_t):
        found = r_t + discount_t * q_t.max(axis=1)
        return found if found.dtype == np.float64 else half(found)

    found = check_target(target, library="numpy", dtype=dtype)
    assert not found
    assert "float16 for inputs in float32" in found.mistake
    assert "alone" not in found.mistake


@pytest.mark.parametrize("offset", [1e-8, 1e-6, 1e-3])
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_tiny_difference_is_one(library, offset):
    assert not check_target(made(library, lambda xp, q, a, r, d, n: r + d * best(xp, n) + offset))


def test_functions_that_change_their_inputs_are_judged_by_what_they_return():
    def in_place(q_tm1, a_tm1, r_t, discount_t, q_t):
        r_t += discount_t * q_t.max(axis=1)
        return r_t

    assert check_target(in_place)


def test_operators_of_users_are_checked():
    def mine(b):
        return ag.maximum(b.bellman - 0.5 * b.gap, b.repeat)

    function = made("numpy", lambda xp, q, a, r, d, n: xp.maximum(r + d * best(xp, n) - 0.5 * gap(xp, q, a), r + d * of(xp, n, a)))
    assert check_target(function, mine).operator == "mine"
    assert check_target(function, mine)
    other = made("numpy", lambda xp, q, a, r, d, n: r + d * best(xp, n) - 0.3 * gap(xp, q, a))
    assert "it computes al:0.3" in check_target(other, mine).mistake
    half = made("numpy", lambda xp, q, a, r, d, n: r + d * best(xp, n) - 0.75 * gap(xp, q, a))
    for name in ("al", "pal", "lazy", "sal", "munchausen"):
        named = FunctionType(mine.__code__, globals(), name)
        assert check_target(function, named).operator == name
        assert not check_target(half, named)
    assert check_target(half, parse("rso:0.5,1").at(0.5))


class Agent:
    """What functions of agents look like; all compute advantage learning with alpha 0.9."""

    alpha, gamma = 0.9, 0.97

    def target(self, q, action, reward, done, next_q):
        return reward + self.gamma * (1 - done) * next_q.max(-1) - self.alpha * gap(np, q, action)

    def __call__(self, q_values, actions, rewards, terminations, truncations, next_q_values, discount):
        return rewards + discount * np.where(terminations, 0.0, next_q_values.max(-1)) - self.alpha * gap(np, q_values, actions)

    @staticmethod
    def static(a, r, *, q_next, discounts, q):
        return r + discounts * q_next.max(-1) - 0.9 * gap(np, q, a)

    @classmethod
    def of_class(cls, q_tm1, a_tm1, r_t, discount_t, q_t, /, alpha=0.9):
        return r_t + discount_t * q_t.max(-1) - alpha * gap(np, q_tm1, a_tm1)


class Module(torch.nn.Module):
    @torch.no_grad()
    def forward(self, q, action, reward, terminated, next_q, gamma):
        corrected = next_q.amax(-1) * gamma * (~terminated)
        return reward + corrected - 0.9 * (q.amax(-1) - q.gather(-1, action[:, None]).squeeze(-1))


def with_alpha(alpha, q_tm1, a_tm1, r_t, discount_t, q_t):
    return r_t + discount_t * jnp.max(q_t, axis=-1) - alpha * gap(jnp, q_tm1, a_tm1)


def of_numbers(q, a, r, d, n):
    return r + d * max(n) - 0.9 * (max(q) - q[a])


def both_networks(a_tm1, reward, done, gamma, target_q, next_target_q, online_q, next_online_q):
    return reward + gamma * (1 - done) * next_target_q.max(-1) - 0.9 * gap(np, target_q, a_tm1) + 0.0 * (online_q + next_online_q).sum(-1)


def optional_network(q, a, r, discount, next_q, target_q=None):
    values = q if target_q is None else target_q
    return r + discount * next_q.max(-1) - 0.9 * gap(np, values, a)


FIVE = ("q_tm1", "a_tm1", "r_t", "discount_t", "q_t")
SIGNATURES: dict[str, tuple[Any, dict[str, Any]]] = {
    "method": (Agent().target, {}),
    "object": (Agent(), {}),
    "keywords": (Agent.static, {}),
    "positions": (Agent.of_class, {}),
    "module": (Module(), {}),
    "jit": (jax.jit(partial(with_alpha, 0.9)), {"gradients": False}),
    "jit with a constant": (partial(jax.jit(with_alpha, static_argnums=0), 0.9), {"gradients": False}),
    "vectorize": (np.vectorize(of_numbers, signature="(n),(),(),(),(n)->()"), {"inputs": FIVE}),
    "one transition": (of_numbers, {}),
    "loop": (lambda q, a, r, d, n: np.array([of_numbers(*row) for row in zip(q, a, r, d, n, strict=True)]), {"layout": "batch"}),
    "star": (lambda *some: of_numbers(*some), {"layout": "single"}),
    "inputs": (lambda n, d, q, a, r: r + d * n.max(-1) - 0.9 * gap(np, q, a), {"inputs": ("next_q", "discount", "q", "action", "reward")}),
    "two networks": (both_networks, {}),
    "an optional network": (optional_network, {}),
}


@pytest.mark.parametrize("case", SIGNATURES)
def test_functions_of_many_signatures_are_equal(case):
    function, options = SIGNATURES[case]
    found = check_target(function, "al:0.9", **options)
    assert found, found
    assert not check_target(function, "al:0.8", **options)


# Formulas of one transition in plain numbers: the right one, and one that is wrong on few transitions only.
def plain(q, a, r, d, n, alpha=0.9):
    return r + d * max(n) - alpha * (max(q) - q[a])


def plain_persistent(q, a, r, d, n, masked=True):
    return r + d * max(n) - 0.9 * min(max(q) - q[a], max(n) - n[a] if d or not masked else 0.0)


FEW: dict[str, tuple[str, Any, Any]] = {
    "three actions": ("al:0.9", plain, lambda q, a, r, d, n: r + d * max(n[:2]) - 0.9 * (max(q) - q[a])),
    "ties": ("al:0.9", plain, lambda q, a, r, d, n: plain(q, a, r, d, n) - 0.1 * (q[a] == max(q) and a != q.index(max(q)))),
    "negative values": ("bellman", partial(plain, alpha=0.0), lambda q, a, r, d, n: r + d * max(0.0, *n)),
    "large values": ("bellman", partial(plain, alpha=0.0), lambda q, a, r, d, n: r + d * min(max(n), 100.0)),
    "small gaps": ("al:0.9", plain, lambda q, a, r, d, n: plain(q, a, r, d, n, alpha=0.9 * (max(q) - q[a] > 0.1))),
    "discount of one": ("bellman", partial(plain, alpha=0.0), lambda q, a, r, d, n: r + min(d, 0.999) * max(n)),
    "clipped error": ("bellman", partial(plain, alpha=0.0), lambda q, a, r, d, n: q[a] + min(max(r + d * max(n) - q[a], -1.0), 1.0)),
    "terminal gaps": ("pal-dqn:0.9", plain_persistent, partial(plain_persistent, masked=False)),
    "first action": ("al:0.9", plain, lambda q, a, r, d, n: r + d * max(n) - 0.9 * (max(q) - q[0])),
    "self-loops": (
        "consistent",
        lambda q, a, r, d, n: r + d * (q[a] if q == n and any(q) else max(n)),
        lambda q, a, r, d, n: r + d * (min(q) if q == n and any(q) else max(n)),
    ),
}


@pytest.mark.parametrize("case", FEW)
def test_the_first_transition_that_differs_and_their_number_are_shown(case):
    operator, right, wrong = FEW[case]
    rows = [row for t in catalogue() for row in zip(*(t.inputs(FIVE)[name].tolist() for name in FIVE), strict=True)]
    apart = [row for row in rows if abs(right(*row) - wrong(*row)) > 1e-9 * max(map(abs, (1.0, *row[0], *row[4])))]
    assert check_target(right, operator, inputs=FIVE, layout="single") if case != "self-loops" else apart
    found = check_target(lambda *batch: np.array([wrong(*(x.tolist() for x in row)) for row in zip(*batch, strict=True)]), operator)
    assert (found.equal, found.count, found.differing) == (False, len(rows), len(apart))
    assert tuple(found.transition.values()) == apart[0]
    assert (found.expected, found.got) == (pytest.approx(right(*apart[0])), pytest.approx(wrong(*apart[0])))


EVERY = ("bellman", "consistent", "al:0.9", "pal:0.9", "pal-dqn:0.9", "lazy:0.9", "baird:0.5", "clipped-al:0.5,0.5", "sal:0.5,0.9")
EVERY += ("clipped-al:0.5,0.9", "munchausen:0.03,0.9", "dpp:0.1")


def other_transitions(gamma: float | None, seed: int) -> tuple[Batch, ...]:
    """Random transitions that the catalogue does not have."""
    rng, found = np.random.default_rng(seed), []
    for t in catalogue(gamma):
        scale = np.where(np.arange(len(t.a_tm1)) % 3 == 0, 0.05, 3.0)[:, None]
        q, n, online, next_online = (scale * rng.standard_normal(t.q_t.shape) for _ in range(4))
        n, next_online = np.where(t.returned[:, None], q, n), np.where(t.returned[:, None], online, next_online)
        numbers = {"q_tm1": q, "q_t": n, "online_q_tm1": online, "online_q_t": next_online}
        rewards = scale[:, 0] * rng.standard_normal(len(q))
        found.append(t._replace(**numbers, a_tm1=rng.integers(0, q.shape[1], len(q)), r_t=rewards))
    return tuple(found)


def as_function(targets: Any, names: tuple[str, ...]):
    """A function with inputs of these names that computes what a mistake does."""

    def function(q_tm1, a_tm1, r_t, gamma, q_t, online_q_tm1, online_q_t, terminated, truncated, returned):
        fields = (q_tm1, a_tm1, r_t, np.full(r_t.shape, gamma), q_t, online_q_tm1, online_q_t)
        return targets(Batch(*fields, terminated.astype(bool), truncated.astype(bool), returned))

    return function


@pytest.mark.parametrize("operator", EVERY)
def test_every_mistake_that_changes_the_target_of_any_transition_is_found(operator):
    operator, gamma = parse(operator), 0.97
    cases = [(one.sentence, one.targets) for one in mistakes(operator)]
    cases += [(fit.sentence, partial(fit.targets, guess)) for fit in fits(operator, done_flag=True) for guess in (0.33, 0.7)]
    checked = 0
    for sentence, targets in cases:
        try:
            differs = any(
                not np.allclose(targets(t), t.target(operator), rtol=1e-9, atol=1e-9)
                for seed in range(3)
                for t in other_transitions(gamma, seed)
            )
        except (AttributeError, ValueError):
            continue  # This operator cannot be computed so.
        # A maximum over the whole batch is right for one transition.
        found = check_target(as_function(targets, tuple(NAMES)), operator, gamma=gamma, layout="batch")
        # The number of `lazy` is a threshold, which targets do not tell exactly.
        threshold = operator.name == "lazy:0.9" and sentence.startswith("the gap at x is multiplied by the discount")
        assert threshold or found.equal == (not differs), (sentence, found)
        assert found.equal or found.mistake or operator.name == "lazy:0.9"
        checked += differs
    assert checked > 10


@pytest.mark.parametrize("operator", EVERY)
def test_transitions_are_constant_and_cover_what_they_should(operator):
    for one, other in zip(catalogue(), catalogue(), strict=True):
        assert all(np.array_equal(left, right) for left, right in zip(one, other, strict=True))
        assert one.terminated.any()
        assert (one.truncated & ~one.terminated).any()
        assert (one.discount_t == 0).any()
        assert (one.returned == (one.q_tm1 == one.q_t).all(axis=1))[abs(one.q_tm1).max(axis=1) > 0].all()
        assert np.isfinite(one.target(operator)).all()
        assert len(one.a_tm1) not in one.q_t.shape[1:]
        v, q = best(np, one.q_tm1), of(np, one.q_tm1, one.a_tm1)
        assert (one.terminated & (0.9 * v < q) & (q < v)).any()  # clipped-al corrects few others


def test_transitions_are_the_same_in_every_process():
    code, env = "from actiongap.api.transitions import catalogue; print(catalogue())", {**os.environ, "PYTHONHASHSEED": "1"}
    found = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert found.stdout == f"{catalogue()}\n"


BAD: dict[str, tuple[Any, dict[str, Any], str]] = {
    "no function": (3, {}, "a target function is needed, not a int: pass a function of q_tm1, a_tm1"),
    "raises": (lambda q, a, r, d, n: 1 // 0, {}, "fails on arrays of numpy in float64.*ZeroDivisionError.*correct it"),
    "exits": (lambda q, a, r, d, n: exit(3), {}, "SystemExit"),
    "shape": (lambda q, a, r, d, n: q, {}, r"returns an array of shape \(49, 2\) instead of \(49,\)"),
    "scalar": (lambda q, a, r, d, n: float(r.sum()) if r.ndim else q, {}, r"returns an array of shape \(\) instead of \(49,\)"),
    "nan": (lambda q, a, r, d, n: r * np.nan, {}, r"returns nan for q=\[.*return a finite target"),
    "infinity": (lambda q, a, r, d, n: np.exp(n).max(-1), {}, "returns inf for"),
    "nothing": (lambda q, a, r, d, n: None, {}, "returns None: return the target alone"),
    "a pair": (lambda q, a, r, d, n: (r, r), {}, "returns a tuple: return the target alone"),
    "complex numbers": (lambda q, a, r, d, n: r + 0j, {}, "returns a ndarray: return the target alone"),
    "complex tensors": (lambda q, a, r, d, n: torch.as_tensor(r) + 0j, {}, "returns a Tensor: return the target alone"),
    "a string": (lambda q, a, r, d, n: "target", {}, "returns a str: return"),
    "one parameter": (lambda batch: batch, {}, "requires batch, which is not a known input .*inputs="),
    "six parameters": (lambda q, a, r, d, n, alpha: r, {}, "requires d, n, alpha, which are not known inputs"),
    "no next values": (lambda r, discount: r, {}, "does not take q_t"),
    "twice": (lambda q, q_values, a, r, n: r, {}, "takes q_tm1 twice, as q and q_values"),
    "unknown inputs": (lambda q, a, r, d, n: r, {"inputs": ("observation",)}, "has the unknown name 'observation'"),
    "inputs as text": (lambda q, a, r, d, n: r, {"inputs": "q_tm1"}, "inputs is 'q_tm1': give a sequence"),
    "inputs as a number": (lambda q, a, r, d, n: r, {"inputs": 3}, "inputs is 3: give a sequence"),
    "unknown inputs of any number": (lambda *some: some[0], {"inputs": ("q_t", "observation")}, "has the unknown name 'observation'"),
    "two discounts": (lambda r, discount, gamma, next_q: r, {}, "takes discount and gamma without a done flag.*partial"),
    "another library": (
        lambda q, a, r, d, n: torch.amax(n, 1).numpy(),
        {},
        "fails on arrays of torch in float64.*with a result that is an array of numpy",
    ),
    "too many inputs": (lambda q, r: r, {"inputs": ("q_t", "r", "done")}, "takes 2 inputs, not 3"),
    "unknown operator": (made("numpy", RIGHT["bellman"]), {"operator": "advantage"}, "unknown operator 'advantage'"),
    "random operator": (made("numpy", RIGHT["bellman"]), {"operator": "rso:0,1"}, "random coefficient.*check one update's operator"),
    "failing operator": (made("numpy", RIGHT["bellman"]), {"operator": lambda b: b.nothing}, "fails with AttributeError"),
    "operator of nan": (
        made("numpy", RIGHT["bellman"]),
        {"operator": lambda b: b.bellman * np.nan},
        "targets of .* are not finite",
    ),
    "infinite operator": (made("numpy", RIGHT["bellman"]), {"operator": lambda b: b.bellman + np.inf}, "correct the operator"),
    "returns": (made("numpy", RIGHT["bellman"]), {"returns": "loss"}, "returns is 'loss': choose from target, td_error"),
    "library": (made("numpy", RIGHT["bellman"]), {"library": "tensorflow"}, "library is 'tensorflow': choose from numpy, torch, jax"),
    "layout": (made("numpy", RIGHT["bellman"]), {"layout": "rows"}, "layout is 'rows'"),
    "dtype": (made("numpy", RIGHT["bellman"]), {"dtype": "float16"}, "dtype is 'float16'"),
    "gamma": (made("numpy", RIGHT["bellman"]), {"gamma": 0}, r"gamma is 0: it must be a number in \(0, 1\]"),
    "gamma as a truth value": (made("numpy", RIGHT["bellman"]), {"gamma": True}, r"gamma is True: it must be a number in \(0, 1\]"),
    "gamma above one": (made("numpy", RIGHT["bellman"]), {"gamma": np.float32(1.5)}, "it must be a number"),
    "rtol": (made("numpy", RIGHT["bellman"]), {"rtol": -1}, "rtol is -1: it must be a number that is not negative"),
    "atol": (made("numpy", RIGHT["bellman"]), {"atol": None}, "atol is None: it must be a number"),
    "text": ("mine", {}, "does not name a function: write path/to/file.py:name or module:name"),
    "file": ("nothing.py:target", {}, "no such file"),
    "module": ("no_such_module:target", {}, "cannot be imported"),
    "name": ("math:target", {}, "the module math has no 'target'"),
    "not a function": ("math:pi", {}, "math:pi is not a function"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_answered_in_a_sentence(case):
    function, options, words = BAD[case]
    options = {"operator": "bellman"} | options
    with pytest.raises(ValueError, match=words) as raised:
        check_target(function, **options)
    assert "\n" not in str(raised.value)


def test_a_function_that_fails_in_one_library_is_tried_with_its_own():
    def in_torch(q_tm1, a_tm1, r_t, discount_t, q_t):
        return r_t + discount_t * torch.amax(q_t, 1).detach()

    assert check_target(in_torch).library == "torch"
    with pytest.raises(ValueError, match="fails on arrays of numpy"):
        check_target(in_torch, library="numpy")


@pytest.mark.parametrize(("ends", "words"), [(1, None), (0, "terminal states are ignored")])
def test_code_for_pytorch_that_numpy_accepts_is_recognized(ends, words):
    def target(reward, done, next_q, gamma):
        return reward + gamma * (1 - ends * done) * next_q.max(1)[0]

    found = check_target(target, gradients=False)
    assert found.library == "torch"
    assert words is None or words in found.mistake
    assert found.equal == (words is None)


def test_warnings_of_the_function_are_not_shown():
    def warns(q_tm1, a_tm1, r_t, discount_t, q_t):
        warnings.warn("old", DeprecationWarning, stacklevel=1)
        return r_t + discount_t * q_t.max(axis=1) + 0 * np.sqrt(abs(r_t) - r_t.size).astype(bool)

    assert check_target(warns)


def test_the_check_is_a_value():
    found = check_target(made("numpy", RIGHT["bellman"]), "al:0.9")
    assert isinstance(found, Check)
    assert found == check_target(made("numpy", RIGHT["bellman"]), "al:0.9")
    page = found._repr_html_()
    assert "Differs from al:0.9" in page
    assert "plain Bellman" in page
    assert "<script" not in Check(False, "<script>", None, None, None, "<script>", 1, 1, "numpy", "batch")._repr_html_()
    assert "Equal to bellman" in check_target(made("numpy", RIGHT["bellman"]))._repr_html_()


FILE = """
import numpy as np

def right(q_tm1, a_tm1, r_t, discount_t, q_t):
    return r_t + discount_t * q_t.max(axis=-1)

def loud(q_tm1, a_tm1, r_t, discount_t, q_t):
    print("called")
    return r_t + discount_t * q_t.max(axis=-1)

def flag(q, a, r, flag, n):
    return r + 0.9 * (1 - flag) * n.max(axis=-1)

def error(q_tm1, a_tm1, r_t, discount_t, q_t):
    return right(q_tm1, a_tm1, r_t, discount_t, q_t) - np.take_along_axis(q_tm1, a_tm1[:, None], 1)[:, 0]

def bad(batch):
    return batch
"""


def test_the_command_says_the_same(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(FILE)
    code, out, _ = run("check", "mine.py:right")
    assert (code, out) == (0, f"{check_target('mine.py:right')}\n")
    code, out, _ = run("check", "mine.py:loud", "--operator", "pal-dqn:0.9", "--json")
    found, expected = json.loads(out), check_target("mine.py:right", "pal-dqn:0.9")
    assert code == 1
    assert {name: found[name] for name in ("equal", "mistake", "transition", "expected", "got")} == {
        "equal": False,
        "mistake": expected.mistake,
        "transition": expected.transition,
        "expected": expected.expected,
        "got": expected.got,
    }
    assert run("check", "mine.py:flag", "--inputs", "q", "a", "r", "done", "next_q", "--gamma", "0.9")[0] == 0
    assert run("check", "mine.py:flag", "--inputs", "q", "a", "r", "done", "next_q", "--gamma", "0.8")[0] == 1
    assert run("check", "mine.py:error", "--returns", "td_error", "--library", "numpy", "--layout", "batch", "--dtype", "float64")[0] == 0
    monkeypatch.syspath_prepend(tmp_path)
    assert run("check", "mine:right", "--no-gradients")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["mine.py:bad"], "requires batch"),
        (["mine.py:nothing"], "has no function 'nothing'"),
        (["nothing.py:right"], "no such file"),
        (["mine.py:right", "--operator", "advantage"], "unknown operator"),
        (["mine.py:right", "--operator", "rso:0,1"], "random coefficient"),
        (["mine.py:right", "--returns", "loss"], "choose from"),
        (["mine.py:right", "--gamma", "2"], "gamma is 2.0"),
        ([], "FUNCTION is missing"),
    ],
)
def test_the_command_refuses_bad_input(run, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(FILE)
    code, out, err = run("check", *arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert err.startswith("actiongap: ")
    assert err.count("\n") == 1
