"""A `Trainer` of Hugging Face after `datasets.map`, with evaluation and logs."""

import time

import datasets
import torch
import transformers
from work import Work, parser

work = Work(parser().parse_args(), batch=4)


class Count(transformers.TrainerCallback):
    """Counts steps of the optimizer."""

    def on_step_end(self, args, state, control, **_):
        work.step()


def tokenize(row):
    """A row as the model reads it; slow, so that the bar of `map` is seen for a while."""
    time.sleep(0.005)
    return {"input_ids": [ord(c) % 64 for c in row["text"]], "labels": row["index"] % 2}


def rows(count):
    """So many tokenized rows, with the bar of `map`."""
    texts = {"text": ["a few words of text"] * count, "index": list(range(count))}
    return datasets.Dataset.from_dict(texts).map(tokenize, remove_columns=["text", "index"])


config = transformers.BertConfig(
    vocab_size=64,
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=32,
    num_labels=2,
)
trainer = transformers.Trainer(
    model=transformers.BertForSequenceClassification(config),
    args=transformers.TrainingArguments(
        output_dir="trainer",
        num_train_epochs=work.epochs,
        per_device_train_batch_size=work.batch,
        eval_strategy="epoch",
        save_strategy="no",
        logging_steps=10,
        report_to="none",
        use_cpu=True,
    ),
    train_dataset=rows(work.batch * work.steps_per_epoch),
    eval_dataset=rows(80),
    data_collator=lambda batch: {
        "input_ids": torch.tensor([row["input_ids"] for row in batch]),
        "labels": torch.tensor([row["labels"] for row in batch]),
    },
    callbacks=[Count()],
)
trainer.train()
