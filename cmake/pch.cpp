// Holds nothing: a precompiled header needs a target to belong to.
