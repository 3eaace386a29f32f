"""Questions over an index (HLG §5), of one hop or several: made from its sentences by rules, or written by a model."""
