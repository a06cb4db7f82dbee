//! Tests of the preloaded library with C and C++ programs, which are compiled here.

mod decay;
mod errors;
mod family;
mod fixture;
mod life;
mod loading;
mod profile;
mod settings;
mod stats;
