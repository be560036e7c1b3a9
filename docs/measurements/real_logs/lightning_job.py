"""A `Trainer` of Lightning with its tqdm or Rich bar, its sanity check and validation."""

import lightning
import torch
from lightning.pytorch.callbacks import RichProgressBar, TQDMProgressBar
from work import Work, parser

options = parser()
options.add_argument(
    "--rich", action="store_true", help="draw with Rich, which is silent in a pipe"
)
options = options.parse_args()
work = Work(options, batch=8)


class Count(lightning.Callback):
    """Counts batches of training."""

    def on_train_batch_end(self, *_):
        work.step()


class Model(lightning.LightningModule):
    """One layer."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(16, 2)

    def training_step(self, batch, index):
        loss = torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, index):
        loss = torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])
        self.log("val_loss", loss, prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


def loader(steps):
    """Random samples for so many steps."""
    samples, labels = torch.rand(work.batch * steps, 16), torch.randint(0, 2, (work.batch * steps,))
    return torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(samples, labels), batch_size=work.batch
    )


trainer = lightning.Trainer(
    max_epochs=work.epochs,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    callbacks=[Count(), RichProgressBar() if options.rich else TQDMProgressBar()],
)
trainer.fit(Model(), loader(work.steps_per_epoch), loader(10))
