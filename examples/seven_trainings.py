"""Seven small trainings: on one GPU, or a card each? And how many of one are worth while?"""

import advisor

SMALL = "mobilenet-train-b2"

answer = advisor.recommend(f"{SMALL}*7", min_speed=0.1)
print(answer.verdict, answer.choice)
print(answer.to_frame()[["name", "isolates", "energy_saved", "gpu_time_saved", "violations"]])

copies = advisor.replicas(SMALL, min_speed=0.1)
print(f"{copies.best} copies, ended by {copies.ended_by}: {copies.why}")
print(copies.to_frame()[["number", "rate", "speed", "power_w", "energy_saved"]].round(2))
