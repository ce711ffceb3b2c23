"""Proving a target equal to its source while both keep changing.

1. `source` opens one read view at the server between two marks: everything in `low` is visible, nothing
   beyond `high`. Inside it the server computes, per bucket of keys, the number of rows and the sum of their
   hashes.
2. The target is read at a version that holds the log up to `high`, and Spark computes the same. (An epoch
   ends where the index knows a transaction end, so it may hold a little more; what lies between counts as in
   4.)
3. Buckets that agree are equal: a row that differs in either would have to collide in a 60-bit sum.
4. Buckets that differ are listed key by key, in the same read view. A key that a transaction between `low`
   and the target's offset touched may differ for that reason alone: it is *uncertain*, and is looked at again
   in another read view. Every other difference is real, and named.

Neither side is locked and no row leaves the server unless its bucket differs.
"""
