"""A notebook in percent format: each `# %%` begins a cell. examples/README.md says how."""

# pyright: basic
# %% [markdown]
# # What sharing a GPU saves, and what fairness costs
#
# The measured points as a frame, an answer for two jobs, and the frontier between the slower job's
# speed and the energy saved.

# %%
import matplotlib.pyplot as plt

import advisor

# %% [markdown]
# ## The measured points
#
# Each row is two jobs at one split: their rates, the power, and relative to each job alone their
# speeds and the energy saved.

# %%
pairs = advisor.load_dataset("pairs")
best = pairs[pairs["flags"] == ""].groupby(["job_1", "job_2"])["energy_saved"].max()
print(f"{len(pairs)} points of {len(best)} pairs")
print(best.sort_values(ascending=False).head(5).round(2))

# %% [markdown]
# ## An answer
#
# The same as `advisor recommend mobilenet-train-b2 triad`, with every way as a row.

# %%
FIRST, SECOND = "mobilenet-train-b2", "triad"
answer = advisor.recommend(FIRST, SECOND, every=True)
ways = answer.to_frame()
print(answer.verdict, answer.choice.split)
print(ways[["split", "speed_1", "speed_2", "power_w", "energy_saved"]].round(2))

# %% [markdown]
# ## The frontier
#
# To the right the slower job is faster, upwards the same work takes less energy. Dots are
# predicted, crosses measured.

# %%
measured = pairs[(pairs["job_1"] == FIRST) & (pairs["job_2"] == SECOND)]
figure, axes = plt.subplots()
axes.scatter(ways[["speed_1", "speed_2"]].min(axis=1), ways["energy_saved"], label="predicted")
axes.scatter(
    measured[["speed_1", "speed_2"]].min(axis=1),
    measured["energy_saved"],
    marker="x",
    label="measured",
)
for way in ways.itertuples():
    axes.annotate(way.split, (min(way.speed_1, way.speed_2), way.energy_saved))
axes.set_xlabel("speed of the slower job, part of its speed alone")
axes.set_ylabel("energy saved for the same work")
axes.legend()
plt.show()
