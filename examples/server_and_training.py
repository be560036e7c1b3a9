"""A server beside a training: the server keeps its demand, the training takes what is left."""

import advisor

SERVER, TRAINING = "bert-serve-30", "mobilenet-train-b2"

answer = advisor.recommend(SERVER, TRAINING, min_speed={TRAINING: 0.3}, max_p99={SERVER: "50ms"})
ways = answer.to_frame()
kept = ways[ways["violations"] == ""].sort_values("energy_saved", ascending=False)
print(kept[["split", "speed_1", "speed_2", "energy_saved", "gpu_time_saved"]].round(2))
print(answer.verdict, answer.choice.split, *answer.reasons[:1])
