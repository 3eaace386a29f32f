"""The second hop: titles that say what was found with words of the question, and, where it was trained, rows of numbers about ways on from the best passages and the trees that judge them."""
