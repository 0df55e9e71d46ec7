"""A simulator of your own, a cart on a road in the wind: plan with it, and use the policy. Try `python examples/plan_simulator.py`.

The same on the command line: `actiongap plan examples/plan_simulator.py:simulator --operator consistent --grid 41 --eta 0.5`.
"""

import actiongap as ag
from actiongap.maths import clip, where


def step(x, a, u):
    """Make a step of 0.1 s, pushed by the action and the wind. It costs 1; leaving the road costs 100."""
    position, speed = x
    speed = clip(speed + 0.1 * (a - 1 + u), -2.0, 2.0)
    x = (position + 0.1 * speed, speed)
    return ag.Outcome(x, where(off_road(x), -100.0, -1.0), off_road(x) | parked(x))


def parked(x):
    return (abs(x[0]) < 0.1) & (abs(x[1]) < 0.1)


def off_road(x):
    return abs(x[0]) > 5.0


simulator = ag.Simulator(
    "cart",
    step,
    state={"position": (-5.0, 5.0), "speed": (-2.0, 2.0)},
    actions=("back", "coast", "forward"),
    noise=ag.Uniform(-0.5, 0.5),
    outcomes={"goal": parked, "fall": off_road},
    start={"position": (-4.0, 4.0), "speed": (-1.0, 1.0)},
    max_episode_steps=200,
    seconds_per_step=0.1,
)


def main(out="out/cart"):
    """Plan, evaluate the policy, step through the environment with it, and write the policy and a video."""
    print(simulator.check(grid=41))
    # Run it again to continue a plan that was interrupted; with out=None, nothing is written.
    policy = ag.plan(simulator, "consistent", grid=41, iterations=400, eta=0.5, out=out)
    print(policy)
    print(policy.evaluate(episodes=100))

    env = simulator.env()
    observation, info = env.reset(seed=0)
    terminated = truncated = False
    while not (terminated or truncated):
        observation, _, terminated, truncated, info = env.step(policy.act(observation))
    print(f"{info['outcome']} at position {observation[0]:.2f}")

    policy.save(f"{out}/cart.npz")
    loaded = ag.load_policy(f"{out}/cart.npz", simulator=simulator)
    print(f"wrote {loaded.video(f'{out}/cart.gif').gif}")


if __name__ == "__main__":
    main()
