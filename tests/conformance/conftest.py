"""Lets tests import the oracle's modules as ``make oracle-fuzz`` does."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent))
