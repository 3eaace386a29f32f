"""Words of the question in the target of a link raise the worth of the link."""

import numpy as np

from graph.retrieve.hops.mode import Links, raise_by_words


def test_words_raise_links_through_entities_and_not_links_by_title():
    """A link gains STEP / 2 = 0.45 of its target's lift of 0.2, that is 0.09. The worth of a link by title already includes a share of the target's own
    score.
    """
    rows = np.zeros(3, np.int64)
    links = Links(np.array([1, 1, 0]), np.array([0.5, 0.5, 0.5], np.float32), rows, rows, np.array([0, 1, 0]))
    raised = raise_by_words(links, np.array([0.0, 0.2], np.float32))
    assert np.allclose(raised.worth_X, [0.59, 0.5, 0.5]) and raised.worth_X.dtype == np.float32
    assert np.array_equal(raised.to_passage_X, links.to_passage_X)
