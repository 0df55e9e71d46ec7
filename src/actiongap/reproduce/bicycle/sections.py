"""The bicycle on the page: how its riders fare, what lies between the grid points, what other settings do, and every run there is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from actiongap.lab.records import Records
from actiongap.report.page import Block, Prose, Section
from actiongap.report.summary import provenance_of
from actiongap.report.summary import sections as study_sections
from actiongap.reproduce.bicycle.frequencies import frequencies
from actiongap.reproduce.bicycle.pictures import between_pictures, film_picture, ride_pictures
from actiongap.reproduce.bicycle.runs import Plan, Plans, read_plans
from actiongap.reproduce.bicycle.studies import OPERATORS, QUESTIONS
from actiongap.reproduce.bicycle.variations import variations

STORY = """A bicycle is to be kept upright and ridden to a goal 1 km away, a hundredth of a second at a time. Value iteration works on a
coarse grid over six numbers: the tilt and the handlebar, how fast both turn, how far the heading is off the goal, and how far the goal is.
Between the grid points Q is interpolated, and the policy greedy in the interpolated Q is what rides. A ride ends in a fall, at the goal, or
after 100,000 steps, somewhere else.

Much is left open by the paper and read here so: who has fallen pays c for ever, with c as printed; tilt and handlebar have exchanged the
ranges that are printed for them; rides start 1 km south of the goal, their headings spread evenly all around; every pair of grid point and
action draws noise of its own at every sweep."""

BETWEEN = """All riding takes place between the grid points. There the value of an action is the mean of its values at the corners around,
and the best of these means is at most the mean of what is best at each corner: it falls short where corners disagree about what is best,
and by the more, the wider their gaps are. So widening gaps changes values between the points even where it changes none at them."""

TABLES = ("Scores", "Cost of a run", "Runs that failed")
"""What of the usual report of runs is shown: the rest is told above, in the bicycle's own words."""


def sections(out: Path) -> list[Section]:
    """What the page shows of a folder in which all of the studies were run, or some, or none."""
    plans, records = read_plans(out)
    main = main_plans(plans)
    first: list[Block] = [Prose(STORY)]
    if left := [f"{name} ({question})" for name, question in QUESTIONS.items() if not (out / name / "runs").is_dir()]:
        first.append(Prose(f"Not run in this folder: {'; '.join(left)}. The scales gpu and paper run everything."))
    between: list[Block] = [Prose(BETWEEN), *between_pictures(main)]
    if main:
        source = provenance_of(run for group in main.values() for run in group.runs)
        first += [*frequencies(main, source), *ride_pictures(main), film_picture(out, main)]
    made = [Section("The bicycle (Figures 2, 3 and 6)", tuple(first)), Section("The bicycle between the grid points", tuple(between))]
    if varied := variations(plans):
        made.append(Section("The bicycle varied", tuple(varied)))
    # What is recorded changes no number, so it need not tell runs apart.
    plain = tuple(replace(run, spec={name: value for name, value in run.spec.items() if name != "record"}) for run in records.runs)
    every = [block for section in study_sections(Records(plain, ())) for block in section.blocks if getattr(block, "title", "") in TABLES]
    return [*made, Section("The bicycle's runs", tuple(every))] if every else made


def main_plans(plans: Plans) -> Plans:
    """The plans of the paper's operators on its grids: the study `operators`.

    Examples
    --------
    >>> main_plans({})
    {}
    """
    grids = {plan.grid for plan, group in plans.items() if any(run.folder.parents[1].name == "operators" for run in group.runs)}
    wanted = {Plan(operator, grid) for operator in OPERATORS for grid in grids}
    return {plan: group for plan, group in plans.items() if plan in wanted and any(len(run.rows["step"]) for run in group.runs)}
