"""The second hop that was trained: rows of numbers about ways on from the best passages, and the trees that judge them."""
