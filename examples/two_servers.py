"""Two servers on one GPU: does each keep the p99 that its users were told?"""

import advisor

answer = advisor.recommend("bert-serve-30", "bert-serve-10", max_p99="50ms")
print(answer.verdict, answer.choice.split)
for job in answer.choice.jobs:
    tail = job.latency_p99_ms
    print(f"{job.job}: {job.speed.value:.0%} of its demand, p99 {tail.high:.0f} ms at most")
print(f"{answer.choice.energy_saved.value:.0%} less energy for the same requests")
print(f"start them: advisor launch {' '.join(job.job for job in answer.jobs)}")
