"""What studies of deep agents share, whatever the games are.

`operators` names what is compared, and `runs` reads agents back. `comparing` sets two of them side by side, seed by seed. `curves` shows
how they learn, `scores` what they score in the end, `counts` the paper's counts beside ours, `alphas` what alpha does, `bias` how far
values are too high, and `hypothesis` whether wider gaps go with values that are less so.
"""
