"""Training and inference of well-known models, with random weights and random inputs.

`size` is tokens (bert, albert), pixels (vit, resnet50, mobilenet), decoder tokens (whisper) or
audio samples at 16 kHz (wav2vec2). The architectures are the published base configurations of
the `transformers` library; nothing is downloaded.

Inference runs in `--dtype`, weights included. Training keeps weights in 32 bits under autocast
to bf16, or is 32 bits throughout with `--dtype fp32`. With `--input-ms` images or texts come from a
loader on the CPU, one batch in so many milliseconds at most: then the GPU waits for its input.
"""

import argparse
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import harness
import torch
import transformers as hf
from torch.nn import functional

LOADS = {
    "bert": harness.Load(batch=128, size=256),
    "albert": harness.Load(batch=48, size=256),
    "vit": harness.Load(batch=128, size=224),
    "whisper": harness.Load(batch=16, size=64, tiny=8),
    "wav2vec2": harness.Load(batch=32, size=160_000, tiny=4_000),
    "resnet50": harness.Load(batch=256, size=224, tiny=64),
    "mobilenet": harness.Load(batch=256, size=224, tiny=64),
}
CLASSES = 1000
TINY: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}

Inputs = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Model:
    """A network and the maker of its random inputs, called with batch and size."""

    network: torch.nn.Module
    inputs: Callable[[int, int], Inputs]
    channels_last: bool = False


def _bert(tiny: bool, size: int) -> Model:
    """BERT base (Devlin et al. 2019), sequence classification."""
    config = hf.BertConfig(num_labels=CLASSES, **(TINY if tiny else {}))
    return Model(hf.BertForSequenceClassification(config), _tokens(config.vocab_size))


def _albert(tiny: bool, size: int) -> Model:
    """ALBERT base v2 (Lan et al. 2020), sequence classification."""
    base = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}
    config = hf.AlbertConfig(num_labels=CLASSES, **(TINY if tiny else base))
    return Model(hf.AlbertForSequenceClassification(config), _tokens(config.vocab_size))


def _vit(tiny: bool, size: int) -> Model:
    """ViT-B/16 (Dosovitskiy et al. 2021), image classification."""
    config = hf.ViTConfig(image_size=size, num_labels=CLASSES, **(TINY if tiny else {}))
    return Model(hf.ViTForImageClassification(config), _images)


def _whisper(tiny: bool, size: int) -> Model:
    """Whisper small (Radford et al. 2022): encoder and decoder over 30 s of log-mel frames."""
    width, layers, heads = (32, 2, 2) if tiny else (768, 12, 12)
    frames = 20 if tiny else 1500
    config = hf.WhisperConfig(
        d_model=width,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_ffn_dim=4 * width,
        decoder_ffn_dim=4 * width,
        max_source_positions=frames,
        use_cache=False,
    )

    def inputs(batch: int, tokens: int) -> Inputs:
        causal = torch.ones(tokens, tokens, dtype=torch.bool).tril()
        return {
            # The first convolution halves the frames; log-mel features are scaled to about -1..1.
            "input_features": torch.randn(batch, config.num_mel_bins, 2 * frames),
            "decoder_input_ids": torch.randint(1, config.vocab_size, (batch, tokens)),
            # Without a ready mask the library asks the GPU, and waits, whether one is needed.
            "decoder_attention_mask": causal.expand(batch, 1, tokens, tokens),
        }

    return Model(hf.WhisperForConditionalGeneration(config), inputs)


def _wav2vec2(tiny: bool, size: int) -> Model:
    """Wav2Vec2 base (Baevski et al. 2020) with a CTC head, on normalised waveforms."""
    return Model(
        hf.Wav2Vec2ForCTC(hf.Wav2Vec2Config(**(TINY if tiny else {}))),
        lambda batch, samples: {"input_values": torch.randn(batch, samples)},
    )


def _resnet50(tiny: bool, size: int) -> Model:
    """ResNet-50 (He et al. 2016), channels last."""
    small: dict[str, Any] = {"embedding_size": 8, "hidden_sizes": [8] * 4, "depths": [1] * 4}
    config = hf.ResNetConfig(num_labels=CLASSES, **(small if tiny else {}))
    return Model(hf.ResNetForImageClassification(config), _images, channels_last=True)


def _mobilenet(tiny: bool, size: int) -> Model:
    """MobileNetV2 (Sandler et al. 2018), channels last."""
    # Without TensorFlow's padding, which is worked out in Python for each layer and step.
    config = hf.MobileNetV2Config(
        num_labels=CLASSES, tf_padding=False, depth_multiplier=0.35 if tiny else 1.0
    )
    return Model(hf.MobileNetV2ForImageClassification(config), _images, channels_last=True)


BUILDERS = {
    "bert": _bert,
    "albert": _albert,
    "vit": _vit,
    "whisper": _whisper,
    "wav2vec2": _wav2vec2,
    "resnet50": _resnet50,
    "mobilenet": _mobilenet,
}


def _build(args: argparse.Namespace) -> harness.Work:
    """The step of the chosen model; its progress is samples."""
    model = BUILDERS[args.name](args.tiny, args.size)
    return _training(model, args) if args.train else _inference(model, args)


