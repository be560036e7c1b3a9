"""`YOLO.train` of Ultralytics: the nano model on made-up images of 32 px."""

import tempfile
from pathlib import Path

from ultralytics import YOLO
from work import Work, parser, write_images

work = Work(parser().parse_args(), batch=2)
with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    for part, count in {"train": work.batch * work.steps_per_epoch, "val": 20}.items():
        write_images(folder / "images" / part, count)
        for image in (folder / "images" / part).rglob("*.png"):
            label = Path(str(image).replace("/images/", "/labels/")).with_suffix(".txt")
            label.parent.mkdir(parents=True, exist_ok=True)
            label.write_text("0 0.5 0.5 0.4 0.4\n")
    data = folder / "data.yaml"
    data.write_text(f"path: {folder}\ntrain: images/train\nval: images/val\nnames: [thing]\n")
    model = YOLO("yolov8n.yaml")
    model.add_callback("on_train_batch_end", lambda _: work.step())
    model.train(
        data=str(data),
        epochs=work.epochs,
        imgsz=32,
        batch=work.batch,
        device="cpu",
        workers=0,
        plots=False,
        amp=False,
        project=str(folder / "runs"),
    )
