"""Suggest, select, go on: the loop of ToPG's local and global modes."""
