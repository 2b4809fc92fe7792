"""Failed asserts of lab show their values, as those of tests do: a plugin before any that imports it."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("lab")
