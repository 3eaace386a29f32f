"""Compare two indexes, array by array."""

from dataclasses import fields

import numpy as np
import scipy.sparse as sp

from graph.store.columns.moved import assembled
from graph.store.columns.strings import Strings
from graph.store.data import IndexData


def assert_same_index(a: IndexData, b: IndexData) -> None:
    for field in fields(IndexData):
        left, right = assembled(getattr(a, field.name)), assembled(getattr(b, field.name))
        message = f"{field.name} should be equal in both indexes"
        if isinstance(left, Strings):
            assert [left[i] for i in range(len(left))] == [right[i] for i in range(len(right))], message
        elif sp.issparse(left):
            assert left.shape == right.shape and (left != right).nnz == 0, message
        else:
            assert np.array_equal(left, right), message
