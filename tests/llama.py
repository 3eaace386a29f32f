"""llama.cpp in the tests: the real one, where the package that brings it is installed."""

import pytest

from serve.engines.llama import is_installed

with_llama = pytest.mark.skipif(not is_installed(), reason="xllamacpp is not installed: pip install 'modegraph[cpu]'")
