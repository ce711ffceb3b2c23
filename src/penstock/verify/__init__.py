"""Proves that a target equals its source while both keep changing.

1. `source` opens one read view at the server between two watermarks: everything in `low` is visible, and
   nothing beyond `high`. In this view the server computes, per bucket of keys, the number of rows and the sum
   of their hashes.
2. The target is read at a version that has the log up to `high`, and Spark computes the same. An epoch ends
   at a transaction end in the index, so the version may have a little more log; step 4 covers that.
3. Buckets that agree count as equal: a difference would have to collide in a 60-bit sum.
4. Buckets that differ are listed key by key, in the same read view. A key that was changed between `low` and
   the target's offset may differ only because of that. It is *uncertain* and is compared again in another
   read view. Every other difference is real and is reported.

Neither side is locked, and no row leaves the server unless its bucket differs.
"""
