"""How objects look in a notebook: HTML without scripts, all text of documents and models escaped."""
