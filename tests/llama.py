"""A marker that skips tests of llama.cpp if the package xllamacpp is not installed."""

import pytest

from serve.engines.llama import is_installed

with_llama = pytest.mark.skipif(not is_installed(), reason="xllamacpp is not installed: pip install 'modegraph[cpu]'")
