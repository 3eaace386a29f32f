"""Where the packages lie: the folder that is on Python's path."""

from pathlib import Path

HOME = Path(__file__).resolve().parents[2]
