"""docs/metrics.md is what the declarations say, and docs/alerts.md has every alert."""

from __future__ import annotations

import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "metrics.md"


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = spec_from_file_location("metrics_page", ROOT / "docs" / "metrics_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_committed_page_is_up_to_date(generator: ModuleType) -> None:
    assert PAGE.read_text() == generator.page(), "docs/metrics.md is stale: make metrics-page"


def test_it_has_every_metric_that_is_named_in_the_source() -> None:
    named = {
        name
        for file in (ROOT / "src" / "proreus").rglob("*.py")
        for name in re.findall(r'^ +"((?:proreus|scheduler)_[a-z_]+)",$', file.read_text(), re.M)
    }
    listed = set(re.findall(r"^\| `([a-z_]+)` \|", PAGE.read_text(), re.M))
    assert len(named) > 5
    assert named <= listed


def test_every_alert_is_explained_with_its_severity_and_its_time() -> None:
    rules = yaml.safe_load((ROOT / "deploy" / "monitoring" / "rules.yaml").read_text())
    alerts = [rule for group in rules["spec"]["groups"] for rule in group["rules"]]
    expected = [
        (rule["alert"], f"{rule['labels']['severity']}, {rule.get('for', 'at once')}")
        for rule in alerts
    ]
    text = (ROOT / "docs" / "alerts.md").read_text()
    assert re.findall(r"^\| (Proreus\w+) \| ([^|]+) \|", text, re.M) == expected
    assert f"the {len(alerts)} alerts" in (ROOT / "docs" / "operating.md").read_text()
