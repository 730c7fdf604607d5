//! Holds everything back: the clock, the quota, the guard.
