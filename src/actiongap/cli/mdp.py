"""`solve`: plan on a finite MDP. `prove`: check the conditions of Theorem 1 for an operator."""

from __future__ import annotations

from typing import Annotated, Literal

from tyro.conf import Positional, arg

from actiongap.cli.common import File, Flag, Integer, Number, print_json


def solve(
    mdp: Annotated[Positional[str], arg(metavar="MDP")],
    operator: str = "bellman",
    gamma: Number = None,
    epsilon: Number = None,
    slip: Number = None,
    seed: Integer = None,
    tol: Number = None,
    eta: float = 1.0,
    engine: Literal["auto", "arrays", "numba", "jax"] = "auto",
    method: Literal["auto", "iterate", "value-iteration", "modified-policy-iteration", "policy-iteration"] = "auto",
    max_sweeps: Integer = None,
    json: Flag = False,
    arrays: Flag = False,
    out: File = None,
) -> int:
    """Solve a finite MDP with any operator, to a certified error.

    Args:
        mdp: cake, single-state, chain:N, ring:N, gridworld:ROWS,COLUMNS, garnet:STATES,ACTIONS,BRANCHING, gym/ID, FILE.npz, or a file
            of PRISM or Storm, FILE.tra or FILE.drn.
        operator: bellman, consistent, al:ALPHA, pal:ALPHA, pal-dqn:ALPHA, lazy:ALPHA, baird:K, al-schedule:C,
            clipped-al:ALPHA,C, sal:ALPHA,OMEGA, or path/to/file.py:name.
        gamma: Discount factor, in [0, 1); by default that of the MDP.
        epsilon: Parameter epsilon of the cake.
        slip: Probability of slipping, in a chain or gridworld.
        seed: Seed of a garnet.
        tol: Certified error |V - V*| to reach; by default 1e-10, or the smallest that float64 can certify.
        eta: Step size of a sweep, in (0, 1].
        engine: Library that computes the sweeps; auto chooses by the size of the MDP.
        method: How V* is computed; auto chooses by the rates that it observes, and iterate iterates the operator itself.
        max_sweeps: Maximum number of sweeps; by default a large multiple of 1 / (1 - gamma).
        json: Print one JSON object. Its `note` says which state was added to a Gymnasium environment.
        arrays: Include arrays of more than 10,000 numbers in the JSON.
        out: .npz file to write q, v, policy and gaps to.
    """
    from actiongap.mdp.generators import load_mdp
    from actiongap.mdp.solve import check_solution_file
    from actiongap.mdp.solve import solve as solve_mdp

    if out is not None:
        check_solution_file(out)
    model = load_mdp(mdp, gamma=gamma, epsilon=epsilon, slip=slip, seed=seed)
    solution = solve_mdp(model, operator, tol=tol, eta=eta, engine=engine, method=method, max_sweeps=max_sweeps, throw=False)
    if out is not None and solution.converged:
        solution.save(out)
    if json:
        print_json({**solution.as_json(arrays=arrays), "mdp": mdp})
    else:
        from actiongap.reporting.terminal import show_solution

        show_solution(model, solution, out)
    return 0 if solution.converged else 1


def prove(operator: Annotated[Positional[str], arg(metavar="OPERATOR")], gamma: Number = None, json: Flag = False) -> int:
    """Prove that an operator preserves optimality on every MDP, by Theorem 1 or its extensions, or find a counterexample.

    Exits with 0 if it is proved, 1 if a condition is violated and no other theorem applies, 3 if undecided.

    Args:
        operator: bellman, consistent, al:ALPHA, pal:ALPHA, pal-dqn:ALPHA, lazy:ALPHA, baird:K, al-schedule:C, clipped-al:ALPHA,C,
            rso:LOW,HIGH, sal:ALPHA,OMEGA, or path/to/file.py:name.
        gamma: Prove for this discount only; by default for all discounts.
        json: Print one JSON object.
    """
    from actiongap.mdp.witness import prove as prove_operator

    verdict = prove_operator(operator, gamma)
    if json:
        print_json(verdict.as_json())
    else:
        from actiongap.reporting.terminal import show_verdict

        show_verdict(verdict)
    return verdict.exit_code
