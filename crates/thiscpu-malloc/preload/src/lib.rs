//! The C and C++ family of malloc.
