"""Questions over an index (HLG §5), of one hop or several: from templates over its sentences, or by a model."""
