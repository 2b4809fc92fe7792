"""What travels in the wheel from elsewhere is what hack/vendor fetched, with its licence."""

from __future__ import annotations

from hashlib import sha256

import pytest

from elasticjob.page.files import FOLDER

FILES = {
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "uPlot.LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}


@pytest.mark.parametrize("name", FILES)
def test_vendored_files_are_unchanged(name: str) -> None:
    assert sha256((FOLDER / name).read_bytes()).hexdigest() == FILES[name]


def test_the_licence_is_beside_the_library() -> None:
    assert (FOLDER / "uPlot.LICENSE").read_text().startswith("The MIT License")
