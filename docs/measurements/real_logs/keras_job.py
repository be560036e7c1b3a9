"""`model.fit` of Keras with validation; KERAS_BACKEND=jax is set outside."""

import keras
import numpy as np
from work import Work, parser

work = Work(parser().parse_args(), batch=32)


class Count(keras.callbacks.Callback):
    """Counts batches of training."""

    def on_train_batch_end(self, batch, logs=None):
        work.step()


samples = np.random.rand(work.batch * work.steps_per_epoch, 16).astype("float32")
labels = np.random.randint(0, 2, len(samples))
model = keras.Sequential([keras.layers.Dense(32, activation="relu"), keras.layers.Dense(2)])
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(optimizer="adam", loss=loss, metrics=["accuracy"])
held_out = (samples[:320], labels[:320])
model.fit(
    samples,
    labels,
    batch_size=work.batch,
    epochs=work.epochs,
    validation_data=held_out,
    callbacks=[Count()],
)
