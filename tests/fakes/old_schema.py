"""Databases as earlier versions of advisor left them."""

from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine, text

_SOLO_ROW = text("""
INSERT INTO solo_points (
  point_id, job, gpu_model, gpu_uuid, mode, share_percent, rate, rate_unit, power_w, throttled,
  window_s, started_at, run, repeat, flags
) VALUES (
  :point_id, 'gemm', 'NVIDIA H200', 'GPU-1', 'mps', 50, :rate, 'steps', 300.5, true,
  5, :started_at, 'r1', 0, 'noisy-rate;throttled'
)
""")


def make_old(url: str, points: int, revision: str = "0001") -> None:
    """Make the tables of an old schema revision at an SQLAlchemy URL, with solo points in them."""
    engine = create_engine(url)
    config = Config()
    config.set_main_option("script_location", "advisor_data:migrations")
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
        rows = [
            {"point_id": f"{n:032}", "rate": n + 0.5, "started_at": f"2026-01-31T12:00:{n:02}Z"}
            for n in range(points)
        ]
        connection.execute(_SOLO_ROW, rows)
    engine.dispose()
