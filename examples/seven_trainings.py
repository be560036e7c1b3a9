"""Seven small trainings: on one GPU, or on separate ones? And how many of one are worth while?"""

import advisor

SMALL = "mobilenet-train-b2"

answer = advisor.recommend(f"{SMALL}*7", min_speed=0.1)
print(answer.verdict, answer.choice and answer.choice.split)
print(answer.to_frame()[["split", "isolates", "energy_saved", "gpu_time_saved", "violations"]])

copies = advisor.replicas(SMALL, min_speed=0.1)
if found := copies.replicas:
    print(f"{found.best} copies, ended by {found.ended_by}: {found.why}")
print(copies.to_frame()[["number", "rate", "speed", "power_w", "energy_saved"]].round(2))
