//! The front desk: words in, words out.
