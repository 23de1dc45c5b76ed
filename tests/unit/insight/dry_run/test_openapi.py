"""The committed OpenAPI document."""

from __future__ import annotations

from pathlib import Path

import pytest

from proreus.insight.dry_run.openapi import main

DOCUMENT = Path(__file__).parents[4] / "docs" / "dry-run.openapi.json"


def test_the_committed_document_is_current(capsys: pytest.CaptureFixture[str]) -> None:
    main()
    again = "python -m proreus.insight.dry_run.openapi > docs/dry-run.openapi.json"
    assert capsys.readouterr().out == DOCUMENT.read_text(), again
