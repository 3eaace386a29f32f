"""The mode `hops`, and the trained hop that ranks anew what it found."""
