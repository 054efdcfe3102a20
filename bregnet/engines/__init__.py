"""How an index finds the nearest items: a scan of inner products, lists of pieces, or cells."""
