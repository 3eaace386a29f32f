"""A link's score is raised by words of the question in its target passage, unless the link is by title."""

import numpy as np

from graph.retrieve.hops.mode import Links, raise_by_words


def test_words_raise_links_through_entities_and_not_links_by_title():
    """A link through an entity gains STEP / 2 = 0.45 times its target's lift of 0.2, that is, 0.09. A link by title gains nothing, because its score
    already includes a share of its target's own score.
    """
    rows = np.zeros(3, np.int64)
    links = Links(np.array([1, 1, 0]), np.array([0.5, 0.5, 0.5], np.float32), rows, rows, np.array([0, 1, 0]))
    raised = raise_by_words(links, np.array([0.0, 0.2], np.float32))
    assert np.allclose(raised.worth_X, [0.59, 0.5, 0.5]) and raised.worth_X.dtype == np.float32
    assert np.array_equal(raised.to_passage_X, links.to_passage_X)
