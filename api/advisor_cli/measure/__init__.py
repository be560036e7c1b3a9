"""The commands that measure on a GPU: profile, colocate, check, doctor."""
