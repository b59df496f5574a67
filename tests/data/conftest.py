import urllib.request
from urllib.error import URLError

import pytest


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """No network: every address is unreachable."""

    def unreachable(*args: object, **kwargs: object) -> None:
        raise URLError("network is unreachable")

    monkeypatch.setattr(urllib.request, "urlopen", unreachable)
