"""`check`: compare a target function with an operator."""

from __future__ import annotations

import contextlib
import sys
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from actiongap.cli.common import Flag, Number, print_json


def check(
    function: Annotated[Positional[str], arg(metavar="FUNCTION")],
    operator: str = "bellman",
    returns: Literal["target", "td_error"] = "target",
    inputs: Annotated[tuple[str, ...] | None, arg(metavar="NAME", help_behavior_hint="")] = None,
    gamma: Number = None,
    library: Annotated[Literal["numpy", "torch", "jax"] | None, arg(metavar="numpy|torch|jax", help_behavior_hint="")] = None,
    layout: Annotated[Literal["batch", "columns", "single"] | None, arg(metavar="batch|columns|single", help_behavior_hint="")] = None,
    dtype: Annotated[Literal["float32", "float64"] | None, arg(metavar="float32|float64", help_behavior_hint="")] = None,
    gradients: Flag = True,
    rtol: Number = None,
    atol: float = 0.0,
    json: Flag = False,
) -> int:
    """Check whether a target function of your own computes an operator's target.

    Exits with 0 if it does, 1 if it computes something else.

    Args:
        function: The function, as path/to/file.py:name or module:name. It takes q_tm1, a_tm1, r_t, discount_t and q_t.
        operator: bellman, consistent, al:ALPHA, pal:ALPHA, pal-dqn:ALPHA, lazy:ALPHA, baird:K, clipped-al:ALPHA,C,
            sal:ALPHA,OMEGA, munchausen:TAU,ALPHA, dpp:TAU, cvi:ALPHA,BETA, mellowmax:OMEGA,
            or path/to/file.py:name.
        returns: What the function returns: the target, or the target minus Q(x, a).
        inputs: Inputs of the function in order, such as q_tm1 a_tm1 r_t done q_t; by default the names of its parameters.
        gamma: Discount for functions that take a done flag; by default 0.99, or whichever the function uses.
        library: Array library of the inputs; by default each is tried.
        layout: Shape of rewards and other inputs: (n,), (n, 1), or one transition; by default each is tried.
        dtype: Precision of the inputs; by default both are checked.
        gradients: Do not check that no gradient flows through the target.
        rtol: A number may differ by atol + rtol times the largest number of the transition; by default 1e-10 in float64, 1e-5 in float32.
        atol: Absolute tolerance.
        json: Print one JSON object.
    """
    from actiongap.api.targets import check_target

    # What the function prints is not part of the result.
    with contextlib.redirect_stdout(sys.stderr):
        found = check_target(
            function,
            operator,
            returns=returns,
            inputs=inputs,
            gamma=gamma,
            library=library,
            layout=layout,
            dtype=dtype,
            gradients=gradients,
            rtol=rtol,
            atol=atol,
        )
    if json:
        from dataclasses import asdict

        print_json(asdict(found))
    else:
        print(found)
    return 0 if found else 1