def _inference(model: Model, args: argparse.Namespace) -> harness.Work:
    dtype = harness.torch_type(args.dtype or "bf16")
    network = _placed(model.network.eval().to(dtype), model)
    batches = (
        _from_storage(model, dtype, args)
        if args.input_ms
        else harness.rotating(lambda: cast(model.inputs(args.batch, args.size), dtype, model))
    )
    fixed = next(batches)
    return harness.Work(
        lambda: network(**next(batches)).logits, args.batch, lambda: network(**fixed)
    )


def _training(model: Model, args: argparse.Namespace) -> harness.Work:
    dtype = harness.torch_type(args.dtype or "bf16")
    if args.name not in ("bert", "albert", "vit", "resnet50", "mobilenet"):
        raise SystemExit(f"{args.name} runs inference only: leave --train away")
    if dtype is torch.float16:
        raise SystemExit("training in fp16 needs loss scaling: use --dtype bf16 or fp32")
    network = _placed(model.network.train(), model)
    # So slow that the weights stay as random as they began, however long the job runs.
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-6, fused=True)
    reduced = dtype is not torch.float32

    def batch() -> tuple[Inputs, torch.Tensor]:
        inputs = cast(model.inputs(args.batch, args.size), torch.float32, model)
        return inputs, torch.randint(CLASSES, (args.batch,))

    if args.input_ms:
        labels = torch.randint(CLASSES, (args.batch,))
        batches = ((inputs, labels) for inputs in _from_storage(model, torch.float32, args))
    else:
        batches = harness.rotating(batch)
    fixed = next(batches)

    def backward(inputs: Inputs, labels: torch.Tensor) -> torch.Tensor:
        with torch.autocast(args.device, dtype) if reduced else contextlib.nullcontext():
            loss = functional.cross_entropy(network(**inputs).logits, labels)
        loss.backward()
        return loss

    def step() -> torch.Tensor:
        loss = backward(*next(batches))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    def gradients() -> list[torch.Tensor]:
        dropouts = {m: m.p for m in network.modules() if isinstance(m, torch.nn.Dropout)}
        # Nothing is dropped here: which elements are depends on the number of SMs.
        for module in dropouts:
            module.p = 0.0
        loss = backward(*fixed)
        for module, chance in dropouts.items():
            module.p = chance
        gradients = [p.grad for p in network.parameters() if p.grad is not None]
        optimizer.zero_grad(set_to_none=True)
        return [loss, *gradients]

    return harness.Work(step, args.batch, gradients)


def _from_storage(model: Model, dtype: torch.dtype, args: argparse.Namespace) -> Iterator[Inputs]:
    """Batches from a loader: texts, or bytes scaled on the device to mean 0 and variance 1."""
    if args.name in ("bert", "albert"):
        # Below 30,000: of the vocabulary of every model of texts.
        read = harness.token_reader(args.batch, args.size, 30_000, args.seed)
    elif args.name in ("vit", "resnet50", "mobilenet"):
        read = harness.image_reader(args.batch, args.size, args.seed)
    else:
        raise SystemExit(f"{args.name} reads no images or texts: leave --input-ms away")

    def read_pinned() -> torch.Tensor:
        batch = torch.from_numpy(read())
        # Pinned, so that the copy to the GPU does not stop the CPU.
        return batch.pin_memory() if args.device == "cuda" else batch

    def placed(batch: torch.Tensor) -> Inputs:
        batch = batch.to(args.device, non_blocking=True)
        if batch.ndim == 2:
            return {"input_ids": batch}
        pixels = batch.permute(0, 3, 1, 2)
        # Bytes that are all as likely have the mean 127.5 and the standard deviation 73.9.
        return cast({"pixel_values": pixels.float().sub_(127.5).div_(73.9)}, dtype, model)

    batches = harness.prefetched(read_pinned, args.input_ms / 1000, harness.process_seed(args))
    return map(placed, batches)


def _placed(network: Any, model: Model) -> Any:
    return network.to(memory_format=torch.channels_last) if model.channels_last else network


def cast(inputs: Inputs, dtype: torch.dtype, model: Model) -> Inputs:
    """Inputs in the precision and memory layout that the model wants."""
    layout = torch.channels_last if model.channels_last else torch.contiguous_format
    return {
        name: value.to(dtype, memory_format=layout) if value.is_floating_point() else value
        for name, value in inputs.items()
    }


def _tokens(vocabulary: int) -> Callable[[int, int], Inputs]:
    # From 1: token 0 is padding, whose embedding is zero.
    return lambda batch, tokens: {"input_ids": torch.randint(1, vocabulary, (batch, tokens))}


def _images(batch: int, pixels: int) -> Inputs:
    return {"pixel_values": torch.randn(batch, 3, pixels, pixels)}


if __name__ == "__main__":
    parser = harness.parser(__doc__, LOADS)
    parser.add_argument("--train", action="store_true", help="forward, backward, optimizer")
    parser.add_argument(
        "--input-ms", type=float, default=0, help="read from a storage this slow per batch"
    )
    harness.run(_build, harness.options(parser, LOADS))
