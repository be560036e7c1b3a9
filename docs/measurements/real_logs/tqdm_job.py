"""A loop with one tqdm bar for each epoch."""

from tqdm import tqdm
from work import Work, parser

work = Work(parser().parse_args(), batch=1)
for epoch in range(work.epochs):
    for _ in tqdm(range(work.steps_per_epoch), desc=f"Epoch {epoch}"):
        work.step()
